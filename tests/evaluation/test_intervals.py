"""Errors over groups, quantiles with few groups, and intervals of rates."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from checklist_rewards.evaluation import intervals
from checklist_rewards.evaluation.bootstrap import Bootstrap
from checklist_rewards.evaluation.intervals import (
    CORRELATION,
    DISTANCE,
    DISTANCE_TO_1,
    EQUAL_DRAWS,
    MIN_GROUPS,
    NO_INTERVAL,
    SHARE,
    Groups,
    Rule,
    clustered_error,
    rate_interval,
    t_quantile,
    t_test_p,
)
from checklist_rewards.scores.tally import share_interval, wilson


def bounds(value, draws, groups, *rest):
    """The interval of the draws, with `groups` groups of equal size."""
    return intervals.bounds(value, draws, Groups(groups, groups), *rest)


def test_the_error_is_that_of_a_mean_and_grows_with_dependence():
    values = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    parts = (values - values.mean()) / 6
    assert clustered_error(parts, np.arange(6), 6) == pytest.approx(values.std(ddof=1) / math.sqrt(6))
    pairs = np.repeat(parts, 2) / 2  # every unit twice: no more is known
    assert clustered_error(pairs, np.repeat(np.arange(6), 2), 6) == pytest.approx(
        clustered_error(parts, np.arange(6), 6)
    )
    assert math.isnan(clustered_error(parts, np.zeros(6, int), 1))


def of_sizes(sizes):
    """The group of every unit."""
    return np.repeat(np.arange(len(sizes)), sizes)


def test_groups_of_equal_size_count_once_and_of_unequal_size_less():
    assert all(Groups.of(of_sizes([each] * n)) == (n, n) for each in (1, 4, 7) for n in (1, 15, 199))
    assert Groups.of(of_sizes([1, 1, 2])) == (3, 36 / 18)
    assert Groups.of(np.arange(4), np.array([0.1, 0.1, 0.2, 0.0])) == (3, 2)  # the last one is not in the figure
    assert Groups.of(np.zeros(0, int)) == Groups.of(np.arange(2), np.zeros(2)) == (0, 0)
    assert Groups(15, 7.5).too_few() is None and Groups(MIN_GROUPS, MIN_GROUPS).too_few() is None
    assert Groups(14, 14).too_few() == "needs 15 groups, has 14"
    assert Groups(300, 7.4).too_few() == "needs 15 groups of similar size, has 300 that count as 7.4"


@pytest.mark.parametrize("rule", [SHARE, Rule()])
def test_an_interval_of_unequal_groups_is_that_of_the_groups_they_count_as(rule):
    values = np.random.default_rng(0).random(1000) < 0.7
    codes = of_sizes(np.linspace(1, 60, 15).astype(int))
    groups, own = Groups.of(codes), values[: len(codes)]
    figure = Bootstrap(200).mean(own, codes, rule)
    draws = np.array([weights @ own / weights.sum() for weights in Bootstrap(200).draws(codes)])
    ends = [intervals.bounds(figure.value, draws, each, rule) for each in (groups, Groups(15, 15))]
    assert (groups.number, groups.effective) == (15, pytest.approx(8.1, abs=0.05))
    assert [figure.low, figure.high] == pytest.approx([ends[0]["low"], ends[0]["high"]])
    assert figure.high - figure.low > 1.1 * (ends[1]["high"] - ends[1]["low"])


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


def test_draws_of_few_groups_have_a_wider_interval_and_of_many_the_normal_one():
    draws = np.random.default_rng(0).standard_normal(100_000)
    five, many = (bounds(0.0, draws, groups, Rule(groups=5)) for groups in (5, 100_000))
    assert five["high"] == pytest.approx(math.sqrt(5 / 4) * stats.t.ppf(0.975, 4), abs=0.1)
    assert [many["low"], many["high"]] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.02)


@pytest.mark.parametrize(
    ("value", "draws", "groups", "rule", "reason"),
    [
        (50.0, [np.nan] * 11 + [*range(89)], 50, Rule(), "undefined in many resamples"),  # more than a tenth
        (1.0, 1 - 1e-16 * np.arange(100), 20, CORRELATION, EQUAL_DRAWS),  # they differ by rounding
        (0.5, range(9), 5, NO_INTERVAL, "no interval"),
        (0.2, range(9), 199, DISTANCE, "needs 200 groups, has 199"),
    ],
)
def test_a_figure_without_an_interval_has_the_reason(value, draws, groups, rule, reason):
    assert bounds(value, np.array(draws, float), groups, rule) == {"refused": reason}
    assert bounds(None, np.array(draws, float), groups, rule) == {}  # an undefined figure has neither
    assert bounds(50.0, np.array([np.nan] * 10 + [*range(90)]), 50)["low"] < 50  # a tenth is left out
    tiny = bounds(1e-12, 1e-12 * (1 + np.arange(100.0)), 20)
    assert tiny["low"] < 1e-12 < tiny["high"]


def test_the_interval_of_a_distance_is_around_the_figure_and_not_below_zero():
    draws = 0.3 + 0.1 * np.random.default_rng(0).standard_normal(100_000)  # noise made the draws larger than the 0.2
    noise = np.linspace(0, 0.1, 1001)  # the lower end is its 95 % quantile away
    apart = bounds(0.2, draws, 100_000, DISTANCE, noise)
    assert apart == pytest.approx({"low": 0.2 - 0.095, "high": 0.2 + 0.196}, abs=2e-3)
    assert bounds(0.05, draws, 100_000, DISTANCE, noise)["low"] == 0.0


def test_the_interval_of_a_skewed_mean_reaches_further_to_the_long_side_and_ends_at_the_limits():
    values = np.repeat([0.0, 0.0, 0.0, 0.2, 1.0], 8)
    figure = Bootstrap().mean(values, range(40))
    assert figure.low < figure.value < figure.high and figure.high - figure.value > 1.2 * (figure.value - figure.low)
    assert Bootstrap().mean([0.5] * 20, range(20)).refused == EQUAL_DRAWS
    assert Bootstrap().mean([0.1, math.nan, 0.3] * 7, range(21)).refused == "needs 15 groups, has 14"
    assert Bootstrap().mean([math.nan], [0]).value is None and Bootstrap(0).mean([1.0], [0]).refused is None
    rare, groups = [1.0] * 2 + [0.0] * 18, range(20)
    free, cut = Bootstrap().mean(rare, groups), Bootstrap().mean(rare, groups, Rule(least=0.0, most=0.3))
    mirrored = Bootstrap().mean([-value for value in rare], groups, Rule(least=-0.3, most=0.0))
    assert free.high - 0.1 > 2 * (0.1 - free.low) and free.high > 0.3 == cut.high and cut.value == free.value
    assert mirrored.low == -0.3 and (mirrored.value, mirrored.high) == pytest.approx((-cut.value, -cut.low))
    share = Bootstrap().mean(rare, groups, SHARE)
    assert 0 < share.low < 0.1 < share.high < 1


def test_a_share_between_other_limits_is_a_share_of_their_distance():
    draws = 0.8 + 0.05 * np.random.default_rng(0).standard_normal(1000)
    share, kappa = bounds(0.8, draws, 20, SHARE), bounds(0.6, 2 * draws - 1, 20, CORRELATION)
    assert [kappa["low"], kappa["high"]] == pytest.approx([2 * share["low"] - 1, 2 * share["high"] - 1])
    assert 0.8 - share["low"] > share["high"] - 0.8
    at_the_end = bounds(-1.0, np.linspace(-1.0, -0.6, 1000), 20, CORRELATION)  # kappa -1 of equally frequent answers
    assert at_the_end["low"] == -1.0 and -0.6 < at_the_end["high"] < -0.4


@pytest.mark.parametrize("rule", [SHARE, CORRELATION, DISTANCE_TO_1, Rule(least=0.0, most=1.0), Rule()])
@pytest.mark.parametrize("seed", range(2))
def test_every_interval_contains_its_figure_and_stays_within_the_limits(rule, seed):
    rng, found = np.random.default_rng(seed), 0
    least, most = max(rule.least, -1.0), min(rule.most, 1.0)
    for kind in range(300):
        groups = int(rng.choice([15, 40, 200]))
        value = [least, most, rng.uniform(least, most), least + 10.0 ** -rng.integers(1, 160)][kind % 4]
        draws = value + 10.0 ** -rng.choice([0, 1, 2, 3, 8, 160]) * rng.standard_gamma(0.1, 200) * rng.choice(
            [-1, 1], 200
        )
        if kind % 3 == 0:  # one group of all differs
            draws = np.where(rng.random(200) < 0.5, value, draws)
        if kind % 5 == 0:
            draws[rng.random(200) < 0.05] = np.nan
        draws = draws.clip(least, most).astype([float, np.float32][kind % 2])
        ends = bounds(value, draws, groups, rule, np.abs(draws - value) if rule.method == "distance" else None)
        if "refused" not in ends:
            found += 1
            assert rule.least <= ends["low"] <= value <= ends["high"] <= rule.most
    assert found > (10 if rule.groups > 15 else 50)


def units(each, cut=lambda values: values, shared=0.3):
    """Draws the means of 15 groups of units with the intraclass correlation `shared`, in 800 runs."""

    def draw(rng):
        own, common = rng.standard_normal((800, 15, each)), rng.standard_normal((800, 15, 1))
        values = own * (1 - shared) ** 0.5 + common * shared**0.5
        return cut(values).mean(axis=2)

    return draw


def share_of(share, each, shared=0.3):
    return units(each, lambda values: values < stats.norm.ppf(share), shared)


MOSTLY_0 = stats.norm.pdf(0.5) - 0.5 * stats.norm.sf(0.5)


@pytest.mark.parametrize(
    ("draw", "truth", "rule", "by_t"),
    [
        (units(4), 0.0, Rule(), 0.97),
        (units(1, lambda values: np.maximum(0, values - 0.5)), MOSTLY_0, Rule(), 0.91),
        (share_of(0.88, 4), 0.88, SHARE, 0.93),
        (share_of(0.95, 60, 0.6), 0.95, SHARE, 0.83),
    ],
    ids=["mean", "mean that is mostly 0", "share 0.88", "share 0.95 of groups nearly of one mind"],
)
def test_an_interval_covers_with_the_fewest_groups_where_that_of_t_does_not(draw, truth, rule, by_t):
    rng, hits = np.random.default_rng(3), {"t": [], "ours": []}
    for values in draw(rng):
        draws = rng.multinomial(15, [1 / 15] * 15, 300) @ values / 15
        ends = bounds(float(values.mean()), draws, 15, rule)
        if "refused" not in ends:
            hits["ours"].append(ends["low"] <= truth <= ends["high"])
            hits["t"].append(abs(values.mean() - truth) <= stats.t.ppf(0.975, 14) * stats.sem(values))
    assert np.mean(hits["t"]) < by_t and 0.925 < np.mean(hits["ours"]) < 0.985, [*map(np.mean, hits.values())]


def test_few_answers_of_the_rarer_kind_move_the_end_on_the_side_of_the_middle():
    def ends(independent, groups):
        low, high = share_interval(0.02, independent, groups, lambda degrees: stats.t.ppf(0.975, degrees))
        return [low, high]

    def by_wilson(degrees, independent, groups=1, own=math.inf):
        counted = 1 / ((1 - math.exp(-own / 2)) / independent + math.exp(-own / 2) / groups)
        return wilson(0.02 * counted, counted, stats.t.ppf(0.975, degrees))

    assert ends(15, 15) == pytest.approx(by_wilson(14, 15))  # groups of one answer
    low, high = ends(300, 15)  # six of them, and at least 5
    assert low == pytest.approx(by_wilson(14, 300)[0])
    assert high == pytest.approx(by_wilson(5 * 300 / 285, 300, 15, 6)[1])
    low, high = ends(500, 50)  # ten of them
    assert low == pytest.approx(by_wilson(49, 500)[0])
    assert high == pytest.approx(by_wilson(8 * 500 / 450, 500, 50, 10)[1])
    assert ends(5000, 50) == pytest.approx(by_wilson(49, 5000))
    assert rate_interval(0.02, math.sqrt(0.02 * 0.98 / 300), 15) == pytest.approx(ends(300, 15))
    mirrored = share_interval(0.98, 300, 15, lambda degrees: stats.t.ppf(0.975, degrees))
    assert [1 - end for end in mirrored][::-1] == pytest.approx(ends(300, 15))
    short = share_interval(0.02, 300, 15)  # without scipy
    assert short == pytest.approx(ends(300, 15), abs=2e-4)
