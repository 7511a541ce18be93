"""Similarity of generated checklists to human ones: wording, number of questions, and item categories.

BLEU is the corpus BLEU of sacrebleu, ROUGE comes from rouge-score, each with its own tokenization. The questions of a
checklist are joined by line breaks, in order, as in TICK (arXiv:2410.03608, section 3.1).
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
    """Similarity of generated to human checklists over a corpus."""

    checklists: int
    bleu: float
    """Corpus BLEU, in [0, 100]."""
    rouge: Mapping[str, float]
    """Mean F1 of rouge1, rouge2 and rougeL, in [0, 1]."""
    count_mae: float
    """Mean absolute difference between the numbers of generated and human questions."""


@dataclass(frozen=True, slots=True)
class CategoryFigures:
    """Tagging quality of one category."""

    category: str
    precision: float | None
    """None if the category was never predicted."""
    recall: float | None
    """None if no item has the category."""
    f1: float | None
    support: int
    """Number of items with this category in the labels."""


def similarity(generated: Sequence[Checklist], human: Sequence[Checklist]) -> Similarity:
    """Compare checklists pair by pair.

    Args:
        generated, human (sequences of [`Checklist`]): checklists of the same inputs, in the same order.

    Raises:
        SampleError: If there are no pairs, the numbers differ, or the extra `evaluation` is not installed.
    """
    if not generated or len(generated) != len(human):
        raise SampleError(
            f"checklists are compared in pairs, but got {len(generated)} generated and {len(human)} human ones."
        )
    rouge, sacrebleu = import_extra("rouge_score.rouge_scorer", "sacrebleu")
    texts, references = ([_text(checklist) for checklist in side] for side in (generated, human))
    scorer = rouge.RougeScorer(list(_ROUGES))
    scored = [scorer.score(reference, text) for reference, text in zip(references, texts, strict=True)]
    return Similarity(
        checklists=len(texts),
        bleu=sacrebleu.corpus_bleu(texts, [references]).score,
        rouge={name: math.fsum(one[name].fmeasure for one in scored) / len(scored) for name in _ROUGES},
        count_mae=math.fsum(abs(len(a) - len(b)) for a, b in zip(generated, human, strict=True)) / len(generated),
    )


def category_figures(tagged: Sequence[str | None], truth: Sequence[str]) -> list[CategoryFigures]:
    """Precision, recall and F1 of every category, one-vs-rest.

    Args:
        tagged (sequence of `str` or None): the predicted category of each item, None if it has none.
        truth (sequence of `str`): the true category of each item.

    Raises:
        SampleError: If the two sequences differ in length.
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
