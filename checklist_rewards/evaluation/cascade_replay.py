"""Simulation of a judge cascade from two scored files: cost against agreement at each margin, without new reads.

    >>> curve = replay(pairs)  # doctest: +SKIP
    >>> choose(curve, tolerance=0.01).margin  # doctest: +SKIP

At each margin, reads whose cheap verdict has a smaller margin are escalated to the strong judge (the rule of
[`CascadeJudge`]). A point of the curve has the fraction of escalated reads, the cost relative to asking the strong
judge everything, and the agreement of the outcome with the truth: the labels if given, otherwise the strong judge.
Agreement is over the reads with both an outcome and a truth; `coverage` is the fraction of such reads. Targets without
an answer are left out: a judge did not read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.judges.panel import margin_of
from checklist_rewards.scores import DEFAULT_THRESHOLD, Verdict, answer_of, ratio
from checklist_rewards.validation import import_extra

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


@dataclass(frozen=True, slots=True)
class _DoubleRead:
    """One read by both judges: the margin of the cheap verdict, and whether each answer is correct.

    None: no answer or no truth. A margin of -1 is escalated at every margin (unanswered), 2 at none.
    """

    margin: float
    cheap: bool | None
    strong: bool | None


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
            truth = None if label is None else label.label
            reads.append(_double_read(item, cheap.verdict(), strong.verdict(), not by_labels, truth, threshold))
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


def plot_curve(curve: Sequence[Point], chosen: Point, path: str | Path) -> None:
    """Plot agreement against cost with the chosen margin, as a PNG file.

    Raises:
        SampleError: If matplotlib is not installed (the extra `evaluation`).
    """
    [figures] = import_extra("matplotlib.figure")

    measured = [(point.cost, point.agreement) for point in curve if point.agreement is not None]
    figure = figures.Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([cost for cost, _ in measured], [agreement for _, agreement in measured], ".-", color="C0")
    if chosen.agreement is not None:
        axes.plot(chosen.cost, chosen.agreement, "o", color="C1", label=f"margin {chosen.margin:.2f}")
    axes.set(xlabel="cost (1 = the strong judge alone)", ylabel="agreement", title="Simulated cascade")
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150, format="png")


def _double_read(
    item: ChecklistItem, cheap: Verdict, strong: Verdict, by_strong: bool, label: str | None, threshold: float
) -> _DoubleRead:
    first, second = (
        None if verdict.unanswered is not None else answer_of(item, verdict, threshold) for verdict in (cheap, strong)
    )
    true = second if by_strong else label
    # Unanswered reads are always escalated; answers without probabilities never.
    margin = -1.0 if first is None else margin_of(cheap)
    return _DoubleRead(
        2.0 if margin is None else margin,
        None if first is None or true is None else first == true,
        None if second is None or true is None else second == true,
    )


def _point(reads: Sequence[_DoubleRead], margin: float, cheap_cost: float) -> Point:
    escalated = sum(read.margin < margin or read.margin < 0 for read in reads) / len(reads)
    outcomes = [_outcome(read, margin) for read in reads]
    covered = [outcome for outcome in outcomes if outcome is not None]
    agreement = ratio(sum(covered), len(covered))
    return Point(margin, escalated, cheap_cost + escalated, agreement, len(covered) / len(reads))


def _outcome(read: _DoubleRead, margin: float) -> bool | None:
    if 0 <= read.margin and read.margin >= margin:
        return read.cheap
    return read.cheap if read.strong is None else read.strong
