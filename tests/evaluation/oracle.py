"""The figures of agreement, computed in another way than the package does. None where a figure is undefined.

What the package takes from libraries is computed from its formula, as the package did before; what it computes itself
(precision, recall, F1 and phi) is scikit-learn's. `weights` counts units, as the bootstrap does.
"""

import math

import numpy as np
import pytest

metrics = pytest.importorskip("sklearn.metrics")
RATES = ("precision", "recall", "f1")


def of_categories(one, other, values, positive=None, weights=None):
    """The figures of `Categories`."""
    labels, size = list(values), len(values)
    codes = [np.array([labels.index(label) for label in side], dtype=np.int64) for side in (one, other)]
    table = np.bincount(codes[0] * size + codes[1], weights, size * size).reshape(size, size)
    valued = [place for place, label in enumerate(labels) if values[label] is not None]
    numbers = np.array([values[labels[place]] for place in valued], dtype=float)
    squares, different = np.subtract.outer(numbers, numbers) ** 2, 1 - np.eye(size)
    both_valued = table[np.ix_(valued, valued)]
    figures = {
        "accuracy": _over(np.trace(table), table.sum()),
        "kappa": _kappa(table, different),
        "weighted_kappa": _kappa(both_valued, squares),
        "alpha": _alpha_of_table(table, different),
        "interval_alpha": _alpha_of_table(both_valued, squares),
    }
    if positive is not None:
        figures |= _against_labels(*(codes[side] == labels.index(positive) for side in (1, 0)), weights)
        if size != 2:
            figures["phi"] = None
    return figures


def _against_labels(true, judged, weights):
    """Precision, recall, F1 and phi; scikit-learn's phi of a constant side is 0, but it is undefined."""
    drawn = np.ones(len(true), dtype=bool) if weights is None else weights > 0
    if not drawn.any():
        return dict.fromkeys((*RATES, "phi"))
    scores = metrics.precision_recall_fscore_support(
        true, judged, average="binary", sample_weight=weights, zero_division=np.nan
    )
    found = {name: None if np.isnan(score) else score for name, score in zip(RATES, scores, strict=False)}
    constant = len(set(true[drawn])) < 2 or len(set(judged[drawn])) < 2
    return found | {"phi": None if constant else metrics.matthews_corrcoef(true, judged, sample_weight=weights)}


def of_numbers(one, other, weights=None):
    """The figures of `Numbers`."""
    one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    weights = np.ones(len(one)) if weights is None else np.asarray(weights)
    total = weights.sum()
    if not total:
        return dict.fromkeys(("pearson", "spearman", "kendall", "rmse", "mae", "bias", "emd", "ks", "auc"))
    grid, codes = np.unique(np.concatenate([one, other]), return_inverse=True)
    codes = codes[: len(one)], codes[len(one) :]
    counts = [np.bincount(code, weights, len(grid)) for code in codes]
    cumulative = [np.cumsum(count) for count in counts]
    ranks = [(above - (count - 1) / 2)[code] for above, count, code in zip(cumulative, counts, codes, strict=True)]
    varied = all(np.count_nonzero(count) > 1 for count in counts)
    gaps = np.abs(cumulative[0] - cumulative[1])[:-1] / total
    error = one - other
    return {
        "pearson": _pearson(one, other, weights) if varied else None,
        "spearman": _pearson(*ranks, weights) if varied else None,
        "kendall": _tau(one, other, weights) if varied else None,
        "rmse": math.sqrt(weights @ error**2 / total),
        "mae": weights @ np.abs(error) / total,
        "bias": weights @ error / total,
        "emd": gaps @ np.diff(grid),
        "ks": gaps.max(initial=0),
        "auc": _auc(one, other, weights) if np.isin(other, (0.0, 1.0)).all() else None,
    }


def of_raters(answers, values, weights=None):
    """The figures of `Raters`."""
    labels = list(values)
    counts = np.array([[row.count(label) for label in labels] for row in answers]).reshape(-1, len(labels))
    weights = np.ones(len(counts)) if weights is None else np.asarray(weights)
    valued = [place for place, label in enumerate(labels) if values[label] is not None]
    numbers = np.array([values[labels[place]] for place in valued], dtype=float)
    judges = len(answers[0]) if len(answers) else 0
    return {
        "alpha": _alpha_of_counts(counts, 1 - np.eye(len(labels)), weights),
        "interval_alpha": _alpha_of_counts(counts[:, valued], np.subtract.outer(numbers, numbers) ** 2, weights),
        "fleiss_kappa": _fleiss(counts, judges, weights * (counts.sum(1) == judges)) if judges > 1 else None,
    }


def _over(numerator, denominator):
    return numerator / denominator if denominator > 0 else None


def _kappa(table, distances):
    """1 - mean distance / mean distance expected for independent raters (Cohen 1968)."""
    expected = table.sum(1) @ distances @ table.sum(0)
    return 1 - (table * distances).sum() * table.sum() / expected if expected > 0 else None


def _alpha_of_table(table, distances):
    """1 - observed / expected disagreement over coincidences (Krippendorff 2011, with two answers per unit)."""
    coincidences = table + table.T
    counts = coincidences.sum(0)
    expected = counts @ distances @ counts
    return 1 - (counts.sum() - 1) * (coincidences * distances).sum() / expected if expected > 0 else None


def _alpha_of_counts(counts, distances, weights):
    """1 - disagreement of the pairs within units / disagreement of all pairs (Krippendorff 2011)."""
    answered = counts.sum(1)
    within = np.einsum("uc,ck,uk->u", counts, distances, counts) / np.maximum(answered - 1, 1)
    weights = weights * (answered > 1)
    totals = weights @ counts
    expected = totals @ distances @ totals
    return 1 - (totals.sum() - 1) * (weights @ within) / expected if expected > 0 else None


def _fleiss(counts, judges, weights):
    """Agreement of the pairs of judges beyond chance (Fleiss 1971)."""
    total = weights.sum()
    if not total:
        return None
    shares = weights @ counts / (total * judges)
    equal = ((counts**2).sum(1) - judges) / (judges * (judges - 1))
    return _over(weights @ equal / total - shares @ shares, 1 - shares @ shares)


def _pearson(one, other, weights):
    one, other = (side - weights @ side / weights.sum() for side in (one, other))
    spread = math.sqrt((weights @ one**2) * (weights @ other**2))
    return max(-1.0, min(weights @ (one * other) / spread, 1.0)) if spread > 0 else None


def _tau(one, other, weights):
    """Kendall's tau-b, pair by pair of units; copies of a unit tie with each other."""
    first, second = (np.sign(np.subtract.outer(side, side)) for side in (one, other))
    pairs = np.outer(weights, weights)
    return (pairs * first * second).sum() / math.sqrt((pairs * first**2).sum() * (pairs * second**2).sum())


def _auc(one, other, weights):
    """The share of pairs of a 1 and a 0 where the 1 has the higher number; ties count half."""
    positive, negative = weights * other, weights * (1 - other)
    above = (np.sign(np.subtract.outer(one, one)) + 1) / 2
    return _over(positive @ above @ negative, positive.sum() * negative.sum())
