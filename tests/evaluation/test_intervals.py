"""Errors over groups, quantiles with few groups, and intervals of rates."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from checklist_rewards.evaluation.intervals import clustered_error, rate_interval, t_quantile, t_test_p


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
