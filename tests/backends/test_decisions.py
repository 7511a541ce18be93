"""The client of the Decisions APIs: both wire formats, every fault, and the judge through the scorer."""

import math
from functools import cache

import pytest

from checklist_rewards import ChecklistItem, ChecklistScorer
from checklist_rewards.backends import Engine, ReadGroup, Sampling, is_transient
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.protocols import DecisionQuestion, OpenAIDecisions, SystemOne
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.judges.decisions import levels_of
from tests.backends.answerserver import HASTY, SETTINGS
from tests.faultserver import MARK

FINE = DecisionQuestion("predicate", "Is it fine (yes)?")
CHOICE = DecisionQuestion("choice", "Which colour (blue)?", ("red", "blue", "green"))
SCORE = DecisionQuestion("score", "How good (fair)?", ("bad", "fair", "good"))
QUESTIONS = [FINE, DecisionQuestion("predicate", "Is it red (no)?"), CHOICE, SCORE]
RIGHT = ["yes", "no", "blue", "fair"]
FAULTS = {
    "valid": ("", 0, 0),
    "wrong_order": ("", 0, 0),
    "one_missing": ("", 0, 0),
    "extra_answer": ("", 0, 0),
    "few_questions": ("", 0, 0),
    "429": ("", 0, 0),
    "503_twice": ("", 0, 0),
    "no_usage": ("", 0, 0),
    "500": ("backend_error: status 500: out of order", 4, 4),
    "hang": ("timeout", 4, 4),
    "drop": ("backend_error: connection failed (Server disconnected)", 4, 4),
    "html": ("not_json", 4, 4),
    "error_body": ("error_body: the upstream broke", 4, 4),
    "null_answers": ("error_body", 4, 4),
    "refusal": ("refused", 4, 4),
    "never_answered": ("missing", 1, 1),
    "answered_twice": ("unparsable", 0, 1),  # cannot happen to an object of answers, as the next one
    "no_names": ("missing", 0, 4),
    "nan": ("unparsable", 4, 4),
    "above_one": ("unparsable", 4, 4),
    "not_a_sum": ("unparsable", 4, 4),
    "wrong_type": ("unparsable", 3, 3),
    "wrong_labels": ("unparsable", 3, 4),  # System One names levels by their number
}
"""The reason of the reads that are lost, and their number with System One and with OpenAI's format."""
PASSING = ("500", "hang", "drop", "html", "error_body", "null_answers")


@pytest.fixture
def both(fault_server) -> str:
    """The address of a server with both protocols."""
    return fault_server.removesuffix("v1") + "both"


@cache
def backend(fault: str, url: str, protocol: str) -> DecisionsBackend:
    """A served model whose decisions about marked texts go wrong."""
    return DecisionsBackend(f"{fault}@some", url, protocol=protocol, **SETTINGS | (HASTY if fault == "hang" else {}))


def group(text: str, questions=QUESTIONS) -> ReadGroup:
    return ReadGroup(None, text, tuple(question.text() for question in questions))


def answer(read, question: DecisionQuestion) -> str:
    """The likeliest label, or the reason without one."""
    return read.unanswered or question.labels[max(range(len(question.labels)), key=read.logprobs.__getitem__)]


def labels(reads) -> list[str]:
    return [answer(read, question) for read, question in zip(reads, QUESTIONS, strict=True)]


@pytest.mark.parametrize("protocol", ["systemone", "decisions"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_decision_is_right_or_unanswered_with_its_reason(fault, protocol, both):
    texts = [f"{fault} {protocol} first.", f"{fault} {protocol} {MARK}.", f"{fault} {protocol} third."]
    answers, usage = backend(fault, both, protocol).read([group(text) for text in texts])
    sound, broken = [*answers[:4], *answers[8:]], labels(answers[4:8])
    assert labels(sound[:4]) == labels(sound[4:]) == RIGHT
    for read in sound:
        assert read.mass_reported == (protocol == "systemone")
        assert sum(map(math.exp, read.logprobs)) == pytest.approx(0.9 if read.mass_reported else 1.0)
    if fault == "valid":
        assert (usage.prompt_tokens, usage.completion_tokens, usage.computed_tokens) == (300, 12, None)
    reason, *lost = FAULTS[fault]
    assert broken.count(reason) == lost[protocol == "decisions"] and is_transient(reason) == (fault in PASSING)
    assert all(found in (right, reason) for found, right in zip(broken, RIGHT, strict=True))


@pytest.mark.parametrize(("name", "path"), [("both", "/systemone"), ("one", "/systemone"), ("two", "/decisions")])
def test_the_protocol_of_the_server_is_found(name, path, fault_server):
    found = DecisionsBackend("valid", fault_server.removesuffix("v1") + name, **SETTINGS)
    assert labels(found.read([group(f"Found {name}.")])[0]) == RIGHT
    assert [protocol.path for protocol in found._protocols] == [path]


def test_a_server_without_decisions_is_one_sentence_that_names_the_alternative(fault_server):
    scorer = ChecklistScorer("valid", backend="decisions", base_url=fault_server, store=False)
    said = r"decisions for 'valid' at [/a-z ]+ \(status 404: 404: Not Found\); check base_url, .* use backend='openai'"
    with pytest.raises(ModelError, match=said):
        scorer.score(["Is it fine (yes)?"], "A text.")


def test_questions_are_split_at_the_limit_of_the_protocol(monkeypatch, both):
    served = DecisionsBackend("valid", both, protocol="systemone", **SETTINGS)
    sent, post = [], served.connection.post

    def counting(path, body, **others):
        sent.append(len(body["questions"]))
        return post(path, body, **others)

    monkeypatch.setattr(served.connection, "post", counting)
    reads, _ = served.read([group("Many.", [DecisionQuestion("predicate", f"{n} (yes)?") for n in range(150)])])
    assert sorted(sent) == [22, 64, 64] and {answer(read, FINE) for read in reads} == {"yes"}


def test_a_question_survives_its_text():
    assert [DecisionQuestion.parse(question.text()) for question in QUESTIONS] == QUESTIONS
    with pytest.raises(ValueError):
        DecisionQuestion.parse('["guess", "What?"]')


def test_the_bodies_of_the_protocols():
    questions = {"q1": FINE, "q2": CHOICE, "q3": SCORE}
    colours = {"red": None, "blue": None, "green": None}
    assert SystemOne().body("m", "Be fair.", "Text.", questions) == {
        "model": "m",
        "state": "Text.",
        "instructions": "Be fair.",
        "questions": {
            "q1": {"type": "noul", "instructions": FINE.instructions},
            "q2": {"type": "choice", "instructions": CHOICE.instructions, "criteria": colours},
            "q3": {"type": "score", "instructions": SCORE.instructions, "criteria": ["bad", "fair", "good"]},
        },
    }
    choices = [{"value": colour} for colour in colours]
    levels = [{"label": "bad"}, {"label": "fair"}, {"label": "good"}]
    assert OpenAIDecisions().body("m", None, "Text.", questions) == {
        "model": "m",
        "input": "Text.",
        "questions": [
            {"type": "predicate", "name": "q1", "instructions": FINE.instructions},
            {"type": "choice", "name": "q2", "instructions": CHOICE.instructions, "choices": choices},
            {"type": "score", "name": "q3", "instructions": SCORE.instructions, "levels": levels},
        ],
    }
    messages = OpenAIDecisions().body("m", "Be fair.", "Text.", questions)["input"]
    assert messages == [{"role": "developer", "content": "Be fair."}, {"role": "user", "content": "Text."}]


# ----- the judge -----


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ({"bad": 0, "fair": 0.5, "good": 1}, ("bad", "fair", "good")),
        ({"good": 1, "fair": 0.5, "bad": 0}, ("bad", "fair", "good")),
        ({"good": 1, "bad": 0, "fair": 0.5}, None),
        ({"bad": 0, "fair": 0.5, "good": 1, "unknown": None}, None),
        ({"bad": 0, "worse": 0, "good": 1}, None),
        ({"bad": 0, "good": 1}, None),
    ],
)
def test_ordered_options_are_levels(options, levels):
    values = [{"na": True} if value is None else {"value": value} for value in options.values()]
    given = [{"label": label} | value for label, value in zip(options, values, strict=True)]
    assert levels_of(ChecklistItem(question="How is it?", options=given)) == levels


def scorer(url: str, **settings) -> ChecklistScorer:
    return ChecklistScorer("valid", backend="decisions", base_url=url, **{"store": False} | settings)


def test_the_store_answers_the_second_time(both, tmp_path):
    for asked in (2, 0):
        judge = scorer(both, store=tmp_path / "answers.sqlite")
        score = judge.score(["Is it fine (yes)?", "Is it red (no)?"], "Some text.")
        assert [line.answer for line in score.items] == ["yes", "no"] and score.items[0].mass == pytest.approx(0.9)
        assert judge.receipt.asked == asked
    assert Engine("valid", "decisions", both).identity != Engine("valid", "openai", both).identity


def test_a_budget_limits_it(both):
    budget = {"dollars": 0.0, "prices": {"valid": (1.0, 1.0)}}
    assert scorer(both, budget=budget).score(["Is it fine (yes)?"], "A text.").unanswered == {"budget": 1}


@pytest.mark.parametrize(
    "settings", [{"mode": "batch"}, {"capture_reasoning": True}, {"use_logprobs": False}], ids=str
)
def test_settings_without_effect_are_refused(settings):
    [(name, value)] = settings.items()
    with pytest.raises(SampleError, match=f"{name}={value!r} has no effect with backend='decisions'"):
        scorer("http://localhost:1/v1", **settings)


def test_it_writes_nothing(both):
    with pytest.raises(ModelError, match="writes no text"):
        Engine("valid", "decisions", both).load().generate([[]], Sampling())
