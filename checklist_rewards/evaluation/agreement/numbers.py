"""Agreement of two raters on numbers: correlations, errors, and the distance of their distributions.

All figures are computed from weights, on values sorted once; Kendall's tau is scipy's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from typing_extensions import override

from checklist_rewards.evaluation.agreement.bootstrap import Measure, over, weighted_mean
from checklist_rewards.validation import import_extra, np


class Numbers(Measure):
    """Agreement of two raters' numbers for the same units.

    Args:
        one, other (sequence of `float`, equally long): the numbers of each rater.

    Figures:
        pearson, spearman, kendall (tau-b): None if a rater is constant or there are fewer than two units.
        rmse, mae: of `one - other`.
        bias: mean of `one - other`.
        emd: earth mover's distance of the two distributions (Wasserstein-1), in the unit of the numbers.
        ks: largest distance of the two cumulative distributions (Kolmogorov-Smirnov), in [0, 1].
        auc: area under the ROC curve: the probability that `one` ranks a unit labelled 1 by `other` above a unit
            labelled 0, ties counted half. None unless `other` contains both 0 and 1 and no other values.
    """

    def __init__(self, one: Sequence[float], other: Sequence[float]):
        self.one, self.other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
        self._grid, codes = np.unique(np.concatenate([self.one, self.other]), return_inverse=True)
        self._one, self._other = codes[: len(self.one)], codes[len(self.one) :]
        self._gaps = np.diff(self._grid)
        self._binary = bool(len(self.other)) and bool(np.isin(self.other, (0.0, 1.0)).all())

    @override
    def __len__(self) -> int:
        return len(self.one)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        size, total = len(self._grid), weights.sum()
        counts = [np.bincount(codes, weights, size) for codes in (self._one, self._other)]
        cumulative = [np.cumsum(count) for count in counts]
        gaps = np.abs(cumulative[0] - cumulative[1])[:-1] / total
        error = self.one - self.other
        varied = all(np.count_nonzero(count) > 1 for count in counts)
        ranks = [above - (count - 1) / 2 for above, count in zip(cumulative, counts, strict=True)]
        return {
            "pearson": _correlation(self.one, self.other, weights) if varied else math.nan,
            "spearman": _correlation(ranks[0][self._one], ranks[1][self._other], weights) if varied else math.nan,
            "kendall": self._kendall(weights) if varied else math.nan,
            "rmse": math.sqrt(weighted_mean(error**2, weights)),
            "mae": weighted_mean(np.abs(error), weights),
            "bias": weighted_mean(error, weights),
            "emd": float(gaps @ self._gaps),
            "ks": float(gaps.max(initial=0)),
            "auc": self._auc(weights) if self._binary else math.nan,
        }

    def _kendall(self, weights: np.ndarray) -> float:
        units = np.repeat(np.arange(len(weights)), weights)
        return tau(self._one[units], self._other[units])

    def _auc(self, weights: np.ndarray) -> float:
        positive = weights * self.other
        above = np.bincount(self._one, positive, len(self._grid))
        below = np.bincount(self._one, weights - positive, len(self._grid))
        return over(above @ (np.cumsum(below) - below / 2), above.sum() * below.sum())


class Mean(Measure):
    """The mean of some numbers as a figure with a given name; of booleans, the fraction that is true."""

    def __init__(self, name: str, values: Sequence[float | bool] | np.ndarray):
        self.name, self.values = name, np.asarray(values, dtype=float)

    @override
    def __len__(self) -> int:
        return len(self.values)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        return {self.name: weighted_mean(self.values, weights)}


def tau(one: np.ndarray, other: np.ndarray) -> float:
    """Kendall's tau-b of two rankings of the same units; NaN if one of them is constant."""
    [stats] = import_extra("scipy.stats")
    # The p-value is not used, and "asymptotic" is its cheapest method; that method fails for two units.
    method = "asymptotic" if len(one) > 2 else "exact"
    return float(stats.kendalltau(one, other, method=method).statistic)


def _correlation(one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> float:
    one, other = (side - weighted_mean(side, weights) for side in (one, other))
    spread = math.sqrt((weights @ one**2) * (weights @ other**2))
    return max(-1.0, min(over(weights @ (one * other), spread), 1.0)) if spread > 0 else math.nan
