"""Errors over groups, quantiles with few groups, and intervals of rates."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from checklist_rewards.evaluation.bootstrap import Bootstrap, Mean
from checklist_rewards.evaluation.intervals import (
    DISTANCE,
    EQUAL_DRAWS,
    FEW_DIFFER,
    MIN_GROUPS,
    Rule,
    bounds,
    clustered_error,
    expanded,
    rate_interval,
    t_quantile,
    t_test_p,
    too_few,
)


def test_the_error_is_that_of_a_mean_and_grows_with_dependence():
    values = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    parts = (values - values.mean()) / 6
    assert clustered_error(parts, np.arange(6), 6) == pytest.approx(values.std(ddof=1) / math.sqrt(6))
    pairs = np.repeat(parts, 2) / 2  # every unit twice: no more is known
    assert clustered_error(pairs, np.repeat(np.arange(6), 2), 6) == pytest.approx(
        clustered_error(parts, np.arange(6), 6)
    )
    assert math.isnan(clustered_error(parts, np.zeros(6, int), 1))


def test_quantile_and_p_value_are_those_of_t():
    assert t_quantile(5, 0.025) == pytest.approx(stats.t.ppf(0.975, 4)) and t_quantile(5, 0.025) > 2.7
    assert t_test_p(t_quantile(5, 0.025), 5) == pytest.approx(0.05)
    values = [1.0, 2.0, -1.0, 3.0]
    assert t_test_p(np.mean(values) / stats.sem(values), 4) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_with_many_independent_units_it_is_wilsons_interval():
    error = math.sqrt(0.3 * 0.7 / 100_000)
    low, high = rate_interval(0.3, error, 100_000, 100_000)
    assert (low, high) == pytest.approx(proportion_confint(30_000, 100_000, method="wilson"), abs=1e-6)


@pytest.mark.parametrize("rate", [0.0, 1.0, 1.02])
def test_an_interval_without_an_error_seen_has_a_width(rate):
    low, high = rate_interval(rate, 0.0, 25, 25, least=1 / 25)
    assert 0 <= low < high <= 1 and 0.1 < high - low < 0.3 and low <= min(rate, 1.0) <= high
    assert rate_interval(1.02, 0.03, 25, 25)[0] < 1  # a correction may leave [0, 1]


def test_draws_of_few_groups_have_a_wider_interval_and_of_many_the_percentiles():
    draws = np.random.default_rng(0).standard_normal(100_000)
    five, many = (bounds(0.0, draws, groups, Rule(groups=5)) for groups in (5, 100_000))
    assert five["high"] == pytest.approx(math.sqrt(5 / 4) * stats.t.ppf(0.975, 4), abs=0.2)
    assert expanded(5) == pytest.approx(math.sqrt(5 / 4) * stats.t.ppf(0.975, 4))
    assert [many["low"], many["high"]] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=1e-3)


def test_undefined_draws_are_left_out_up_to_a_tenth():
    draws = np.arange(100.0)
    draws[:10] = np.nan
    assert bounds(50.0, draws, 50)["low"] > 10
    draws[10] = np.nan
    assert bounds(50.0, draws, 50) == {"refused": "undefined in many resamples"} == bounds(None, np.arange(9.0), 50)


def test_the_interval_of_a_distance_is_around_the_figure_and_not_below_zero():
    draws = 0.3 + 0.1 * np.random.default_rng(0).standard_normal(100_000)  # noise made the draws larger than the 0.2
    found = bounds(0.2, draws, 100_000, Rule("t"))
    assert (found["low"], found["high"]) == pytest.approx((0.2 - 0.196, 0.2 + 0.196), abs=2e-3)
    assert bounds(0.1, draws, 100_000, Rule("t"))["low"] == 0.0
    noise = np.linspace(0, 0.1, 1001)  # the lower end is its 95 % quantile away
    apart = bounds(0.2, draws, 100_000, DISTANCE, noise)
    assert apart["low"] == pytest.approx(0.2 - 0.095, abs=1e-3) and apart["high"] == found["high"]
    assert bounds(0.2, draws, 49, DISTANCE, noise) == {"refused": "needs 50 groups, has 49"}


def test_the_interval_of_a_skewed_mean_reaches_further_to_the_long_side():
    values = np.repeat([0.0, 0.0, 0.0, 0.2, 1.0], 8)
    figure = Bootstrap().mean(values, range(40))
    assert figure.low < figure.value < figure.high and figure.high - figure.value > 1.2 * (figure.value - figure.low)
    assert Bootstrap().mean([0.5] * 20, range(20)).refused == EQUAL_DRAWS
    assert Bootstrap().mean([0.1, math.nan, 0.3] * 7, range(21)).refused == "needs 15 groups, has 14"
    assert Bootstrap().mean([math.nan], [0]).value is None and Bootstrap(0).mean([1.0], [0]).refused is None
    rare = [1.0, 1.0] + [0.0] * 18  # often in no resample, which then has no error
    assert Bootstrap().mean(rare, range(20)).refused == FEW_DIFFER == "too few groups differ"


def test_intervals_end_at_the_limits_of_the_values():
    shares, groups = [1.0] * 32 + [0.0] * 5, [0] * 20 + list(range(1, 18))  # one large group
    free, cut = Bootstrap().mean(shares, groups), Bootstrap().mean(shares, groups, (0.0, 1.0))
    mirrored = Bootstrap().mean([1 - share for share in shares], groups, (0.0, 1.0))
    assert free.high > 1 == cut.high and cut.low == free.low and cut.value == free.value
    assert mirrored.low == 0.0 < mirrored.high < 1
    draws = 0.9 + 0.2 * np.random.default_rng(0).standard_normal(1000)
    assert bounds(0.9, draws, 20, Rule("t"))["high"] > 1 == bounds(0.9, draws, 20, Rule("t", most=1.0))["high"]


@pytest.mark.parametrize("groups", [15, 40])
def test_the_interval_of_a_mean_covers_with_the_fewest_groups(groups):
    assert too_few(MIN_GROUPS) is None and too_few(MIN_GROUPS - 1) == "needs 15 groups, has 14"
    rng, hits = np.random.default_rng(1), []
    for seed in range(200):
        values = rng.standard_normal((groups, 4)) + rng.standard_normal((groups, 1))
        mean = Mean("mean", values.ravel())
        figure = Bootstrap(400, seed).figures(mean, np.repeat(np.arange(groups), 4).tolist())["mean"]
        hits.append(figure.low <= 0 <= figure.high)
    assert np.mean(hits) > 0.9


def test_the_interval_of_a_share_near_1_covers_with_the_fewest_groups():
    rng, hits = np.random.default_rng(3), {"percentiles": [], "share": []}
    for _ in range(400):
        right = (rng.standard_normal((15, 4)) * 0.7**0.5 + rng.standard_normal((15, 1)) * 0.3**0.5 < 1.175).mean(
            axis=1
        )
        draws = rng.multinomial(15, [1 / 15] * 15, 300) @ right / 15
        for method, found in hits.items():
            ends = bounds(float(right.mean()), draws, 15, Rule(method))
            if "refused" not in ends:
                assert 0 <= ends["low"] < ends["high"] <= 1
                found.append(ends["low"] <= 0.88 <= ends["high"])
    assert np.mean(hits["percentiles"]) < 0.93 < np.mean(hits["share"]) < 0.97
