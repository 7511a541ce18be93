"""Intervals: groups are drawn, not units; no interval where there is nothing to draw."""

import numpy as np
import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure
from checklist_rewards.evaluation.measures import Categories, Numbers


def test_fifteen_groups_have_an_interval_and_fewer_the_number_that_is_needed():
    values = [True, False, False] * 15
    found = [Bootstrap(50).mean(values, [i % n for i in range(45)]) for n in (15, 14)]
    assert found[0].refused is None and found[0].low <= 1 / 3 <= found[0].high
    assert found[1] == Figure(value=1 / 3, refused="needs 15 groups, has 14")
    assert str(found[1]) == "0.333 (needs 15 groups, has 14)" and "refused" not in Figure(value=0.5).model_dump()
    assert str(Figure(value=None)) == "none" and str(Figure(value=0.5)) == "0.500"
    assert Figure(value=0.5, low=0.25, high=0.75).shown(2) == "0.50 [0.25, 0.75]"


def test_the_reason_is_that_of_the_figure_and_of_an_undefined_one_there_is_none():
    found = Bootstrap(50).figures(Numbers([0.1, 0.7] * 7, [0.5, 2.0] * 7), range(14))
    needed = {"bias": "needs 15 groups, has 14", "emd": "needs 200 groups, has 14", "ks": "no interval", "auc": None}
    assert {name: found[name].refused for name in needed} == needed and found["auc"].value is None
    many = Bootstrap(50).figures(Numbers([0.1, 0.7] * 8, [0.5, 2.0] * 8, ["auc"]), range(16))
    assert many["auc"].refused is None


def test_draws_are_of_whole_groups_and_equal_for_a_seed():
    draws = Bootstrap(30).draws(np.repeat(np.arange(20), 5))
    assert all((weights.reshape(20, 5) == weights[::5, None]).all() for weights in draws)
    values = np.repeat(np.random.default_rng(0).random(20) < 0.5, 50)

    def interval(groups, seed=0):
        return Bootstrap(200, seed).mean(values, groups)

    grouped, alone = interval(np.repeat(np.arange(20), 50).tolist()), interval(list(range(1000)))
    assert grouped.high - grouped.low > 3 * (alone.high - alone.low)  # units drawn one by one look more certain
    assert interval(list(range(1000))) == alone != interval(list(range(1000)), seed=1)


def test_no_interval_where_most_draws_do_not_define_the_figure():
    # One unit of twenty differs: a draw without it has one answer only, and no kappa. That is over a third of them.
    one, other = ["yes"] * 19 + ["no"], ["yes"] * 20
    values = {"yes": 1.0, "no": 0.0}
    found = Bootstrap(200).figures(Categories(one, other, values), list(range(20)))
    assert (
        found["kappa"] == Figure(value=0.0, refused="undefined in many resamples")
        and found["accuracy"].low is not None
    )


@pytest.mark.parametrize("resamples", [-1, 19])
def test_too_few_resamples_are_refused(resamples):
    with pytest.raises(SampleError, match=f"resamples={resamples} "):
        Bootstrap(resamples)
