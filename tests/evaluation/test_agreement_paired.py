"""Tests between two judges, by hand."""

import math

import numpy as np
import pytest

from checklist_rewards.evaluation.agreement import paired_test, permutation_p


def right(only_one: int, only_other: int, both: int = 0):
    one = [True] * only_one + [False] * only_other + [True] * both
    other = [False] * only_one + [True] * only_other + [True] * both
    return one, other


def test_mcnemar_of_few_differences_is_the_binomial_test():
    one, other = right(10, 2, both=88)
    found = paired_test(("a", "b"), (one, other), ([], []), range(100), [])
    assert (found.only_one_right, found.only_other_right, found.units) == (10, 2, 100)
    assert found.mcnemar_p == pytest.approx(2 * (1 + 12 + 66) / 2**12)  # at most 2 of 12, both sides
    assert found.accuracy_difference == pytest.approx(0.08)
    assert found.error_difference is None and found.error_permutation_p is None


def test_mcnemar_of_items_that_share_a_group_is_refused():
    right = ([True] * 12 + [False] * 2, [False] * 12 + [True] * 2)
    found = paired_test(("a", "b"), right, ([], []), [n // 2 for n in range(14)], [])
    assert found.mcnemar_p is None and found.permutation_p is not None


def test_mcnemar_of_many_differences_is_chi_squared_with_continuity():
    one, other = right(30, 10)
    found = paired_test(("a", "b"), (one, other), ([], []), range(40), [])
    assert found.mcnemar_p == pytest.approx(math.erfc(math.sqrt((30 - 10 - 1) ** 2 / 40 / 2)))


def test_judges_that_are_right_about_the_same_items_cannot_be_told_apart():
    one, other = right(0, 0, both=5)
    found = paired_test(("a", "b"), (one, other), ([0.1] * 5, [0.1] * 5), range(5), range(5))
    assert found.mcnemar_p is None and found.permutation_p == 1.0 == found.error_permutation_p


def test_a_permutation_by_hand():
    # Five groups, sums 1 1 1 -1 1: of 32 ways to choose the signs 12 have a sum of 3 or more on either side.
    assert permutation_p(np.array([1.0, 1, 1, -1, 1]), "abcde") == pytest.approx(12 / 32)


def test_whole_groups_are_flipped():
    differences = np.array([1.0, 1, 1, 1, 1, 1])
    assert permutation_p(differences, "abcdef") == pytest.approx(2 / 64)
    assert permutation_p(differences, "aaabbb") == pytest.approx(2 / 4)  # six items, but two groups
    assert permutation_p(differences, "aaaaaa") is None


def test_many_groups_are_drawn_and_agree_with_the_exact_test():
    scipy = pytest.importorskip("scipy.stats")
    differences = np.random.default_rng(0).normal(0.4, 1, 16)
    exact = scipy.permutation_test(
        (differences,), lambda flipped, axis: flipped.sum(axis), permutation_type="samples", n_resamples=np.inf
    ).pvalue
    found = permutation_p(differences, list(range(16)))
    assert found == pytest.approx(exact, abs=0.02) and found == permutation_p(differences, list(range(16)))
