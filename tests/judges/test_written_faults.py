"""Every fault of a server in every mode that writes: no row is lost, no wrong answer counts, the neighbours are well.

The one-token mode meets the same faults in `tests/backends/test_openai_faults.py`.
"""

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends.openai import OpenAIBackend
from tests.backends.test_openai_faults import HASTY, SETTINGS
from tests.faultserver import FAULTS, GRADE, MARK

QUESTIONS = ["Is it fine (yes)?", "Is it red (no)?"]
TRUTH = ["yes", "no"]
MODES = {
    "words": {"use_logprobs": False},
    "reasoned": {"capture_reasoning": True},
    "votes": {"capture_reasoning": True, "samples": 3},
    "batch": {"mode": "batch"},
    "quality": {"mode": "quality"},
}
REASONS = {
    "null": "null_content",
    "empty_choices": "empty_choices",
    "html": "not_json",
    "error_body": "error_body",
    "500": "backend_error",
    "hang": "timeout",
    "drop": "backend_error",
    "refusal": "refused",
    "cut": "cut_off",
    "truncated": "cut_off",
    "na": "unparsable",
    "zero_based": "unparsable",
}
IN_WORDS = dict.fromkeys(("fenced", "prose", "think", "off_label"), "unparsable")
"""Replies that a label alone is looked for in."""


def scorer_on(fault: str, url: str, **options) -> ChecklistScorer:
    waits = HASTY if fault == "hang" else SETTINGS if fault in ("slow", "503_twice") else SETTINGS | {"attempts": 2}
    backend = OpenAIBackend(f"{fault}@some", url, **{"pause": 0.01} | waits)
    return ChecklistScorer(backend=backend, store=False, **options)


CASES = [
    (mode, fault)
    for mode in MODES
    for fault in FAULTS
    # Split forms matter to who reads probabilities; the likeliest single token is what a word is.
    if (mode, fault) != ("words", "split") and (mode in ("words", "batch") or fault not in ("slow", "hang"))
]
"""Waiting out a second or a timeout again tells nothing new in the modes that ask as these two do."""


@pytest.mark.parametrize(("mode", "fault"), CASES)
def test_a_fault_costs_its_own_reads_and_no_wrong_answer_counts(mode, fault, fault_server):
    scorer = scorer_on(fault, fault_server, **MODES[mode])
    texts = ["First text.", f"Second {MARK} text.", "Third text."]
    scores = scorer.score_batch([Sample(QUESTIONS, text, f"Write for {mode}.") for text in texts])
    assert len(scores) == 3
    for sound in (scores[0], scores[2]):
        assert [item.answer for item in sound.items] == TRUTH and sound.answered == 2
        assert sound.quality == (GRADE if mode == "quality" else None)
    broken = scores[1]
    for item, truth in zip(broken.items, TRUTH, strict=True):
        assert item.answer in (truth, None) and (item.answer is None) == (item.unanswered is not None)
    reasons = REASONS | IN_WORDS if mode == "words" else REASONS
    numbered = mode in ("batch", "quality")
    expected = reasons.get(fault)
    if fault == "zero_based" and not numbered or fault == "truncated" and mode == "words":
        expected = None  # there are no numbers, or there is nothing to cut, in these replies
    assert {item.unanswered and item.unanswered.partition(":")[0] for item in broken.items} >= {expected}
    if expected is not None:
        assert broken.answered == 0 and broken.primary_score is None and broken.unanswered == {expected: 2}
