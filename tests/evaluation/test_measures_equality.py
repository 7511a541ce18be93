"""600 cases of the figures of agreement, computed twice, by the package and by `oracle`: many are small or constant.

Both leave the same figures undefined, and no library raises an error or a warning.
"""

import warnings

import numpy as np

from checklist_rewards.evaluation.measures import Categories, Numbers, Raters
from tests.evaluation.oracle import of_categories, of_numbers, of_raters

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
            whole = measure.figures()
            assert [name for name, value in whole.items() if value is None] == [
                name for name, value in expected.items() if value is None or not len(measure)
            ]
    assert list(found) == list(expected)
    np.testing.assert_allclose(
        list(found.values()), [np.nan if value is None else value for value in expected.values()], rtol=0, atol=1e-12
    )


def test_two_raters_on_categories():
    rng = np.random.default_rng(1)
    for case in range(CASES):
        values = VALUES[case % len(VALUES)]
        labels, size = list(values), rng.choice(SIZES)
        used = rng.choice(labels, rng.integers(1, len(labels) + 1), replace=False)
        one = rng.choice(used, size)
        other = np.where(rng.random(size) < rng.choice([0, 0.6, 1]), one, rng.choice(labels, size))
        weights, positive = weights_of(rng, size), rng.choice([None, None, None, labels[0]])
        measure = Categories(one.tolist(), other.tolist(), values, positive)
        assert_equal(measure, weights, of_categories(one.tolist(), other.tolist(), values, positive, weights))


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


def test_two_raters_on_numbers():
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        size = rng.choice(SIZES)
        one, other, weights = numbers_of(rng, size), numbers_of(rng, size), weights_of(rng, size)
        assert_equal(Numbers(one, other), weights, of_numbers(one, other, weights))


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
        assert_equal(Raters(answers, values), weights, of_raters(answers, values, weights))
