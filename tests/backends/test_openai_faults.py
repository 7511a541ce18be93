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
from tests.backends.answerserver import HASTY, SETTINGS
from tests.faultserver import FAULTS, GRADE, MARK

NO_REPLY = {
    "null": "null_content",
    "empty_choices": "empty_choices",
    "html": "not_json",
    "error_body": "error_body: the upstream broke",
    "500": "backend_error: status 500: out of order",
    "hang": "timeout",
    "drop": "backend_error: connection failed (Server disconnected)",
    "refusal": "refused",
    "cut": "cut_off",
}
PASSING = {"html", "empty_choices", "error_body", "500", "hang", "drop"}
OFF_LABEL = ("fenced", "prose", "think", "na", "off_label")
WORD_ONLY = ("no_logprobs", "words_only", "logprobs_refused")
QUESTIONS = ["Is it fine (yes)?", "Is it red (no)?", "Is it short (yes)?"]
RIGHT = ["yes", "no", "yes"]
TEXTS = ("First text.", f"Second {MARK} text.", "Third text.")


@cache
def judge(fault: str, url: str) -> OpenAIBackend:
    """A served model whose answers about marked texts go wrong."""
    return OpenAIBackend(f"{fault}@some", url, **SETTINGS | (HASTY if fault == "hang" else {}))


# ----- the engine -----


@pytest.mark.parametrize("fault", FAULTS)
def test_a_label_read_is_right_or_unanswered_with_its_reason(fault, fault_server):
    groups = [ReadGroup("Be fair.", f"{text} ", tuple(QUESTIONS[:2])) for text in TEXTS[:2]]
    answers, usage = judge(fault, fault_server).read(groups, LABELS)
    assert [answer(read) for read in answers[:2]] == ["yes", "no"] and usage.prompt_tokens > 0
    for read, right in zip(answers[2:], RIGHT, strict=False):
        if fault in NO_REPLY:
            assert read.unanswered == NO_REPLY[fault] and is_transient(read.unanswered) == (fault in PASSING)
        elif fault in WORD_ONLY:
            assert (read.label, read.logprobs) == (right, None)
        elif fault in OFF_LABEL:
            assert sum(math.exp(p) for p in read.logprobs) < 0.06
        else:
            assert answer(read) == right and sum(math.exp(p) for p in read.logprobs) > 0.9


def answer(read) -> str:
    return read.label or LABELS[max(range(len(LABELS)), key=read.logprobs.__getitem__)]


@pytest.mark.parametrize("fault", FAULTS)
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
    elif fault in ("fenced", "prose", "think", "upper", "missing", "duplicate", "zero_based", "extra", "na"):
        assert broken.unanswered is None and broken.text != sound.text
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
NUMBERED = ("batch", "batch_reasoned", "quality")
CASES = [(mode, fault) for mode in MODES for fault in FAULTS if mode in ("batch", "word") or fault != "hang"]
"""The other modes send requests as these two do, so waiting for a silent server in them shows nothing new."""


def reason_of(fault: str, mode: str) -> str | None:
    """How the reason begins why all three questions of the broken text are unanswered; None if not all are."""
    if fault in NO_REPLY:
        return NO_REPLY[fault]
    if mode == "word":
        return "unparsable" if fault in OFF_LABEL else None
    if fault == "truncated":
        return "cut_off"
    return "unparsable" if fault == "na" or (fault == "zero_based" and mode in NUMBERED) else None


@pytest.mark.parametrize(("mode", "fault"), CASES)
def test_a_fault_costs_its_own_reads_and_no_others(mode, fault, fault_server):
    scorer = ChecklistScorer(fault, backend=judge(fault, fault_server), store=False, **MODES[mode])
    first, broken, third = scorer.score_batch([Sample(QUESTIONS, text) for text in TEXTS])
    grade, reason = GRADE if mode == "quality" else None, reason_of(fault, mode)
    for score in (first, third):
        assert ([item.answer for item in score.items], score.quality) == (RIGHT, grade)
    for item, right in zip(broken.items, RIGHT, strict=True):
        assert item.answer == (None if item.unanswered else right)
    if reason is not None:
        assert all(item.unanswered.startswith(reason) for item in broken.items)
        assert (broken.answered, broken.primary_score) == (0, None)
        assert broken.unanswered == {reason.partition(":")[0]: 3}
        assert broken.quality == (grade if fault == "na" else None)  # "N/A" for every answer: the grade is clear
    elif fault in ("missing", "duplicate") and mode in NUMBERED:
        assert [item.answer for item in broken.items] == ["yes", "no", None]
    else:
        assert (broken.answered, broken.quality) == (3, grade)


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


@pytest.mark.parametrize("shape", [None, WeightedQuestions], ids=["list", "json"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_own_checklist_and_no_other(fault, shape, fault_server):
    generator = DirectGenerator(fault, backend=judge(fault, fault_server), shape=shape, store=False)
    first, broken, third = generator.generate_batch([f"Write. {text}" for text in TEXTS])
    assert isinstance(first, Checklist) and isinstance(third, Checklist)
    if fault in NO_REPLY or fault == "truncated":
        assert isinstance(broken, GenerationError) and NO_REPLY.get(fault, "cut off") in str(broken)
    elif isinstance(broken, Checklist):
        assert [item.question for item in broken.items] == [item.question for item in first.items]
    else:
        assert shape is None and fault in ("fenced", "prose", "na")
