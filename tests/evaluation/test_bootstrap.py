"""Intervals: groups are drawn, not units; no interval where there is nothing to draw."""

import numpy as np
import pytest

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Categories
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Mean


def test_two_groups_can_only_give_three_means():
    # Group a is all right, group b all wrong: a draw has two a, one of each, or two b.
    values, groups = [True] * 10 + [False] * 10, ["a"] * 10 + ["b"] * 10
    found = Bootstrap(resamples=400).figures(Mean("share", values), groups)["share"]
    assert found == Figure(value=0.5, low=0.0, high=1.0)


def test_units_drawn_one_by_one_would_look_far_more_certain():
    rng = np.random.default_rng(0)
    values = np.repeat(rng.random(20) < 0.5, 50)
    grouped = Bootstrap(200).figures(Mean("share", values), np.repeat(np.arange(20), 50).tolist())["share"]
    alone = Bootstrap(200).figures(Mean("share", values), list(range(1000)))["share"]
    assert grouped.high - grouped.low > 3 * (alone.high - alone.low)


def test_the_same_seed_gives_the_same_interval_and_another_one_another():
    values, groups = [i % 3 == 0 for i in range(60)], [i // 4 for i in range(60)]

    def interval(seed):
        return Bootstrap(100, seed).figures(Mean("share", values), groups)["share"]

    assert interval(1) == interval(1) != interval(2)


@pytest.mark.parametrize(("resamples", "groups"), [(100, ["only"] * 4), (0, [1, 2, 3, 4])])
def test_no_interval_of_one_group_or_of_no_draws(resamples, groups):
    found = Bootstrap(resamples).figures(Mean("share", [1, 0, 1, 1]), groups)["share"]
    assert found == Figure(value=0.75)


def test_no_interval_where_most_draws_do_not_define_the_figure():
    # One unit of twenty differs: a draw without it has one answer only, and no kappa. That is over a third of them.
    one, other = ["yes"] * 19 + ["no"], ["yes"] * 20
    values = {"yes": 1.0, "no": 0.0}
    found = Bootstrap(200).figures(Categories(one, other, values), list(range(20)))
    assert found["kappa"] == Figure(value=0.0) and found["accuracy"].low is not None


def test_a_figure_reads_well():
    assert str(Figure(value=None)) == "none" and str(Figure(value=0.5)) == "0.500"
    assert Figure(value=0.5, low=0.25, high=0.75).shown(2) == "0.50 [0.25, 0.75]"


def test_draws_below_none_are_refused():
    with pytest.raises(SampleError, match="resamples=-1"):
        Bootstrap(-1)
