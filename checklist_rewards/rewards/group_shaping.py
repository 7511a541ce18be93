"""Shaping from the items of a whole group: steps that compare the completions of one prompt item by item.

    >>> credits = [[1.0, 0.9], [0.0, 0.9], [1.0, 0.9], [0.0, 0.9]]  # four completions of one prompt, two items
    >>> [spread.std for spread in spreads(credits)]
    [0.5, 0.0]
    >>> ItemZscore().shaped(credits, weights=[1.0, 3.0])
    [0.25, -0.25, 0.25, -0.25]
    >>> Contrast().shaped(credits, weights=[1.0, 3.0])
    [1.0, 0.0, 1.0, 0.0]

Rows are the completions of one prompt, columns the items of its checklist. An entry is the credit of an item in [0, 1]
(see `shaping.py`; for a penalty 1 is good too), or None if it is unanswered: the completion then stands at the item's
mean over the group, so a judge failure moves no completion on this item. An item whose standard deviation is at most
`min_std` is *without variance* and carries nothing; standardizing would blow up the noise of a judge on an item that
all completions pass to the size of a real difference.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field
from typing_extensions import override

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.batch import Call, Rewards
from checklist_rewards.rewards.ranks import from_other_ranks
from checklist_rewards.rewards.shaping import ShapingStep
from checklist_rewards.scores import Answers, item_credits
from checklist_rewards.validation import np

Credits = Sequence[Sequence[float | None]]
"""Completions x items."""
MIN_STD = 0.01
"""Standard deviation of credits, in [0, 0.5], up to which an item is without variance."""
WITHOUT_VARIANCE = "items_without_variance"
"""Metric of the steps that shape items across a group: the share of items, over all groups, without variance."""
_ROUNDING = 1e-9
_MIN_EIGENVALUE = 0.1


class Spread(NamedTuple):
    """The credits of one item over a group."""

    mean: float
    """0 if no completion has an answer."""
    std: float
    """Population standard deviation; 0 for an item without variance: equal answers, or fewer than two."""
    answered: bool


def spreads(credits: Credits, min_std: float = MIN_STD) -> list[Spread]:
    """Mean and standard deviation of each item."""
    found = []
    for column in zip(*credits, strict=True):
        known = [credit for credit in column if credit is not None]
        mean = fmean(known) if known else 0.0
        std = math.sqrt(math.fsum((c - mean) ** 2 for c in known) / len(known)) if known else 0.0
        found.append(Spread(mean, std if std > max(min_std, _ROUNDING) else 0.0, bool(known)))
    return found


class ItemsAcrossGroup(ShapingStep):
    """Base class of the steps that replace the value by one computed from the items of all completions of the prompt,
    on all ranks. Required items are not gates in it. Completions without a value are left out."""

    by_group: ClassVar[bool] = True
    answers: Answers = "soft"
    min_std: float = Field(default=MIN_STD, ge=0)
    """Standard deviation of an item's credits, in [0, 0.5], up to which it is without variance and carries nothing."""

    def shaped(
        self, credits: Credits, weights: Sequence[float], categories: Sequence[Hashable] | None = None
    ) -> list[float]:
        """The values of one group, one per completion, from credits (completions x items), and the weight and the
        category of each item."""
        raise NotImplementedError

    def zscores(self, credits: Credits) -> list[list[float]]:
        """Standardized credits; 0 for unanswered items and for items without variance."""
        known = spreads(credits, self.min_std)
        return [
            [
                0.0 if credit is None or not spread.std else (credit - spread.mean) / spread.std
                for credit, spread in zip(row, known, strict=True)
            ]
            for row in credits
        ]

    @override
    def __call__(self, call: Call) -> Call:
        groups = call.groups
        rows = [
            None if v is None or s is None or score is None else item_credits(s.checklist, score, self.answers)
            for v, s, score in zip(call.rewards, call.samples, call.scores, strict=True)
        ]
        mine = [*zip(groups, rows, call.checklist_ids, strict=True)]
        others = from_other_ranks(mine)
        self._same_items((group, checklist) for group, row, checklist in [*mine, *others] if row is not None)
        values: Rewards = [None] * len(rows)
        metrics: list[tuple[str, float]] = []
        for group in dict.fromkeys(groups):
            places = [place for place, row in enumerate(rows) if row is not None and groups[place] == group]
            checklist = next((s.checklist for place in places if (s := call.samples[place]) is not None), None)
            if checklist is None:
                continue
            # The values of other ranks come last; their ranks compute them too, from the same rows in another order.
            credits = [row for one, row, _ in [*mine, *others] if row is not None and one == group]
            weights, categories = zip(*((item.weight, item.category) for item in checklist.items), strict=True)
            for place, value in zip(places, self.shaped(credits, weights, categories), strict=False):
                values[place] = value
            stds = [spread.std for spread in spreads(credits, self.min_std)]
            metrics += [(WITHOUT_VARIANCE, float(not s)) for s, w in zip(stds, weights, strict=True) if w]
        return call.staged(self.name, values, metrics)

    def _same_items(self, asked: Iterable[tuple[str, str | None]]) -> None:
        """Refuse groups whose completions have different checklists, which environments may write."""
        checklist_of: dict[str, str | None] = {}
        for group, checklist in asked:
            if checklist_of.setdefault(group, checklist) != checklist:
                raise SampleError(
                    f"shaping step {self.name!r} compares items across a group, but completions of one group have "
                    "different checklists; use 'centred', or give all completions of a row the same checklist."
                )


class ItemZscore(ItemsAcrossGroup):
    """Replace the value by the weighted sum of items standardized in the group: sum_k |w_k| z_gk / sum of positive w.

    z_gk = (c_gk - mean_k) / std_k over the group, so an item that few completions pass counts as much per weight as
    one that splits the group in half. If no weight is positive, the scale is sum |w|. With every item answered, the
    values of a group sum to 0. This is the normalization of rubric scores in DR Tulu's training code (RLER; option
    `normalize_rubric_scores`).
    """

    name: Literal["item_zscore"] = "item_zscore"

    @override
    def shaped(
        self, credits: Credits, weights: Sequence[float], categories: Sequence[Hashable] | None = None
    ) -> list[float]:
        return _weighed(self.zscores(credits), [abs(weight) for weight in weights], _scale(weights))


class Contrast(ItemsAcrossGroup):
    """Replace the value by the mean credit under weights that follow the items' variance, in [0, 1]:
    sum_k w'_k c_gk / sum_k w'_k.

    If no item varies, every completion has the same value: the mean credit of the group under the given weights.
    """

    name: Literal["contrast"] = "contrast"

    @override
    def shaped(
        self, credits: Credits, weights: Sequence[float], categories: Sequence[Hashable] | None = None
    ) -> list[float]:
        known = spreads(credits, self.min_std)
        adapted = self.weights(credits, weights, categories)
        varies = any(adapted)
        if not varies:
            adapted = [abs(w) if spread.answered else 0.0 for spread, w in zip(known, weights, strict=True)]
        rows = [
            [spread.mean if c is None or not varies else c for c, spread in zip(row, known, strict=True)]
            for row in credits
        ]
        return _weighed(rows, adapted, math.fsum(adapted))

    def weights(
        self, credits: Credits, weights: Sequence[float], categories: Sequence[Hashable] | None = None
    ) -> list[float]:
        """Weights that follow the variance of the items: w'_k = |w_k| v_k x (sum_j |w_j|) / (sum_j |w_j| v_j).

        v_k is the variance of item k over the group, and the sums run over the items of its category: within a
        category, weight moves to the items that tell the completions apart; between categories, the given weights
        stay. This follows the idea of POW3R (arXiv:2605.20164), contrast among rollouts with the human weights and the
        balance of categories kept; the formula is our own. A weight is 0 without variance, and |w_k| if all variances
        are equal.
        """
        variances = [spread.std**2 for spread in spreads(credits, self.min_std)]
        kinds = categories or [None] * len(weights)
        prior: dict[Hashable, float] = {}
        varying: dict[Hashable, float] = {}
        for weight, variance, kind in zip(weights, variances, kinds, strict=True):
            prior[kind] = prior.get(kind, 0.0) + abs(weight)
            varying[kind] = varying.get(kind, 0.0) + abs(weight) * variance
        return [
            abs(weight) * variance * prior[kind] / varying[kind] if varying[kind] else 0.0
            for weight, variance, kind in zip(weights, variances, kinds, strict=True)
        ]


class Whitened(ItemsAcrossGroup):
    """Replace the value by the sum of standardized items in which correlated items share their weight:
    sum_k w'_k z_gk / sum of positive w, with the scale of [`ItemZscore`]. With every item answered, the values of a
    group sum to 0."""

    name: Literal["whitened"] = "whitened"

    @override
    def shaped(
        self, credits: Credits, weights: Sequence[float], categories: Sequence[Hashable] | None = None
    ) -> list[float]:
        return _weighed(self.zscores(credits), self.weights(credits, weights), _scale(weights))

    def weights(self, credits: Credits, weights: Sequence[float]) -> list[float]:
        """Weights of the standardized items after whitening: R^(-1/2) |w|, R the correlations of the items.

        These are the whitened uniform weights of RRD (arXiv:2602.05125), with |w| in place of ones, for standardized
        items. Correlated items share their weight: m copies of an item count sqrt(m) times, not m times. Items that
        are not correlated keep theirs, so the result is then [`ItemZscore`].

        A group has few completions, so R is noisy and may be singular: eigenvalues below 0.1 count as 0.1, and a
        weight below 0 counts as 0, so no completion is rewarded for failing an item. It is 0 without variance.
        """
        places = [p for p, spread in enumerate(spreads(credits, self.min_std)) if spread.std and weights[p]]
        found = [0.0] * len(weights)
        if not places:
            return found
        z = np.array([[row[place] for place in places] for row in self.zscores(credits)])
        z /= np.sqrt((z**2).sum(axis=0))  # unanswered items are 0, so the sum of squares differs between items
        values, vectors = np.linalg.eigh(z.T @ z)
        sizes = np.abs(np.array([weights[place] for place in places], dtype=float))
        shared = vectors @ ((vectors.T @ sizes) / np.sqrt(np.maximum(values, _MIN_EIGENVALUE)))
        for place, weight in zip(places, shared.tolist(), strict=True):
            found[place] = max(0.0, weight)
        return found


def _scale(weights: Sequence[float]) -> float:
    positive = math.fsum(weight for weight in weights if weight > 0)
    return positive or math.fsum(map(abs, weights))


def _weighed(rows: Sequence[Sequence[float]], weights: Sequence[float], scale: float) -> list[float]:
    if not scale:
        return [0.0] * len(rows)
    return [math.fsum(w * x for w, x in zip(weights, row, strict=True)) / scale for row in rows]
