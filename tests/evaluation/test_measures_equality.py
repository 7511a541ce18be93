"""600 cases of the figures of agreement, compared with their definitions over units and pairs of units, or with
another library: many are small or constant.

Both leave the same figures undefined, and no library raises an error or a warning. A resample has the figures of the
repeated units.
"""

import warnings

import numpy as np
from scipy import stats
from sklearn import metrics

from checklist_rewards.evaluation.measures import NUMERICAL, Categories, Numbers, Raters

CASES = 200
"""Of each of the three measures."""
VALUES = (
    {"yes": 1.0, "no": 0.0},
    {"no": 0.0, "yes": 1.0, "na": None},
    {"bad": 0.0, "ok": 0.5, "good": 1.0},
    {"a": 0.0, "b": 0.3, "c": 1.0, "na": None},
    {"low": 0.0, "middle": 1.0, "high": 0.0},  # the first and the last have the same value
    {"one": 0.4, "other": 0.4, "na": None},  # no two values differ
    {"only": 1.0},
    {"na": None, "value": 1.0},
    {"na": None, "unknown": None},
)
SIZES = (0, 1, 2, 3, 5, 8, 20, 40)


def weights_of(rng, size):
    """How often units are drawn: each once, at random, or all but one not at all."""
    kind = rng.integers(3)
    if not size or kind == 0:
        return np.ones(size, dtype=np.int64)
    return rng.integers(0, 3, size) if kind == 1 else size * (np.arange(size) == rng.integers(size)).astype(np.int64)


def assert_equal(measure, weights, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dict(measure.replicate(weights))
        if (weights == 1).all():
            assert {k for k, v in measure.figures().items() if v is None} == {
                k for k, v in expected.items() if v is None
            }
    assert list(found) == list(expected)
    values = [np.nan if value is None else value for value in expected.values()]
    np.testing.assert_allclose(list(found.values()), values, rtol=0, atol=1e-12)


def over(numerator, denominator):
    return numerator / denominator if denominator > 0 else None


def differ(one, other):
    return (one != other).astype(float)


def square(one, other):
    return (one - other) ** 2


def kappa(one, other, distance):
    """1 - mean distance / mean distance of all pairs of an answer of each (Cohen 1968)."""
    expected = distance(one[:, None], other).mean() if len(one) else 0
    return 1 - distance(one, other).mean() / expected if expected > 0 else None


def alpha(units, distance):
    """1 - distances of the pairs within units / distances of all pairs (Krippendorff 2011)."""
    units = [np.array(unit) for unit in units if len(unit) > 1]
    answers = np.concatenate(units) if units else np.zeros(0)
    expected = distance(answers[:, None], answers).sum() / max(len(answers) - 1, 1)
    observed = sum(distance(unit[:, None], unit).sum() / (len(unit) - 1) for unit in units)
    return 1 - observed / expected if expected > 0 else None


def of_categories(one, other, values, positive):
    valued = np.array([None not in (values[a], values[b]) for a, b in zip(one, other, strict=True)], dtype=bool)
    numbers = [np.array([values[label] for label in side[valued]], dtype=float) for side in (one, other)]
    mixed = [[values[label] for label in unit if values[label] is not None] for unit in zip(one, other, strict=True)]
    figures = {
        "accuracy": np.mean(one == other) if len(one) else None,
        "kappa": kappa(one, other, differ),
        "weighted_kappa": kappa(*numbers, square),
        "alpha": alpha(list(zip(one, other, strict=True)), differ),
        "interval_alpha": alpha(mixed, square),
    }
    if positive is not None:
        true, judged = other == positive, one == positive
        both, varied = (true & judged).sum(), len(set(true)) == 2 == len(set(judged))
        figures |= {"precision": over(both, judged.sum()), "recall": over(both, true.sum())}
        figures |= {"f1": over(2 * both, judged.sum() + true.sum())}
        figures |= {"phi": metrics.matthews_corrcoef(true, judged) if varied and len(values) == 2 else None}
    return figures


def test_two_raters_on_categories():
    rng = np.random.default_rng(1)
    for case in range(CASES):
        values = VALUES[case % len(VALUES)]
        labels, size = list(values), rng.choice(SIZES)
        used = rng.choice(labels, rng.integers(1, len(labels) + 1), replace=False)
        one = rng.choice(used, size)
        other = np.where(rng.random(size) < rng.choice([0, 0.6, 1]), one, rng.choice(labels, size))
        weights, positive = weights_of(rng, size), rng.choice([None, None, None, labels[0]])
        drawn = np.repeat(np.arange(size), weights)
        measure = Categories(one.tolist(), other.tolist(), values, positive)
        assert_equal(measure, weights, of_categories(one[drawn], other[drawn], values, positive))


def numbers_of(rng, size):
    kind = rng.integers(5)
    if kind == 0:
        return rng.random(size)
    if kind == 1:
        return rng.random(size).round(1)  # with ties
    if kind == 2:
        return rng.integers(0, 2, size).astype(float)
    if kind == 3:
        return np.full(size, rng.random())
    return rng.normal(3, 10, size)


def of_numbers(one, other):
    if not len(one):
        return dict.fromkeys(NUMERICAL)
    varied = np.ptp(one) > 0 and np.ptp(other) > 0
    first, second = (np.sign(np.subtract.outer(side, side)) for side in (one, other))
    rises = (first * second).sum(), np.sqrt((first**2).sum() * (second**2).sum())  # of all pairs of units
    return {
        "pearson": stats.pearsonr(one, other).statistic if varied else None,
        "spearman": stats.pearsonr(stats.rankdata(one), stats.rankdata(other)).statistic if varied else None,
        "kendall": rises[0] / rises[1] if varied else None,
        "rmse": np.sqrt(np.mean((one - other) ** 2)),
        "mae": np.mean(np.abs(one - other)),
        "bias": np.mean(one - other),
        "emd": stats.wasserstein_distance(one, other),
        "ks": stats.ks_2samp(one, other).statistic,
        "auc": metrics.roc_auc_score(other, one) if set(other) == {0.0, 1.0} else None,
    }


def test_two_raters_on_numbers():
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        size = rng.choice(SIZES)
        one, other, weights = numbers_of(rng, size), numbers_of(rng, size), weights_of(rng, size)
        drawn = np.repeat(np.arange(size), weights)
        assert_equal(Numbers(one, other), weights, of_numbers(one[drawn], other[drawn]))


def of_raters(units, judges, values):
    answers = [[answer for answer in unit if answer is not None] for unit in units]
    valued = [[values[answer] for answer in unit if values[answer] is not None] for unit in answers]
    complete = np.array([unit for unit in answers if len(unit) == judges > 1])
    equal = [differ(unit[:, None], unit).sum() / (judges * (judges - 1)) for unit in complete]
    by_chance = differ(complete.reshape(-1, 1), complete.ravel()).mean() if len(complete) else 0
    return {
        "alpha": alpha(answers, differ),
        "interval_alpha": alpha(valued, square),
        "fleiss_kappa": 1 - np.mean(equal) / by_chance if by_chance > 0 else None,  # Fleiss 1971
    }


def test_several_raters():
    rng = np.random.default_rng(3)
    for case in range(CASES):
        values = VALUES[case % len(VALUES)]
        size, judges, lost = rng.choice(SIZES), rng.integers(1, 5), rng.choice([0, 0.3, 0.9])
        used = rng.choice(list(values), rng.integers(1, len(values) + 1), replace=False)
        answers = [
            tuple(None if rng.random() < lost else str(rng.choice(used)) for _ in range(judges)) for _ in range(size)
        ]
        weights = weights_of(rng, size)
        drawn = [unit for unit, times in zip(answers, weights, strict=True) for _ in range(times)]
        assert_equal(Raters(answers, values), weights, of_raters(drawn, judges, values))
