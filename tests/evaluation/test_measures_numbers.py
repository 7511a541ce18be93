"""Agreement on numbers: every figure by hand, what is undefined, and the bootstrap's arithmetic."""

import pytest

from checklist_rewards.evaluation.bootstrap import Bootstrap, Mean
from checklist_rewards.evaluation.measures import Numbers


def test_correlations_and_errors_worked_by_hand():
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
            "auc": None,  # the other side is no yes and no
        },
        abs=1e-9,
    )


def test_distances_of_distributions_and_auc_worked_by_hand():
    found = Numbers([0, 0, 1, 1], [0, 1, 1, 1]).figures()
    assert (found["emd"], found["ks"], found["bias"]) == (0.25, 0.25, -0.25)  # a quarter of the units moves by 1
    assert found["pearson"] == pytest.approx(0.5 / 0.75**0.5)
    # The one 0 stands at 0; of the three 1s one ties with it and two are above.
    assert found["auc"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert Numbers([2.0, 2.0], [5.0, 6.0]).figures()["emd"] == pytest.approx(3.5)  # in the numbers' own unit


@pytest.mark.parametrize(
    ("one", "other", "defined"),
    [
        ([], [], set()),
        ([0.5], [1.0], {"rmse", "mae", "bias", "emd", "ks"}),
        ([0.5, 0.5], [0.0, 1.0], {"rmse", "mae", "bias", "emd", "ks", "auc"}),
        ([0.2, 0.9], [1.0, 1.0], {"rmse", "mae", "bias", "emd", "ks"}),  # one class
    ],
)
def test_what_is_not_defined_is_none(one, other, defined):
    found = Numbers(one, other).figures()
    assert {name for name, value in found.items() if value is not None} == defined


def test_two_units_are_enough_for_a_correlation_and_its_intervals():
    found = Bootstrap(resamples=20).figures(Numbers([0.2, 0.9], [0.7, 0.1]), ["a", "b"])
    assert {name: round(found[name].value, 9) for name in ("pearson", "spearman", "kendall")} == {
        "pearson": -1,
        "spearman": -1,
        "kendall": -1,
    }


def test_only_the_figures_that_are_needed_are_computed():
    one, other = [0.1, 0.9, 0.4], [0.0, 1.0, 1.0]
    whole = Numbers(one, other).figures()
    assert Numbers(one, other, only=["auc", "rmse"]).figures() == {name: whole[name] for name in ("auc", "rmse")}
    assert Numbers([], [], only=["auc"]).figures() == {"auc": None}


def test_a_share_is_a_mean():
    assert Mean("coverage", [True, True, False, True]).figures() == {"coverage": 0.75}
    assert Mean("coverage", []).figures() == {"coverage": None}
