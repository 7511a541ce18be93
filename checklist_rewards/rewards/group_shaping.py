"""Shaping from the items of a whole group: pure functions of a matrix of completions x items.

    >>> credits = [[1.0, 0.9], [0.0, 0.9], [1.0, 0.9], [0.0, 0.9]]  # four completions of one prompt, two items
    >>> without_variance(credits)
    [False, True]
    >>> item_zscore(credits, weights=[1.0, 3.0])
    [0.25, -0.25, 0.25, -0.25]
    >>> contrast(credits, weights=[1.0, 3.0])
    [1.0, 0.0, 1.0, 0.0]

Rows are the completions of one prompt, columns the items of its checklist. An entry is the credit of an item in [0, 1]
(see `shaping.py`; for a penalty 1 is good too), or None if it is unanswered. Each function returns one value per
completion.

An unanswered item adds nothing to its completion and changes no other one: the completion stands at the item's mean
over the completions that have an answer, so a judge failure moves no completion on this item. An item whose standard
deviation is at most `min_std` is *without variance* and carries nothing. Without that bound, standardizing would blow
up the noise of a judge on an item that all completions pass to the size of a real difference.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import fmean
from typing import NamedTuple

from checklist_rewards.validation import np

Credits = Sequence[Sequence[float | None]]
"""Completions x items."""
MIN_STD = 0.01
"""Standard deviation of credits, in [0, 0.5], up to which an item is without variance."""
_ROUNDING = 1e-9
_MIN_EIGENVALUE = 0.1


class Spread(NamedTuple):
    """The credits of one item over a group."""

    mean: float | None
    """None if no completion has an answer."""
    std: float
    """Population standard deviation; 0 for an item without variance."""


def spreads(credits: Credits, min_std: float = MIN_STD) -> list[Spread]:
    """Mean and standard deviation of each item.

    Args:
        credits (list of lists of `float` or `None`):
            Completions x items.
        min_std (`float`, *optional*, defaults to `0.01`):
            Standard deviation up to which an item is without variance.
    """
    found = []
    for column in zip(*credits, strict=True):
        known = [credit for credit in column if credit is not None]
        mean = fmean(known) if known else None
        std = math.sqrt(math.fsum((c - mean) ** 2 for c in known) / len(known)) if mean is not None else 0.0
        found.append(Spread(mean, std if std > max(min_std, _ROUNDING) else 0.0))
    return found


def without_variance(credits: Credits, min_std: float = MIN_STD) -> list[bool]:
    """Whether each item is without variance in this group: equal answers, or fewer than two."""
    return [spread.std == 0 for spread in spreads(credits, min_std)]


def item_zscore(credits: Credits, weights: Sequence[float], *, min_std: float = MIN_STD) -> list[float]:
    """Sum of standardized items: sum_k |w_k| z_gk / sum of positive w.

    z_gk = (c_gk - mean_k) / std_k over the group, so an item that few completions pass counts as much per weight as
    one that splits the group in half. This is the normalization of rubric scores in DR Tulu's training code (RLER;
    option `normalize_rubric_scores`).

    Args:
        credits (list of lists of `float` or `None`):
            Completions x items.
        weights (sequence of `float`):
            Weight of each item, as in the checklist: negative for penalties. If none is positive, the scale is sum
            |w|.
        min_std (`float`, *optional*, defaults to `0.01`):
            Standard deviation up to which an item is without variance.

    Returns:
        `list[float]`: One per completion. With every item answered, they sum to 0.
    """
    return _weighed(_zscores(credits, min_std), [abs(weight) for weight in weights], _scale(weights))


def contrast_weights(
    credits: Credits,
    weights: Sequence[float],
    categories: Sequence[Hashable] | None = None,
    *,
    min_std: float = MIN_STD,
) -> list[float]:
    """Weights that follow the variance of the items: w'_k = |w_k| v_k x (sum_j |w_j|) / (sum_j |w_j| v_j).

    v_k is the variance of item k over the group, and the sums run over the items of its category: within a category,
    weight moves to the items that tell the completions apart; between categories, the given weights stay. This
    follows the idea of POW3R (arXiv:2605.20164), contrast among rollouts with the human weights and the balance of
    categories kept; the formula is our own.

    Returns:
        `list[float]`: One per item, >= 0. 0 for items without variance; |w_k| if all variances are equal.
    """
    variances = [spread.std**2 for spread in spreads(credits, min_std)]
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


def contrast(
    credits: Credits,
    weights: Sequence[float],
    categories: Sequence[Hashable] | None = None,
    *,
    min_std: float = MIN_STD,
) -> list[float]:
    """Mean credit under [`contrast_weights`], in [0, 1]: sum_k w'_k c_gk / sum_k w'_k.

    If no item varies, every completion has the same value: the mean credit of the group under the given weights.

    Args:
        credits (list of lists of `float` or `None`):
            Completions x items.
        weights (sequence of `float`):
            Weight of each item; only its size counts, because a credit of 1 is good for penalties too.
        categories (sequence of hashables, *optional*):
            Category of each item. Defaults to one category.
        min_std (`float`, *optional*, defaults to `0.01`):
            Standard deviation up to which an item is without variance.
    """
    known = spreads(credits, min_std)
    adapted = contrast_weights(credits, weights, categories, min_std=min_std)
    varies = any(adapted)
    if not varies:
        adapted = [0.0 if spread.mean is None else abs(w) for spread, w in zip(known, weights, strict=True)]
    total = math.fsum(adapted)
    rows = [
        [s.mean or 0.0 if c is None or not varies else c for c, s in zip(row, known, strict=True)] for row in credits
    ]
    return _weighed(rows, adapted, total)


def whitened_weights(credits: Credits, weights: Sequence[float], *, min_std: float = MIN_STD) -> list[float]:
    """Weights of the standardized items after whitening: R^(-1/2) |w|, R the correlations of the items in the group.

    These are the whitened uniform weights of RRD (arXiv:2602.05125), with |w| in place of ones, for standardized
    items. Correlated items share their weight: m copies of an item count sqrt(m) times, not m times. Items that are
    not correlated keep theirs, so the result is then [`item_zscore`].

    A group has few completions, so R is noisy and may be singular: eigenvalues below 0.1 count as 0.1, and a weight
    below 0 counts as 0, so no completion is rewarded for failing an item.

    Returns:
        `list[float]`: One per item, >= 0; 0 for items without variance.
    """
    places = [place for place, spread in enumerate(spreads(credits, min_std)) if spread.std and weights[place]]
    found = [0.0] * len(weights)
    if not places:
        return found
    z = np.array([[row[place] for place in places] for row in _zscores(credits, min_std)])
    z /= np.sqrt((z**2).sum(axis=0))  # unanswered items are 0, so the sum of squares differs between items
    values, vectors = np.linalg.eigh(z.T @ z)
    sizes = np.abs(np.array([weights[place] for place in places], dtype=float))
    shared = vectors @ ((vectors.T @ sizes) / np.sqrt(np.maximum(values, _MIN_EIGENVALUE)))
    for place, weight in zip(places, shared.tolist(), strict=True):
        found[place] = max(0.0, weight)
    return found


def whitened(credits: Credits, weights: Sequence[float], *, min_std: float = MIN_STD) -> list[float]:
    """Sum of standardized items under [`whitened_weights`]: sum_k w'_k z_gk / sum of positive w.

    Args:
        credits (list of lists of `float` or `None`):
            Completions x items.
        weights (sequence of `float`):
            Weight of each item, as in the checklist; see [`item_zscore`].
        min_std (`float`, *optional*, defaults to `0.01`):
            Standard deviation up to which an item is without variance.

    Returns:
        `list[float]`: One per completion. With every item answered, they sum to 0.
    """
    return _weighed(_zscores(credits, min_std), whitened_weights(credits, weights, min_std=min_std), _scale(weights))


def _zscores(credits: Credits, min_std: float) -> list[list[float]]:
    """Standardized credits; 0 for unanswered items and for items without variance."""
    known = spreads(credits, min_std)
    return [
        [
            (credit - spread.mean) / spread.std
            if credit is not None and spread.mean is not None and spread.std
            else 0.0
            for credit, spread in zip(row, known, strict=True)
        ]
        for row in credits
    ]


def _scale(weights: Sequence[float]) -> float:
    positive = math.fsum(weight for weight in weights if weight > 0)
    return positive or math.fsum(map(abs, weights))


def _weighed(rows: Sequence[Sequence[float]], weights: Sequence[float], scale: float) -> list[float]:
    if not scale:
        return [0.0] * len(rows)
    return [math.fsum(w * x for w, x in zip(weights, row, strict=True)) / scale for row in rows]
