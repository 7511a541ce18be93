"""Agreement on categories: every figure by hand, what is undefined, and the bootstrap's arithmetic."""

import numpy as np
import pytest

from checklist_rewards.evaluation.measures import Categories

YES_NO = {"yes": 1.0, "no": 0.0}
AGREEING = ("kappa", "weighted_kappa", "alpha", "interval_alpha")
GRADES = {"bad": 0.0, "ok": 0.5, "good": 1.0}


def of_table(yes_yes, yes_no, no_yes, no_no, positive="yes"):
    """Judge yes and label yes, judge yes and label no, ..."""
    counts = [("yes", "yes", yes_yes), ("yes", "no", yes_no), ("no", "yes", no_yes), ("no", "no", no_no)]
    pairs = [(judge, label) for judge, label, count in counts for _ in range(count)]
    return Categories([judge for judge, _ in pairs], [label for _, label in pairs], YES_NO, positive)


def test_every_figure_of_a_table_worked_by_hand():
    # 20 both yes, 5 the judge alone, 10 the label alone, 15 both no; 50 units.
    found = of_table(20, 5, 10, 15).figures()
    assert found == pytest.approx(
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


def test_the_confusion_table_has_the_judge_down_and_the_label_across():
    assert of_table(20, 5, 10, 15).confusion.tolist() == [[20, 5], [10, 15]]


def test_weighted_kappa_by_hand_counts_distances_of_values():
    one, other = ["bad", "ok", "good", "bad"], ["bad", "good", "good", "ok"]
    # Squared distances 0, .25, 0, .25: mean .125. Were the sides independent: of 16 pairs 2 x 2.25 + .75 + 1.25 = 6.5.
    found = Categories(one, other, GRADES).figures()
    assert found["weighted_kappa"] == pytest.approx(1 - 0.125 / (6.5 / 16))
    # The same answers where "ok" is worth almost as much as "good": the second pair is now nearly right.
    uneven = Categories(one, other, {"bad": 0.0, "ok": 0.9, "good": 1.0}).figures()
    expected = (2 * (0.81 + 2) + (0.81 + 2 * 0.01) + (1 + 0.01)) / 16
    assert uneven["weighted_kappa"] == pytest.approx(1 - (0.01 + 0.81) / 4 / expected)
    assert uneven["kappa"] == found["kappa"]


def test_an_abstention_is_a_category_without_a_value():
    values = {**GRADES, "na": None}
    with_na = Categories(["bad", "good", "na", "na"], ["bad", "good", "na", "good"], values).figures()
    assert with_na["accuracy"] == 0.75
    assert with_na["weighted_kappa"] == 1.0  # of the pairs where both carry a value


@pytest.mark.parametrize(
    ("table", "undefined"),
    [
        ((0, 0, 0, 0), {"accuracy", *AGREEING, "precision", "recall", "f1", "phi"}),
        ((7, 0, 0, 0), {*AGREEING, "phi"}),  # both always yes
        ((0, 0, 0, 7), {*AGREEING, "phi", "precision", "recall", "f1"}),
        ((3, 4, 0, 0), {"phi"}),  # the judge always yes: kappa is 0, no better than chance
        ((0, 0, 3, 4), {"phi", "precision"}),
        ((0, 3, 0, 4), {"phi", "recall"}),  # no label is yes
    ],
)
def test_what_is_not_defined_is_none_and_nothing_else_is(table, undefined):
    found = of_table(*table).figures()
    assert {name for name, value in found.items() if value is None} == undefined
    if table == (3, 4, 0, 0):
        assert found["kappa"] == 0


def test_a_draw_that_defines_nothing_is_nan():
    drawn = of_table(2, 0, 0, 2).replicate(np.array([1, 1, 0, 0]))
    assert drawn["accuracy"] == 1 and np.isnan([drawn["kappa"], drawn["alpha"], drawn["phi"]]).all()
