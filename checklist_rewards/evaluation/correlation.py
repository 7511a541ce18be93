"""Correlations of two columns of numbers, by numpy and scipy, with what is undefined told apart from 0."""

from __future__ import annotations

from checklist_rewards.validation import import_extra, np


def correlation(one: np.ndarray, other: np.ndarray, least: int = 2) -> float | None:
    """Pearson's r; None for fewer than `least` pairs or if a side is constant."""
    # Not by scipy, whose p-values take most of the time: a file can have tens of thousands of pairs of items.
    if len(one) < least or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1.0, 1.0))


def tau(one: np.ndarray, other: np.ndarray) -> float:
    """Kendall's tau-b of two rankings of the same units; NaN if one of them is constant."""
    [stats] = import_extra("scipy.stats")
    # The p-value is not used, and "asymptotic" is its cheapest method; that method fails for two units.
    method = "asymptotic" if len(one) > 2 else "exact"
    return float(stats.kendalltau(one, other, method=method).statistic)


def standardized(values: np.ndarray) -> np.ndarray:
    """The values with mean 0 and standard deviation 1; all 0 if they are equal."""
    return (values - values.mean()) / (values.std() or 1.0)
