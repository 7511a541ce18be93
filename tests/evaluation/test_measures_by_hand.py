"""Preferences and correlations by hand. `test_measures_equality.py` compares the others with their definitions."""

import math

import numpy as np
import pytest
from scipy import stats

from checklist_rewards.evaluation.measures import (
    Numbers,
    Preferences,
    correlation,
    standardized,
    tau,
)


def test_only_the_figures_that_are_needed_are_computed():
    one, other = [0.1, 0.9, 0.4], [0.0, 1.0, 1.0]
    whole = Numbers(one, other).figures()
    assert Numbers(one, other, only=["auc", "rmse"]).figures() == {name: whole[name] for name in ("auc", "rmse")}
    assert Numbers([], [], only=["auc"]).figures() == {"auc": None}


def test_correlations_are_those_of_scipy():
    rng = np.random.default_rng(0)
    one = rng.integers(0, 4, 60).astype(float)  # with ties
    other = one + rng.standard_normal(60)
    assert correlation(one, other) == pytest.approx(stats.pearsonr(one, other).statistic, abs=1e-9)
    assert tau(one, other) == pytest.approx(stats.kendalltau(one, other).statistic, abs=1e-9)
    assert correlation(standardized(one), standardized(other)) == pytest.approx(correlation(one, other), abs=1e-9)


def test_constant_columns_and_few_pairs_have_none():
    same, varied = np.full(5, 0.3), np.arange(5.0)
    assert correlation(same, varied) is correlation(varied, same) is None
    assert correlation(varied[:1], varied[:1]) is correlation(varied[:4], varied[:4], least=5) is None
    assert correlation(varied, varied) == pytest.approx(1) and correlation(varied, -varied) == pytest.approx(-1)
    assert math.isnan(tau(same, varied)) and tau(varied[:2], varied[:2]) == 1.0
    assert standardized(same).tolist() == [0.0] * 5


def test_preferences():
    # Truth win, win, tie, tie, loss; the judge says win, loss, tie, win, tie: distances 0, 2, 0, 1, 1.
    found = Preferences([0.2, -0.1, 0.0, 0.3, 0.0], [1, 1, 0, 0, -1]).figures()
    assert [found[f"pld_{distance}"] for distance in (0, 1, 2)] == [0.4, 0.4, 0.2]
    assert found["wpld"] == pytest.approx((2 + 1 + 1) / 5)
    # The better target is the second one of the third pair. Chosen minus rejected: .3, .1, .2, and one tie of the
    # truth, which has no chosen one. Mean .2, standard deviation .1.
    found = Preferences([0.3, 0.1, -0.2, 0.5], [1, 2, -1, 0]).figures()
    assert (found["wins"], found["losses"], found["ties"]) == (1.0, 0.0, 0.0)
    assert found["difference"] == pytest.approx(0.2) and found["cohens_d"] == pytest.approx(2.0)
    assert found["t_test_p"] == pytest.approx(stats.ttest_1samp([0.3, 0.1, 0.2], 0).pvalue)
    rounded = Preferences([0.1 + 0.2 - 0.3], [1]).figures()
    assert rounded["ties"] == 1.0 and rounded["pld_1"] == 1.0  # equal on paper


def test_the_t_test_of_dependent_pairs_is_that_of_their_groups():
    judged = [0.3, 0.1, 0.2, 0.4, -0.1]
    alone = Preferences(judged, [1] * 5).figures()["t_test_p"]
    twice = Preferences(judged * 2, [1] * 10, groups=[*range(5), *range(5)]).figures()["t_test_p"]
    assert twice == pytest.approx(alone)
    assert Preferences(judged, [1] * 5, groups=["one"] * 5).figures()["t_test_p"] is None


@pytest.mark.parametrize(
    ("judged", "truth", "groups", "undefined"),
    [
        ([], [], None, {"wpld", "wins", "difference", "cohens_d", "t_test_p"}),
        ([0.5, -0.5], [0, 0], None, {"wins", "difference", "cohens_d", "t_test_p"}),
        ([0.25, 0.25], [1, 1], None, {"cohens_d", "t_test_p"}),
        # Every input has the same sum of differences, which is also the mean of equal differences.
        ([0.25, 0.75] * 2, [1] * 4, [0, 0, 1, 1], {"t_test_p"}),
        ([0.1, 0.2, 0.3, 0.3, 0.2, 0.1], [1] * 6, [0, 0, 0, 1, 1, 1], {"t_test_p"}),
    ],
)
def test_preferences_that_do_not_define_a_figure(judged, truth, groups, undefined):
    found = Preferences(judged, truth, groups=groups).figures()
    assert {
        name for name in ("wpld", "wins", "difference", "cohens_d", "t_test_p") if found[name] is None
    } == undefined
    assert judged or set(found.values()) == {None}


def test_a_draw_of_the_bootstrap_is_the_figure_of_the_repeated_pairs():
    rng = np.random.default_rng(4)
    judged, truth = rng.normal(0, 1, 20).round(1), rng.integers(-1, 2, 20)
    weights = rng.integers(0, 3, 20)
    repeated = np.repeat(np.arange(20), weights)
    drawn = Preferences(judged, truth).replicate(weights)
    whole = Preferences(judged[repeated], truth[repeated]).figures()
    del drawn["t_test_p"], whole["t_test_p"]
    assert drawn == pytest.approx(whole)
