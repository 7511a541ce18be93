"""Agreement worked by hand. `test_measures_equality.py` has undefined figures, and resamples."""

import math

import numpy as np
import pytest
from scipy import stats

from checklist_rewards.evaluation.measures import Categories, Numbers, Raters, correlation, standardized, tau


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


def test_weighted_kappa_counts_distances_of_values():
    one, other = ["bad", "ok", "good", "bad"], ["bad", "good", "good", "ok"]
    # Squared distances 0, .25, 0, .25: mean .125. Were the sides independent: of 16 pairs 2 x 2.25 + .75 + 1.25 = 6.5.
    found = Categories(one, other, {"bad": 0.0, "ok": 0.5, "good": 1.0}).figures()
    assert found["weighted_kappa"] == pytest.approx(1 - 0.125 / (6.5 / 16))


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


def test_distances_of_distributions_and_auc():
    found = Numbers([0, 0, 1, 1], [0, 1, 1, 1]).figures()
    assert (found["emd"], found["ks"], found["bias"]) == (0.25, 0.25, -0.25)  # a quarter of the units moves by 1
    # The one 0 stands at 0; of the three 1s one ties with it and two are above.
    assert found["auc"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert Numbers([2.0, 2.0], [5.0, 6.0]).figures()["emd"] == pytest.approx(3.5)  # in the numbers' own unit


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


def test_fleiss_kappa():
    # Of three judges two agree on the first unit (1 pair of 3) and all on the second: mean 2/3.
    # A third of the answers is yes: chance 1/9 + 4/9.
    found = Raters([("yes", "yes", "no"), ("no", "no", "no")], {"yes": 1.0, "no": 0.0}).figures()
    assert found["fleiss_kappa"] == pytest.approx((2 / 3 - 5 / 9) / (1 - 5 / 9))


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
