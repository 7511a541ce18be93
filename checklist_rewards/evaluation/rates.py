"""Rates that one can trust: what a judge says about many texts, corrected by the labels of a few.

A judged pass rate has an error that no number of texts makes smaller: that of the judge. Prediction-powered inference
measures it on labelled units. With judged values f and labels y, both in [0, 1], the corrected rate is

    rate = lambda * mean of f over the unlabelled + mean of (y - lambda f) over the labelled

which is unbiased for every lambda, whatever the judge does. lambda is that of PPI++ (Angelopoulos, Duchi and Zrnic
2023, arXiv:2311.01453), cov(y, f) / (var(f) (1 + n / N)) on the n labelled of N other units, clipped to [0, 1]. With a
useless judge it is 0, and the rate is that of the labels alone.

Units of a group are not independent, so the variance is that of sums per group, and the interval has the t
distribution with one degree of freedom fewer than there are labelled groups.

The labelled units must be a random sample. If the judge's values on them differ from those on the others by more than
chance (p below 0.01), the labels are of another kind and the rate is not corrected.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement.measures import CONFIDENCE, Figure, group_codes
from checklist_rewards.evaluation.agreement.scored import JudgedRow, RowLabels, answer_given
from checklist_rewards.validation import import_extra, np

MIN_LABELLED, MIN_GROUPS = 20, 10
"""A rate with fewer labels, or labels of fewer groups, is not corrected."""
SHIFT_P = 0.01
ALL, TARGETS = "all items", "targets"


@dataclass(frozen=True)
class Rate:
    """A rate by the judge, by the labels alone, and by the judge corrected by the labels; all in [0, 1]."""

    name: str
    judged_units: int
    labelled_units: int
    judged: Figure
    """Of all units. Its interval holds for the judge's own opinion, not for the truth."""
    labelled: Figure
    corrected: Figure
    """None, with the reason in `refused`, if the labels do not allow it."""
    weight: float | None
    """lambda: 0 if the judge is not used."""
    shift_p: float | None
    """Two-sided p-value of the difference of the judge's values on labelled and other units."""
    refused: str | None = None

    def dumped(self) -> dict[str, Any]:
        """The rate as JSON."""
        figures = {name: getattr(self, name).model_dump() for name in ("judged", "labelled", "corrected")}
        return {each.name: getattr(self, each.name) for each in fields(self)} | figures


def corrected_rate(
    judged: Sequence[float], labels: Sequence[float | None], groups: Sequence[Hashable], name: str = ALL
) -> Rate:
    """Correct a judged rate by labels.

    Args:
        judged (sequence of `float`): the judge's value of every unit, in [0, 1].
        labels (sequence of `float` or None, one per unit): the true value, None for an unlabelled unit.
        groups (sequence, one per unit): units of a group are dependent.
        name (`str`, *optional*): name of the rate.

    Raises:
        SampleError: If there are no units.
    """
    if not len(judged):
        raise SampleError(f"{name}: no judged unit, so there is no rate.")
    f, codes = np.asarray(judged, dtype=float), group_codes(groups)
    known = np.array([label is not None for label in labels])
    y = np.array([math.nan if label is None else label for label in labels], dtype=float)
    n, others = int(known.sum()), int((~known).sum())
    clusters = len(np.unique(codes[known]))
    by_judge = _figure(f.mean(), (f - f.mean()) / len(f), codes, len(np.unique(codes)))
    nothing = Figure(value=None)
    if n < MIN_LABELLED or clusters < MIN_GROUPS:
        reason = f"{n} labels in {clusters} groups; at least {MIN_LABELLED} in {MIN_GROUPS} are needed"
        own = _figure(float(y[known].mean()), _part(y, known), codes, clusters) if n else nothing
        return Rate(name, len(f), n, by_judge, own, nothing, None, None, reason)
    by_labels = _figure(float(y[known].mean()), _part(y, known), codes, clusters)
    if not others:
        return Rate(name, len(f), n, by_judge, by_labels, by_labels, 0.0, None)
    p = _shift(f, known, codes, clusters)
    if p < SHIFT_P:
        reason = (
            f"the judge's values on labelled units differ from those on the others ({f[known].mean():.3f} and "
            f"{f[~known].mean():.3f}, p = {p:.2g}): the labels are not a random sample"
        )
        return Rate(name, len(f), n, by_judge, by_labels, nothing, None, p, reason)
    spread = np.cov(y[known], f[known])
    weight = float(np.clip(spread[0, 1] / (spread[1, 1] * (1 + n / others)), 0, 1)) if spread[1, 1] > 0 else 0.0
    residual = np.where(known, y - weight * f, 0.0)
    rate = weight * f[~known].mean() + residual[known].mean()
    parts = _part(residual, known) + weight * _part(f, ~known)
    return Rate(name, len(f), n, by_judge, by_labels, _figure(float(rate), parts, codes, clusters), weight, p)


def corrected_rates(rows: Sequence[JudgedRow], labels: Sequence[RowLabels]) -> list[Rate]:
    """The rates of scored rows of which some are labelled: of all items, of every item with enough labels, and of the
    targets.

    The value of an item is that of its answer for the score, for a penalty as it is answered (1 is yes). Targets need
    labels in [0, 1].

    Args:
        rows (sequence of [`JudgedRow`]): the scored rows.
        labels (sequence, one per row): from [`labels_of`].
    """
    units: dict[str, list[tuple[float, float | None, str]]] = {}
    targets: list[tuple[float, float | None, str]] = []
    for row, given in zip(rows, labels, strict=True):
        if row.score.no_answer:
            continue
        if row.score.primary_score is not None and not isinstance(given, list):
            targets.append((row.score.primary_score, given, row.group))
        for place, (key, item, line) in enumerate(zip(row.keys, row.items, row.score.items, strict=True)):
            answer = answer_given(item, line)
            if answer is None or answer.soft is None:
                continue
            label = given[place] if isinstance(given, list) else None
            unit = (answer.soft, None if label is None else label.value, row.group)
            for name in dict.fromkeys((ALL, item.question if key == item.id else f"{item.question} ({key})")):
                units.setdefault(name, []).append(unit)
    enough = {
        name: some for name, some in units.items() if sum(label is not None for _, label, _ in some) >= MIN_LABELLED
    }
    if len(enough) == 2:
        enough.pop(ALL)  # the only item is all items
    if any(label is not None and 0 <= label <= 1 for _, label, _ in targets):
        enough[TARGETS] = targets
    return [
        corrected_rate([f for f, _, _ in some], [y for _, y, _ in some], [group for _, _, group in some], name)
        for name, some in enough.items()
    ]


def _part(values: np.ndarray, use: np.ndarray) -> np.ndarray:
    """Every unit's part of the error of a mean over some of the units."""
    return np.where(use, values - values[use].mean(), 0.0) / use.sum()


def _figure(value: float, parts: np.ndarray, codes: np.ndarray, clusters: int) -> Figure:
    """A mean with the interval of its parts, summed by group, within [0, 1]."""
    if clusters < 2:
        return Figure(value=float(value))
    half = _quantile(clusters) * _error(parts, codes, clusters)
    return Figure(value=float(value), low=max(0.0, float(value - half)), high=min(1.0, float(value + half)))


def _error(parts: np.ndarray, codes: np.ndarray, clusters: int) -> float:
    return math.sqrt(clusters / (clusters - 1) * float((np.bincount(codes, parts) ** 2).sum()))


def _quantile(clusters: int) -> float:
    [stats] = import_extra("scipy.stats")
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, clusters - 1))


def _shift(f: np.ndarray, known: np.ndarray, codes: np.ndarray, clusters: int) -> float:
    [stats] = import_extra("scipy.stats")
    error = _error(_part(f, known) - _part(f, ~known), codes, clusters)
    difference = abs(f[known].mean() - f[~known].mean())
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stats.t.sf(difference / error, clusters - 1))
