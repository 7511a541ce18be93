"""Agreement among several judges, by hand."""

import pytest

from checklist_rewards.evaluation.measures import Raters

YES_NO = {"yes": 1.0, "no": 0.0}


def test_krippendorffs_own_example():
    # Krippendorff 2011, section A: ten units, two observers, who differ on four; 14 zeros and 6 ones.
    one, other = "0100000010", "1110010000"
    found = Raters(list(zip(one, other, strict=True)), {"0": 0.0, "1": 1.0}).figures()
    assert found["alpha"] == pytest.approx(1 - 19 * 4 / (14 * 6))


def test_alpha_of_values_by_hand():
    # Three units of two judges, worth (0, 0), (.5, 1), (1, 1). Observed: .25 counted in both orders, over 6 answers.
    # All 30 ordered pairs of the answers 0 0 .5 1 1 1: 2 x (2 x .25 + 6 x 1 + 3 x .25).
    values = {"poor": 0.0, "fair": 0.5, "good": 1.0, "na": None}
    answers = [("poor", "poor"), ("fair", "good"), ("good", "good")]
    found = Raters(answers, values).figures()
    assert found["interval_alpha"] == pytest.approx(1 - (2 * 0.25 / 6) / (2 * 7.25 / 30))
    with_abstentions = Raters([*answers, ("na", "good"), ("na", "na")], values).figures()
    assert with_abstentions["interval_alpha"] == found["interval_alpha"]
    assert with_abstentions["alpha"] != found["alpha"]


def test_fleiss_kappa_by_hand():
    # Of three judges two agree on the first unit (1 pair of 3) and all on the second: mean 2/3.
    # A third of the answers is yes: chance 1/9 + 4/9.
    found = Raters([("yes", "yes", "no"), ("no", "no", "no")], YES_NO).figures()
    assert found["fleiss_kappa"] == pytest.approx((2 / 3 - 5 / 9) / (1 - 5 / 9))


def test_a_failed_read_leaves_its_unit_to_alpha_but_not_to_fleiss():
    complete = [("yes", "yes", "no"), ("no", "no", "no")]
    pair = Raters([*complete, ("yes", "yes", None)], YES_NO).figures()
    alone = Raters([*complete, ("yes", None, None)], YES_NO).figures()
    before = Raters(complete, YES_NO).figures()
    assert pair["fleiss_kappa"] == alone["fleiss_kappa"] == before["fleiss_kappa"]
    assert alone["alpha"] == before["alpha"] != pair["alpha"]


@pytest.mark.parametrize("answers", [[], [("yes", "yes")] * 3, [("yes", None), (None, "no")]])
def test_without_two_answers_that_can_differ_there_is_no_figure(answers):
    assert Raters(answers, YES_NO).figures() == {
        "alpha": None,
        "interval_alpha": None,
        "fleiss_kappa": None,
    }
