"""Every fault of a server in every mode that writes: no row lost, no wrong answer, a reason for what is missing; and
in the generators.

The modes that read one token are in `tests/backends/test_openai_faults.py`.
"""

import pytest

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.generators.shapes import WeightedQuestions
from tests.backends.test_openai_faults import NO_REPLY, judge
from tests.faultserver import DRESSED, FAULTS, GRADE, INDICES, MARK, SILENT

QUESTIONS = ("Is it fine (yes)?", "Is it red (no)?", "Is it short (yes)?")
RIGHT = ["yes", "no", "yes"]
TEXTS = ("First text.", f"Second {MARK} text.", "Third text.")
MODES = {
    "batch": {"mode": "batch"},
    "batch_reasoned": {"mode": "batch", "capture_reasoning": True},
    "quality": {"mode": "quality"},
    "reasoned": {"mode": "item", "capture_reasoning": True},
    "votes": {"mode": "item", "capture_reasoning": True, "votes": 3},
    "word": {"mode": "item", "use_logprobs": False},
}
NUMBERED = ("batch", "batch_reasoned", "quality")


def reason_of(fault: str, mode: str) -> str | None:
    """How the reason begins why all three questions of the broken text are unanswered; None if not all are."""
    if fault in NO_REPLY:
        return NO_REPLY[fault]
    if mode == "word":
        return "unparsable" if fault in ("fenced", "prose", "think", "na", "off_label") else None
    if fault == "truncated":
        return "cut_off"
    if fault == "na" or (fault == "zero_based" and mode in NUMBERED):
        return "unparsable"
    return None


CASES = [
    (mode, fault) for mode in MODES for fault in FAULTS if mode in ("word", "batch") or fault not in ("slow", "hang")
]
"""The other modes send requests as these two do, so waiting for a slow server in them shows nothing new."""


@pytest.mark.parametrize(("mode", "fault"), CASES)
def test_a_fault_costs_its_own_reads_and_no_others(fault, mode, fault_server):
    scorer = ChecklistScorer(fault, backend=judge(fault, fault_server), store=False, **MODES[mode])
    scores = scorer.score_batch([Sample(list(QUESTIONS), text) for text in TEXTS])
    for score in (scores[0], scores[2]):
        assert [item.answer for item in score.items] == RIGHT
        assert score.quality == (GRADE if mode == "quality" else None)
    items, reason = scores[1].items, reason_of(fault, mode)
    for item, right in zip(items, RIGHT, strict=True):
        assert item.answer in (right, None)
        assert (item.answer is None) == bool(item.unanswered)
    if reason is not None:
        assert all(item.unanswered.startswith(reason) for item in items)
        graded = fault == "na" and mode == "quality"  # what is clear in the reply counts: the grade is
        assert (scores[1].quality, scores[1].answered) == (GRADE if graded else None, 0)
        assert scores[1].primary_score is None
        assert scores[1].unanswered == {reason.partition(":")[0]: 3}
    elif fault in ("missing", "duplicate") and mode in NUMBERED:
        assert items[0].answer == "yes" and 0 < scores[1].answered < 3
    else:
        assert scores[1].answered == 3
        assert scores[1].quality == (GRADE if mode == "quality" else None)


@pytest.mark.parametrize("shape", [None, WeightedQuestions], ids=["list", "json"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_own_checklist_and_no_other(fault, shape, fault_server):
    generator = DirectGenerator(fault, backend=judge(fault, fault_server), shape=shape, store=False)
    first, broken, third = generator.generate_batch([f"Write. {text}" for text in TEXTS])
    assert isinstance(first, Checklist) and isinstance(third, Checklist)
    if fault in NO_REPLY:
        assert isinstance(broken, GenerationError) and NO_REPLY[fault] in str(broken)
    elif fault == "truncated":
        assert isinstance(broken, GenerationError) and "cut off" in str(broken)
    elif isinstance(broken, Checklist):
        assert [item.question for item in broken.items] == [item.question for item in first.items]
    else:
        assert shape is None and fault in ("fenced", "prose", "na")


def test_every_fault_is_accounted_for():
    assert {*SILENT, *INDICES, *DRESSED, "na", "off_label"} <= set(FAULTS)
    assert {*NO_REPLY} | {"truncated"} == {*SILENT}


@pytest.mark.parametrize("mode", ["batch", "reasoned"])
def test_a_server_that_only_ever_fails_gives_no_score_at_all(mode, fault_server):
    backend = OpenAIBackend("500", fault_server, pause=0.01, attempts=2, failures=4, patience=0.2)
    scorer = ChecklistScorer("500", backend=backend, store=False, **MODES[mode])
    scores = scorer.score_batch([Sample(list(QUESTIONS), f"Text {number}.") for number in range(20)])
    assert [score.primary_score for score in scores] == [None] * 20
    assert all(item.unanswered.startswith("backend_error: ") for score in scores for item in score.items)


@pytest.mark.parametrize("fault", ["500", "html", "hang"])
def test_a_rerun_asks_only_for_what_a_passing_failure_left_out(fault, fault_server, tmp_path, monkeypatch):
    samples = [Sample(list(QUESTIONS), f"{text} Once more.") for text in TEXTS]
    engines = judge(fault, fault_server), judge("valid", fault_server)
    monkeypatch.setattr(engines[1], "identity", engines[0].identity)  # the same server, mended
    broken, sound = (
        ChecklistScorer("m", backend=engine, mode="batch", store=tmp_path / "store.sqlite") for engine in engines
    )
    first, second = broken.score_batch(samples), sound.score_batch(samples)
    assert [score.answered for score in first] == [3, 0, 3]
    assert [score.answered for score in second] == [3, 3, 3]
    assert (sound.receipt.stored, sound.receipt.asked) == (6, 3)
