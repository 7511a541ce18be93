"""Replay of a cascade: which margin is worth its price, found from two judges' answers without asking anybody.

    >>> curve = replay([checklist.items for checklist in checklists], cheap_scores, strong_scores)
    >>> choose(curve, tolerance=0.01).margin  # doctest: +SKIP

For every margin the cascade is replayed: reads whose cheap verdict is less sure go to the strong judge (the rule is
[`CascadeJudge`]'s own). A point of the curve says what share of the reads went on, what that costs relative to asking
the strong judge everything, and how often the outcome agrees with the truth: labels, where there are any, else the
strong judge. Agreement is over the reads that have both an outcome and a truth; the others are in `coverage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.cascade import margin_of
from checklist_rewards.scores import DEFAULT_THRESHOLD, Score, Verdict, answer_of, ratio
from checklist_rewards.validation import import_extra

MARGINS = tuple(step / 50 for step in range(51))
DEFAULT_TOLERANCE = 0.01

Labels = Sequence[Sequence[str | None] | None]
"""Per target, the true answer of every item in order; None where there is none."""


@dataclass(frozen=True, slots=True)
class Point:
    """The cascade at one margin."""

    margin: float
    escalated: float
    """Share of the reads that went on, in [0, 1]."""
    cost: float
    """Of the cascade, as a multiple of asking the strong judge everything."""
    agreement: float | None
    """Share of the covered reads whose outcome is the true one; None where nothing is covered."""
    coverage: float
    """Share of the reads that have an outcome and a truth."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """One read by both judges: how sure the cheap one was, and whether each is right (None: no answer or no truth)."""

    margin: float
    cheap: bool | None
    strong: bool | None


def replay(
    items: Sequence[Sequence[ChecklistItem]],
    cheap: Sequence[Score],
    strong: Sequence[Score],
    labels: Labels | None = None,
    *,
    cheap_cost: float = 0.0,
    margins: Sequence[float] = MARGINS,
    threshold: float = DEFAULT_THRESHOLD,
) -> list[Point]:
    """The curve of a cascade of two judges.

    Args:
        items (sequence of sequences of [`ChecklistItem`]): those of each target.
        cheap, strong (sequences of [`Score`]): of the same targets, in the same order, by the two judges.
        labels (sequence, *optional*): the truth; without it the strong judge's answers are.
        cheap_cost (`float`, *optional*, defaults to `0`): of a cheap read, as a multiple of a strong one.
        margins (sequence of `float`, *optional*): to try, in [0, 1]; every 0.02 by default.
        threshold (`float`, *optional*): yes from this P(yes) up.

    Raises:
        SampleError: where the scores are not of the same targets and items.
    """
    if not len(items) == len(cheap) == len(strong) or (labels is not None and len(labels) != len(cheap)):
        counts = [len(items), len(cheap), len(strong), *([] if labels is None else [len(labels)])]
        raise SampleError(f"items, scores and labels must be of the same targets, got {counts}.")
    pairs: list[_Pair] = []
    for number, (asked, one, two) in enumerate(zip(items, cheap, strong, strict=True), start=1):
        ids = [item.id for item in asked]
        if [line.id for line in one.items] != ids or [line.id for line in two.items] != ids:
            raise SampleError(f"target {number}: the two judges were not asked the same items.")
        truth: Sequence[str | None] | None = None
        if labels is not None:
            truth = labels[number - 1] or [None] * len(asked)
        for place, (item, first, second) in enumerate(zip(asked, one.items, two.items, strict=True)):
            answers = first.verdict(), second.verdict()
            pairs.append(_pair(item, *answers, truth is None, truth[place] if truth else None, threshold))
    if not pairs:
        raise SampleError("there is no read to replay.")
    return [_point(pairs, margin, cheap_cost) for margin in margins]


def choose(curve: Sequence[Point], *, tolerance: float = DEFAULT_TOLERANCE) -> Point:
    """The cheapest point whose agreement is at most `tolerance` below the best one's.

    Raises:
        SampleError: if no point has an agreement.
    """
    known = [(point.agreement, point) for point in curve if point.agreement is not None]
    if not known:
        raise SampleError("no margin can be chosen: no read has both an outcome and a truth.")
    least = max(agreement for agreement, _ in known) - tolerance
    return min((point for agreement, point in known if agreement >= least), key=lambda point: point.cost)


def plot_curve(curve: Sequence[Point], chosen: Point, path: str | Path) -> None:
    """Cost against agreement, with the chosen margin, as a PNG image.

    Raises:
        SampleError: without matplotlib (the extra `evaluation`).
    """
    [figures] = import_extra("matplotlib.figure")

    known = [(point.cost, point.agreement) for point in curve if point.agreement is not None]
    figure = figures.Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([cost for cost, _ in known], [agreement for _, agreement in known], ".-", color="C0")
    if chosen.agreement is not None:
        axes.plot(chosen.cost, chosen.agreement, "o", color="C1", label=f"margin {chosen.margin:.2f}")
    axes.set(xlabel="cost (1 = the strong judge alone)", ylabel="agreement", title="Cascade, replayed")
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150, format="png")


def as_rows(curve: Sequence[Point]) -> list[dict[str, float | None]]:
    """The curve as plain data."""
    return [asdict(point) for point in curve]


def _pair(
    item: ChecklistItem, cheap: Verdict, strong: Verdict, by_strong: bool, label: str | None, threshold: float
) -> _Pair:
    first, second = (
        None if verdict.unanswered is not None else answer_of(item, verdict, threshold) for verdict in (cheap, strong)
    )
    true = second if by_strong else label
    # What is not answered goes on at any margin, a plain word at none.
    margin = -1.0 if first is None else margin_of(cheap)
    return _Pair(
        2.0 if margin is None else margin,
        None if first is None or true is None else first == true,
        None if second is None or true is None else second == true,
    )


def _point(pairs: Sequence[_Pair], margin: float, cheap_cost: float) -> Point:
    escalated = sum(pair.margin < margin or pair.margin < 0 for pair in pairs)
    outcomes = [_outcome(pair, margin) for pair in pairs]
    right = [outcome for outcome in outcomes if outcome is not None]
    share = escalated / len(pairs)
    return Point(margin, share, cheap_cost + share, ratio(sum(right), len(right)), len(right) / len(pairs))


def _outcome(pair: _Pair, margin: float) -> bool | None:
    if 0 <= pair.margin and pair.margin >= margin:
        return pair.cheap
    return pair.cheap if pair.strong is None else pair.strong
