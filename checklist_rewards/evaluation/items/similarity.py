"""How near generated checklists are to people's: wording, number of questions, and the categories given to them.

BLEU is sacrebleu's over the whole corpus, ROUGE rouge-score's, each with its own tokenization; the questions of a
checklist are joined by line breaks, in order. TICK (arXiv:2410.03608, section 3.1) compares checklists so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.validation import import_extra

_ROUGES = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True, slots=True)
class Similarity:
    """Of generated checklists to people's, over a corpus."""

    checklists: int
    bleu: float
    """Corpus BLEU, in [0, 100]."""
    rouge: Mapping[str, float]
    """Mean F1 of rouge1, rouge2 and rougeL, in [0, 1]."""
    count_mae: float
    """Mean of |questions generated - questions by people|."""


@dataclass(frozen=True, slots=True)
class CategoryFigures:
    """How well one category was tagged."""

    category: str
    precision: float | None
    """None if it was never given."""
    recall: float | None
    """None if it never should have been."""
    f1: float | None
    support: int
    """Items that have it in truth."""


def similarity(generated: Sequence[Checklist], human: Sequence[Checklist]) -> Similarity:
    """Compare checklists pair by pair.

    Raises:
        SampleError: without pairs, if the numbers differ, or without the packages of the extra `evaluation`.
    """
    if not generated or len(generated) != len(human):
        raise SampleError(f"checklists are compared in pairs, got {len(generated)} and {len(human)} of people.")
    rouge, sacrebleu = import_extra("rouge_score.rouge_scorer", "sacrebleu")
    texts, wanted = ([_text(checklist) for checklist in side] for side in (generated, human))
    scorer = rouge.RougeScorer(list(_ROUGES))
    scored = [scorer.score(target, text) for target, text in zip(wanted, texts, strict=True)]
    return Similarity(
        checklists=len(texts),
        bleu=sacrebleu.corpus_bleu(texts, [wanted]).score,
        rouge={name: math.fsum(one[name].fmeasure for one in scored) / len(scored) for name in _ROUGES},
        count_mae=math.fsum(abs(len(a) - len(b)) for a, b in zip(generated, human, strict=True)) / len(generated),
    )


def category_figures(tagged: Sequence[str | None], truth: Sequence[str]) -> list[CategoryFigures]:
    """Precision, recall and F1 of every category, one against the rest.

    Args:
        tagged (sequence of `str` or None): the category that each item got; None for none.
        truth (sequence of `str`): the one that it has.

    Raises:
        SampleError: if the numbers differ.
    """
    if len(tagged) != len(truth):
        raise SampleError(f"got {len(tagged)} tagged items and {len(truth)} labels.")
    out: list[CategoryFigures] = []
    for category in dict.fromkeys([*truth, *(tag for tag in tagged if tag is not None)]):
        right = sum(tag == category == true for tag, true in zip(tagged, truth, strict=True))
        given, support = tagged.count(category), truth.count(category)
        both = given + support
        out.append(
            CategoryFigures(
                category,
                precision=right / given if given else None,
                recall=right / support if support else None,
                f1=2 * right / both if both else None,
                support=support,
            )
        )
    return out


def _text(checklist: Checklist) -> str:
    return "\n".join(item.question for item in checklist.items)
