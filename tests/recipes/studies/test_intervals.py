"""The study of intervals and tests, on a small scale."""

import numpy as np
import pytest
from studies import intervals


@pytest.mark.parametrize("name", intervals.INTERVALS)
def test_intervals_contain_the_truth_in_most_runs(name):
    how, draw = intervals.INTERVALS[name]
    cells = intervals.line(name, how, draw, 10, sizes=(15,)).split("|")
    assert cells[3].strip() == "-" or float(cells[3]) >= 0.6  # ECE needs more groups


@pytest.mark.parametrize("name", intervals.TESTS)
def test_tests_find_nothing_in_most_runs(name):
    how, draw = intervals.TESTS[name]
    cells = intervals.line(name, how, draw, 5, sizes=(15,)).split("|")
    assert float(cells[3]) <= 0.6


def test_a_run_without_an_interval_is_not_counted():
    assert "-" in intervals.line("none", "none", lambda rng, groups: None, 3, sizes=(5,))
    assert "1.000" in intervals.line("all", "all", lambda rng, groups: bool(np.isfinite(groups)), 3, sizes=(5,))
