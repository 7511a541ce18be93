"""The client of the Decisions APIs: both wire formats, every fault, and what a server may leave out."""

import asyncio
import math
from functools import cache

import pytest

from checklist_rewards import ChecklistItem, ChecklistScorer
from checklist_rewards.backends import Engine, ReadGroup, Sampling, is_transient
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.protocols import DecisionQuestion, OpenAIDecisions, SystemOne
from checklist_rewards.backends.openai.client import run
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.judges.decisions import DecisionsJudge, levels_of
from checklist_rewards.judges.settings import JudgeConfig
from tests.backends.test_openai_faults import HASTY, SETTINGS
from tests.faultserver import DECIDED, DECISION_FAULTS, MARK

PREDICATES = [DecisionQuestion("predicate", "Is it fine (yes)?"), DecisionQuestion("predicate", "Is it red (no)?")]
CHOICE = DecisionQuestion("choice", "Which colour (blue)?", ("red", "blue", "green"))
SCORE = DecisionQuestion("score", "How good (fair)?", ("bad", "fair", "good"))
QUESTIONS = [*PREDICATES, CHOICE, SCORE]
RIGHT = ["yes", "no", "blue", "fair"]
PROTOCOLS = ("systemone", "decisions")
REASONS = {
    "500": "backend_error: status 500: out of order",
    "hang": "timeout",
    "drop": "backend_error: connection failed (Server disconnected)",
    "html": "not_json",
    "error_body": "error_body",
    "null_answers": "error_body",
    "refusal": "refused",
    "never_answered": "missing",
    "no_names": "missing",
}
"""All others are unparsable."""
OF_A_LIST = ("answered_twice", "no_names")
"""Cannot happen to an object of answers."""
PASSING = {"500", "hang", "drop", "html", "error_body", "null_answers"}


@cache
def backend(fault: str, url: str, protocol: str | None = None) -> DecisionsBackend:
    """A served model whose decisions about marked texts go wrong."""
    return DecisionsBackend(f"{fault}@some", url, protocol=protocol, **(HASTY if fault == "hang" else SETTINGS))


def both(fault_server: str) -> str:
    return fault_server.removesuffix("v1") + "both"


def group(text: str, questions=QUESTIONS) -> ReadGroup:
    return ReadGroup(None, text, tuple(question.text() for question in questions))


def answer(read, question: DecisionQuestion) -> str:
    return question.labels[max(range(len(question.labels)), key=read.logprobs.__getitem__)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", [fault for fault in DECISION_FAULTS if fault != "501"])
def test_a_decision_is_right_or_unanswered_with_its_reason(fault, protocol, fault_server):
    texts = [f"{fault} {protocol} first.", f"{fault} {protocol} {MARK}.", f"{fault} {protocol} third."]
    answers, usage = backend(fault, both(fault_server), protocol).read([group(text) for text in texts])
    count = len(QUESTIONS)
    for sound in (answers[:count], answers[2 * count :]):
        assert [answer(read, question) for read, question in zip(sound, QUESTIONS, strict=True)] == RIGHT
        for read in sound:
            assert read.mass_reported == (protocol == "systemone")
            assert sum(map(math.exp, read.logprobs)) == pytest.approx(0.9 if read.mass_reported else 1.0)
    broken = answers[count : 2 * count]
    if fault == "valid":
        assert (usage.prompt_tokens, usage.completion_tokens, usage.computed_tokens) == (300, 12, None)
    if fault in DECIDED or (protocol == "systemone" and fault in OF_A_LIST):
        assert [answer(read, question) for read, question in zip(broken, QUESTIONS, strict=True)] == RIGHT
        return
    for read, question, right in zip(broken, QUESTIONS, RIGHT, strict=True):
        if read.unanswered is None:  # the fault cannot touch this type of question, or was not about this answer
            assert answer(read, question) == right
        else:
            assert read.unanswered == REASONS.get(fault, "unparsable")
            assert is_transient(read.unanswered) == (fault in PASSING)
    unanswered = sum(read.unanswered is not None for read in broken)
    touched = {"never_answered": 1, "answered_twice": 1, "wrong_type": 3}.get(fault, len(QUESTIONS))
    if fault == "wrong_labels" and protocol == "systemone":
        touched -= 1  # levels are named by their number
    assert unanswered == touched


def test_the_protocol_of_the_server_is_found(fault_server):
    base = fault_server.removesuffix("v1")
    for name, path in (("both", "/systemone"), ("one", "/systemone"), ("two", "/decisions")):
        found = DecisionsBackend("valid", base + name, **SETTINGS)
        reads, _ = found.read([group(f"Found {name}.")])
        assert [answer(read, question) for read, question in zip(reads, QUESTIONS, strict=True)] == RIGHT
        assert [protocol.path for protocol in found._protocols] == [path]


def test_a_server_without_decisions_is_one_sentence_that_names_the_alternative(fault_server):
    scorer = ChecklistScorer("valid", backend="decisions", base_url=fault_server, store=False)
    with pytest.raises(ModelError, match=r"does not answer decisions for 'valid' at .* use backend='openai'"):
        scorer.score(["Is it fine (yes)?"], "A text.")
    with pytest.raises(ModelError, match=r"at [/a-z ]+ \(status 501.*use backend='openai'"):
        DecisionsBackend("501", both(fault_server), **SETTINGS).read([group("A text.")])


def test_questions_are_split_at_the_limit_of_the_protocol(monkeypatch, fault_server):
    served = DecisionsBackend("valid", both(fault_server), protocol="systemone", **SETTINGS)
    sent, post = [], served.connection.post

    def counting(path, body, **others):
        sent.append(len(body["questions"]))
        return post(path, body, **others)

    monkeypatch.setattr(served.connection, "post", counting)
    many = [DecisionQuestion("predicate", f"{number} (yes)?") for number in range(150)]
    reads, _ = served.read([group("Many.", many)])
    assert sorted(sent) == [22, 64, 64] and all(answer(read, many[0]) == "yes" for read in reads)


def test_a_request_that_is_cancelled_leaves_no_task(fault_server):
    served = DecisionsBackend("501", both(fault_server), **SETTINGS)

    async def tasks() -> int:
        return len(asyncio.all_tasks()) - 1

    with pytest.raises(ModelError):
        served.read([group(f"Text {number}.") for number in range(50)])
    assert run(tasks()) == 0


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_survives_its_text(question):
    assert DecisionQuestion.parse(question.text()) == question
    with pytest.raises(ValueError):
        DecisionQuestion.parse('["guess", "What?"]')


def test_the_bodies_of_the_protocols():
    questions = {"q1": PREDICATES[0], "q2": CHOICE, "q3": SCORE}
    asked = {name: {"instructions": question.instructions} for name, question in questions.items()}
    colours = {"red": None, "blue": None, "green": None}
    assert SystemOne().body("m", "Be fair.", "Text.", questions) == {
        "model": "m",
        "state": "Text.",
        "instructions": "Be fair.",
        "questions": {
            "q1": {"type": "noul", **asked["q1"]},
            "q2": {"type": "choice", **asked["q2"], "criteria": colours},
            "q3": {"type": "score", **asked["q3"], "criteria": ["bad", "fair", "good"]},
        },
    }
    levels = [{"label": "bad"}, {"label": "fair"}, {"label": "good"}]
    assert OpenAIDecisions().body("m", None, "Text.", questions) == {
        "model": "m",
        "input": "Text.",
        "questions": [
            {"type": "predicate", "name": "q1", **asked["q1"]},
            {"type": "choice", "name": "q2", **asked["q2"], "choices": [{"value": colour} for colour in colours]},
            {"type": "score", "name": "q3", **asked["q3"], "levels": levels},
        ],
    }
    messages = OpenAIDecisions().body("m", "Be fair.", "Text.", questions)["input"]
    assert messages == [{"role": "developer", "content": "Be fair."}, {"role": "user", "content": "Text."}]


def item(**labels: float | None) -> ChecklistItem:
    options = [
        {"label": label, "na": True} if v is None else {"label": label, "value": v} for label, v in labels.items()
    ]
    return ChecklistItem(question="How is it?", options=options)


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        (item(bad=0, fair=0.5, good=1), ("bad", "fair", "good")),
        (item(good=1, fair=0.5, bad=0), ("bad", "fair", "good")),
        (item(good=1, bad=0, fair=0.5), None),
        (item(bad=0, fair=0.5, good=1, unknown=None), None),
        (item(bad=0, worse=0, good=1), None),
        (item(bad=0, good=1), None),
        (ChecklistItem(question="Is it?"), None),
    ],
)
def test_ordered_options_are_levels(given, levels):
    assert (None if given.options is None else levels_of(given)) == levels


class TestScorer:
    """The judge, through the scorer."""

    def scorer(self, url: str, model: str = "valid", **others) -> ChecklistScorer:
        engine = {"timeout": 60.0, "attempts": 2, "pause": 0.01}
        return ChecklistScorer(
            model, backend="decisions", base_url=url, engine_args=engine, **{"store": False} | others
        )

    def test_the_store_answers_the_second_time(self, fault_server, tmp_path):
        for asked in (2, 0):
            scorer = self.scorer(both(fault_server), store=tmp_path / "answers.sqlite")
            score = scorer.score(["Is it fine (yes)?", "Is it red (no)?"], "Some text.")
            assert [line.answer for line in score.items] == ["yes", "no"] and score.items[0].mass == pytest.approx(0.9)
            assert scorer.receipt.asked == asked

    def test_a_budget_limits_it(self, fault_server):
        budget = {"dollars": 0.0, "prices": {"valid": (1.0, 1.0)}}
        score = self.scorer(both(fault_server), budget=budget).score(["Is it fine (yes)?"], "A text.")
        assert score.unanswered == {"budget": 1}

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"mode": "batch"}, "mode='batch' has no effect with backend='decisions'"),
            ({"capture_reasoning": True}, "capture_reasoning=True has no effect"),
            ({"use_logprobs": False}, "use_logprobs=False has no effect"),
        ],
    )
    def test_settings_without_effect_are_refused(self, settings, message):
        with pytest.raises(SampleError, match=message):
            self.scorer("http://localhost:1/v1", **settings)

    def test_it_writes_nothing(self, fault_server):
        with pytest.raises(ModelError, match="writes no text"):
            Engine("valid", "decisions", both(fault_server)).load().generate([[]], Sampling())

    def test_the_settings_build_a_decisions_judge_behind_wrappers_too(self):
        from checklist_rewards.backends.budget import Budget

        engine = Engine("valid", "decisions", "http://localhost:1/v1")
        limited = Budget(1.0, {"valid": (1, 1)}).limited(engine)
        for one in (engine, limited):
            assert one.backend_name == "decisions" and isinstance(
                JudgeConfig(model=one).build(store=False), DecisionsJudge
            )
        assert engine.identity == limited.identity != Engine("valid", "openai", "http://localhost:1/v1").identity
