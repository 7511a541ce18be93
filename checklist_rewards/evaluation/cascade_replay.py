"""Simulation of a judge cascade from two scored files: cost against agreement at each margin, without new reads.

At each margin, reads whose cheap verdict has a smaller margin are escalated to the strong judge (the rule of
[`CascadeJudge`]). The truth is the labels if given, otherwise the strong judge. Targets without an answer are left
out: a judge did not read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import plot
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.judges.panel import margin_of
from checklist_rewards.scores import DEFAULT_THRESHOLD, answer_of, ratio

MARGINS = tuple(step / 50 for step in range(51))
DEFAULT_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Point:
    """The cascade at one margin."""

    margin: float
    escalated: float
    """Fraction of the reads escalated to the strong judge, in [0, 1]."""
    cost: float
    """Cost of the cascade as a multiple of asking the strong judge everything."""
    agreement: float | None
    """Fraction of the covered reads whose outcome equals the truth; None if no read is covered."""
    coverage: float
    """Fraction of the reads that have both an outcome and a truth."""


_DoubleRead = tuple[float, bool | None, bool | None]
"""One read by both judges: the margin of the cheap verdict, and whether the cheap and the strong answer are correct.
None: no answer or no truth. An unanswered read has the margin -inf and is escalated at every margin, an answer without
probabilities has inf and is escalated at none."""


def replay(
    pairs: Sequence[tuple[ScoredText, ScoredText]],
    *,
    by_labels: bool = False,
    cheap_cost: float = 0.0,
    margins: Sequence[float] = MARGINS,
    threshold: float = DEFAULT_THRESHOLD,
) -> list[Point]:
    """Compute the cost-agreement curve of a cascade of two judges.

    Args:
        pairs (sequence of pairs of [`ScoredText`]): the same texts, scored by the cheap and by the strong judge.
        by_labels (`bool`, *optional*, defaults to `False`): the truth are the labels of the first texts, one per
            item, instead of the answers of the strong judge.
        cheap_cost (`float`, *optional*, defaults to `0`): cost of a cheap read as a multiple of a strong read.
        margins (sequence of `float`, *optional*): margins to evaluate, in [0, 1]. Defaults to steps of 0.02.
        threshold (`float`, *optional*, defaults to `0.6`): an answer is yes if P(yes) is at least this.

    Returns:
        `list[Point]`: One point per margin.

    Raises:
        SampleError: If the scores of a pair do not have the same items.
    """
    reads: list[_DoubleRead] = []
    for number, (one, other) in enumerate(pairs, start=1):
        first, second = one.judged, other.judged
        if [line.id for line in first.items] != [line.id for line in second.items]:
            raise SampleError(f"target {number}: the two scores do not have the same items.")
        if first.no_answer or second.no_answer:
            continue
        labels = one.labels if isinstance(one.labels, Sequence) else [None] * len(one.items)
        for item, cheap, strong, label in zip(one.items, first.items, second.items, labels, strict=True):
            if cheap.by_code or strong.by_code:  # no judge reads it in a cascade
                continue
            verdicts = cheap.verdict(), strong.verdict()
            answers = [None if each.unanswered is not None else answer_of(item, each, threshold) for each in verdicts]
            truth = answers[1] if not by_labels else None if label is None else label.label
            margin = -math.inf if answers[0] is None else margin_of(verdicts[0])
            right = [None if answer is None or truth is None else answer == truth for answer in answers]
            reads.append((math.inf if margin is None else margin, right[0], right[1]))
    if not reads:
        raise SampleError("the scores have no items that a judge has read, so there is nothing to simulate.")
    return [_point(reads, margin, cheap_cost) for margin in margins]


def choose(curve: Sequence[Point], *, tolerance: float = DEFAULT_TOLERANCE) -> Point:
    """The cheapest point whose agreement is at most `tolerance` below the best.

    Raises:
        SampleError: If no point has an agreement.
    """
    measured = [(point.agreement, point) for point in curve if point.agreement is not None]
    if not measured:
        raise SampleError("no margin can be chosen: no read has both an outcome and a truth.")
    least = max(agreement for agreement, _ in measured) - tolerance
    return min((point for agreement, point in measured if agreement >= least), key=lambda point: point.cost)


def plot_curve(curve: Sequence[Point], chosen: Point, path: Path) -> None:
    """Plot agreement against cost with the margin that [`choose`] chose, as a PNG file.

    Raises:
        SampleError: If matplotlib is not installed (the extra `evaluation`).
    """
    measured = [(point.cost, point.agreement) for point in curve if point.agreement is not None]
    with plot(path, (6, 4), dpi=150) as axes:
        axes.plot([cost for cost, _ in measured], [agreement for _, agreement in measured], ".-", color="C0")
        axes.plot(chosen.cost, chosen.agreement, "o", color="C1", label=f"margin {chosen.margin:.2f}")
        axes.set(xlabel="cost (1 = the strong judge alone)", ylabel="agreement", title="Simulated cascade")
        axes.legend(loc="lower right", frameon=False)
        axes.spines[["top", "right"]].set_visible(False)


def _point(reads: Sequence[_DoubleRead], margin: float, cheap_cost: float) -> Point:
    escalated = sum(own < margin for own, _, _ in reads) / len(reads)
    outcomes = [strong if own < margin and strong is not None else cheap for own, cheap, strong in reads]
    covered = [outcome for outcome in outcomes if outcome is not None]
    return Point(
        margin, escalated, cheap_cost + escalated, ratio(sum(covered), len(covered)), len(covered) / len(reads)
    )
