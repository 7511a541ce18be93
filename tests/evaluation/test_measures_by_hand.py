"""Agreement worked by hand. `test_measures_equality.py` has undefined figures, and resamples."""

import math

import numpy as np
import pytest
from scipy import stats

from checklist_rewards.evaluation.measures import (
    Categories,
    Numbers,
    Preferences,
    Raters,
    correlation,
    pairs_within,
    standardized,
    tau,
)


def test_two_raters_on_categories():
    # 20 both yes, 5 the judge alone, 10 the label alone, 15 both no; 50 units.
    counts = {("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15}
    judged, labels = zip(*[pair for pair, count in counts.items() for _ in range(count)], strict=True)
    measure = Categories(judged, labels, {"yes": 1.0, "no": 0.0}, "yes")
    assert measure.confusion.tolist() == [[20, 5], [10, 15]]  # the judge down and the label across
    assert measure.figures() == pytest.approx(
        {
            "accuracy": 35 / 50,
            # The judge says yes to 25 of 50, the labels to 30: chance is .5 x .6 + .5 x .4 = .5; (.7 - .5) / (1 - .5).
            "kappa": 0.4,
            "weighted_kappa": 0.4,  # with two values the same
            # 100 answers, 55 of them yes: expected (100^2 - 55^2 - 45^2) / (100 x 99) = .5, observed 30 / 100.
            "alpha": 0.4,
            "interval_alpha": 0.4,  # with two values the same
            "precision": 20 / 25,
            "recall": 20 / 30,
            "f1": 2 * 20 / (25 + 30),
            "phi": (20 * 15 - 5 * 10) / (25 * 25 * 30 * 20) ** 0.5,
        }
    )


def test_correlations_and_errors():
    found = Numbers([0.1, 0.2, 0.3, 0.4], [0.1, 0.3, 0.2, 0.4]).figures()
    assert found == pytest.approx(
        {
            "pearson": 0.8,  # deviations -.15 -.05 .05 .15 and -.15 .05 -.05 .15: (.0225 x 2 - .0025 x 2) / .05
            "spearman": 0.8,  # 1 - 6 x (1 + 1) / (4 x 15)
            "kendall": 4 / 6,  # five pairs agree, one does not
            "rmse": (0.02 / 4) ** 0.5,
            "mae": 0.05,
            "bias": 0.0,
            "emd": 0.0,  # the same numbers, in another order
            "ks": 0.0,
            "auc": None,  # the other side has values other than yes and no
        },
        abs=1e-9,
    )


def test_only_the_figures_that_are_needed_are_computed():
    one, other = [0.1, 0.9, 0.4], [0.0, 1.0, 1.0]
    whole = Numbers(one, other).figures()
    assert Numbers(one, other, only=["auc", "rmse"]).figures() == {name: whole[name] for name in ("auc", "rmse")}
    assert Numbers([], [], only=["auc"]).figures() == {"auc": None}


def test_krippendorffs_own_example():
    # Krippendorff 2011, section A: ten units, two observers, who differ on four; 14 zeros and 6 ones.
    one, other = "0100000010", "1110010000"
    found = Raters(list(zip(one, other, strict=True)), {"0": 0.0, "1": 1.0}).figures()
    assert found["alpha"] == pytest.approx(1 - 19 * 4 / (14 * 6))


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
        ([0.25, 0.75] * 20, [1] * 40, [n // 2 for n in range(40)], {"t_test_p"}),
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


def test_pairs_are_made_within_an_input():
    assert pairs_within(["a", "b", "a", "a", "c"]) == [(0, 2), (0, 3), (2, 3)]
