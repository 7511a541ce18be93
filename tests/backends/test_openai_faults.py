"""Faults of a server, at the engine, in every mode of the judges and in the generators: a reason for each read that is
lost, and no harm to the others. `tests/faultserver.py` has the faults."""

import json
import math
from functools import cache

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.backends import ReadGroup, Sampling, is_transient
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.generators.shapes import WeightedQuestions
from tests.backends.answers import LABELS, user
from tests.backends.answerserver import SETTINGS
from tests.faultserver import GRADE, MARK

NO_REPLY = {
    "null": "null_content",
    "empty_choices": "empty_choices",
    "html": "not_json",
    "error_body": "error_body",
    "500": "backend_error: status 500: out of order",
    "hang": "timeout",
    "drop": "backend_error: connection failed (Server disconnected)",
    "refusal": "refused",
    "cut": "cut_off",
}
PASSING = {"html", "empty_choices", "error_body", "500", "hang", "drop"}
WORD_ONLY = ("words_only", "logprobs_refused")
QUESTIONS = ["Is it fine (yes)?", "Is it red (no)?", "Is it short (yes)?"]
RIGHT = ["yes", "no", "yes"]
TEXTS = ("First text.", f"Second {MARK} text.", "Third text.")


@cache
def judge(fault: str, url: str) -> OpenAIBackend:
    """A served model whose answers about marked texts go wrong. The sound answers of one that hangs are there long
    before its timeout, on a busy machine too."""
    hasty = {"timeout": 2.0, "attempts": 1} if fault == "hang" else {}
    return OpenAIBackend(f"{fault}@some", url, **SETTINGS | hasty)


# ----- the engine -----


@pytest.mark.parametrize("fault", [*NO_REPLY, *WORD_ONLY, "429", "503_twice", "upper", "split", "off_label"])
def test_a_label_read_is_right_or_unanswered_with_its_reason(fault, fault_server):
    groups = [ReadGroup("Be fair.", f"{text} ", tuple(QUESTIONS[:2])) for text in TEXTS[:2]]
    answers, usage = judge(fault, fault_server).read(groups, LABELS)
    assert [answer(read) for read in answers[:2]] == ["yes", "no"] and usage.prompt_tokens > 0
    for read, right in zip(answers[2:], RIGHT, strict=False):
        if fault in NO_REPLY:
            assert read.unanswered == NO_REPLY[fault] and is_transient(read.unanswered) == (fault in PASSING)
        elif fault in WORD_ONLY:
            assert (read.label, read.logprobs) == (right, None)
        else:
            mass = sum(math.exp(p) for p in read.logprobs)
            assert answer(read) == right and (mass < 0.06 if fault == "off_label" else mass > 0.9)


def answer(read) -> str:
    return read.label or LABELS[max(range(len(LABELS)), key=read.logprobs.__getitem__)]


@pytest.mark.parametrize("fault", ["null", "empty_choices", "500", "refusal", "cut", "truncated", "schema_refused"])
def test_a_reply_comes_back_as_it_is_or_with_its_reason(fault, fault_server):
    schema = json.dumps({"properties": {"answers": {"type": "array"}}})
    numbered = 'Reply in JSON: {"answers": ...}\n1. Is it fine (yes)?\n2. Is it red (no)?'
    prompts = [user(numbered), user(f"{MARK}\n{numbered}")]
    [[sound], [broken]] = judge(fault, fault_server).generate(prompts, Sampling(schema=schema))
    assert [entry["answer"] for entry in json.loads(sound.text)["answers"]] == ["yes", "no"]
    assert (sound.finish_reason, sound.prompt_tokens, sound.completion_tokens) == ("stop", 100, 10)
    if fault in NO_REPLY:
        assert (broken.text, broken.unanswered) == (None, NO_REPLY[fault])
    elif fault == "truncated":
        assert broken.finish_reason == "length" and sound.text.startswith(broken.text)
    else:
        assert broken.text == sound.text


# ----- the modes that write -----

MODES = {
    "batch": {"mode": "batch"},
    "batch_reasoned": {"mode": "batch", "capture_reasoning": True},
    "quality": {"mode": "quality"},
    "reasoned": {"mode": "item", "capture_reasoning": True},
    "votes": {"mode": "item", "capture_reasoning": True, "votes": 3},
    "word": {"mode": "item", "use_logprobs": False},
}
LOST = {
    "batch": {"null": "null_content", "hang": "timeout", "truncated": "cut_off", "na": "unparsable",
              "zero_based": "unparsable"},
    "batch_reasoned": {"500": "backend_error", "truncated": "cut_off"},
    "quality": {"null": "null_content", "truncated": "cut_off", "na": "unparsable"},
    "reasoned": {"null": "null_content", "truncated": "cut_off", "na": "unparsable"},
    "votes": {"drop": "backend_error", "na": "unparsable"},
    "word": {"null": "null_content", "think": "unparsable", "off_label": "unparsable"},
}  # fmt: skip
"""The faults of a mode that cost all questions about a text, with their reason."""
READ = {
    "batch": ("fenced", "prose", "think", "upper", "extra"),
    "batch_reasoned": ("prose",),
    "quality": ("prose", "extra"),
    "reasoned": ("prose",),
    "votes": ("upper",),
    "word": ("words_only",),
}
"""The faults of a mode that cost nothing."""


def scores_of(fault: str, mode: str, url: str):
    scorer = ChecklistScorer(fault, backend=judge(fault, url), store=False, **MODES[mode])
    first, broken, third = scorer.score_batch([Sample(QUESTIONS, text) for text in TEXTS])
    for score in (first, third):
        assert [item.answer for item in score.items] == RIGHT
        assert score.quality == (GRADE if mode == "quality" else None)
    return broken


@pytest.mark.parametrize(("mode", "fault"), [(mode, fault) for mode, faults in LOST.items() for fault in faults])
def test_a_reply_that_cannot_be_used_costs_its_own_text_only(mode, fault, fault_server):
    broken = scores_of(fault, mode, fault_server)
    assert [item.unanswered.reason for item in broken.items] == [LOST[mode][fault]] * 3
    assert (broken.answered, broken.primary_score, broken.unanswered) == (0, None, {LOST[mode][fault]: 3})
    # What is clear in the reply counts: with "N/A" for every answer, the grade is.
    assert broken.quality == (GRADE if (mode, fault) == ("quality", "na") else None)


@pytest.mark.parametrize(("mode", "fault"), [(mode, fault) for mode, faults in READ.items() for fault in faults])
def test_a_reply_in_an_odd_form_is_read(mode, fault, fault_server):
    broken = scores_of(fault, mode, fault_server)
    assert [item.answer for item in broken.items] == RIGHT
    assert broken.quality == (GRADE if mode == "quality" else None)


@pytest.mark.parametrize("fault", ["missing", "duplicate"])
@pytest.mark.parametrize("mode", ["batch", "quality"])
def test_a_number_that_is_missing_or_given_twice_costs_its_question_only(mode, fault, fault_server):
    broken = scores_of(fault, mode, fault_server)
    assert [item.answer for item in broken.items] == ["yes", "no", None] and broken.items[2].unanswered


def test_a_server_that_only_ever_fails_gives_no_score_at_all(fault_server):
    backend = OpenAIBackend("500", fault_server, pause=0.01, attempts=2, failures=4, patience=0.2)
    scorer = ChecklistScorer("500", backend=backend, store=False, mode="batch")
    scores = scorer.score_batch([Sample(QUESTIONS, f"Text {number}.") for number in range(20)])
    assert [score.primary_score for score in scores] == [None] * 20
    assert all(item.unanswered.startswith("backend_error: ") for score in scores for item in score.items)


def test_a_rerun_asks_only_for_what_a_passing_failure_left_out(fault_server, tmp_path, monkeypatch):
    engines = judge("500", fault_server), judge("valid", fault_server)
    monkeypatch.setattr(engines[1], "identity", engines[0].identity)  # the same server, repaired
    broken, sound = (
        ChecklistScorer("m", backend=engine, mode="batch", store=tmp_path / "store.sqlite") for engine in engines
    )
    samples = [Sample(QUESTIONS, f"{text} Once more.") for text in TEXTS]
    assert [score.answered for score in broken.score_batch(samples)] == [3, 0, 3]
    assert [score.answered for score in sound.score_batch(samples)] == [3, 3, 3]
    assert (sound.receipt.stored, sound.receipt.asked) == (6, 3)


# ----- the generators -----


@pytest.mark.parametrize(
    ("fault", "shape", "error"),
    [
        ("null", None, "null_content"),
        ("na", None, "N/A"),
        ("truncated", WeightedQuestions, "cut off"),
        ("fenced", WeightedQuestions, None),
        ("schema_refused", WeightedQuestions, None),
    ],
)
def test_a_fault_costs_its_own_checklist_and_no_other(fault, shape, error, fault_server):
    generator = DirectGenerator(fault, backend=judge(fault, fault_server), shape=shape, store=False)
    first, broken, third = generator.generate_batch([f"Write. {text}" for text in TEXTS])
    assert isinstance(first, Checklist) and isinstance(third, Checklist)
    if error is None:
        assert [item.question for item in broken.items] == [item.question for item in first.items]
    else:
        assert isinstance(broken, GenerationError) and error in f"{broken} {broken.raw}"
