"""The decisions of a real vLLM server: a random Qwen3 whose vocabulary has every label as one token.

What vLLM reads at `/v1/systemone` is what a direct read of the same prompt gives.
"""

import pytest

from checklist_rewards import ChecklistItem, ChecklistScorer, Sample
from checklist_rewards.prompts import parse_prompt
from tests.backends.conftest import DECISIONS_NAME

pytestmark = pytest.mark.vllm

TEXTS = ["the red house stands near a green river", "a small dog runs", "near a river a dog stands", ""]
QUESTIONS = ["Is the house red?", "Is it about a dog?", "Is the text long?"]
TEMPLATE = "Question: {question}\nyes\nno\nAnswer with yes or no only."
"""What vLLM writes around a yes/no question."""
DECISION = parse_prompt("{target}\n\n{question}", "judge", "decision.md")
DIRECT = parse_prompt("{target}\n\n" + TEMPLATE, "judge", "direct.md")


def scorer(url: str, **settings) -> ChecklistScorer:
    return ChecklistScorer(DECISIONS_NAME, base_url=url, store=False, mass_floor=0.0, no_answer="judge", **settings)


def answers(scorer: ChecklistScorer, checklist=QUESTIONS):
    scores = scorer.score_batch([Sample(checklist, text) for text in TEXTS])
    assert [line.unanswered for score in scores for line in score.items] == [None] * (len(TEXTS) * len(checklist))
    return [line for score in scores for line in score.items]


def test_decisions_are_the_probabilities_of_a_direct_read_of_the_same_prompt(qwen3_server, qwen3):
    decided = answers(scorer(qwen3_server, backend="decisions", prompt=DECISION))
    listed = answers(scorer(qwen3_server, backend="openai", prompt=DIRECT))
    beside = ChecklistScorer(
        qwen3, backend="transformers", store=False, mass_floor=0.0, no_answer="judge", prompt=DIRECT
    )
    here = answers(beside)
    for decision, other, direct in zip(decided, listed, here, strict=True):
        assert decision.method == "decision" and other.method == "logprobs"
        for name in ("soft", "mass"):
            assert getattr(decision, name) == pytest.approx(getattr(direct, name), abs=1e-3)
            assert getattr(other, name) == pytest.approx(getattr(direct, name), abs=1e-3)
    assert len({round(line.soft, 3) for line in here}) > len(here) // 2  # the model does tell texts apart


def test_choices_and_scales(qwen3_server):
    choice = ChecklistItem(
        question="Is it about a dog?", options=[{"label": "red", "value": 0}, {"label": "green", "value": 1}]
    )
    scale = ChecklistItem(question="Is the text long?", options=[{"label": str(n), "value": n / 4} for n in range(5)])
    lines = answers(scorer(qwen3_server, backend="decisions"), [choice, scale])
    for line in lines:
        assert sum(line.probabilities.values()) == pytest.approx(1) and 0 < line.mass <= 1
    assert [set(line.probabilities) for line in lines[:2]] == [{"red", "green"}, set("01234")]


def test_the_receipt_counts_cached_tokens(qwen3_server):
    judge = scorer(qwen3_server, backend="decisions")
    answers(judge, [f"Is the text long {number}?" for number in range(8)])
    assert judge.receipt.prompt_tokens > (judge.receipt.computed_tokens or 0) > 0
