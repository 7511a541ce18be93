"""The study of intervals and tests, on a small scale."""

import pytest
from studies import intervals

from checklist_rewards.evaluation.bootstrap import Figure


@pytest.mark.parametrize("name", [name for name in intervals.FAMILIES if not name.startswith("tests")])
def test_intervals_contain_the_truth_in_most_runs(name):
    rows = [row.split("|")[1:3] for row in intervals.lines(name, 4, sizes=(15,))]
    shares = [float(cell) for figure, cell in rows if cell.strip() != "-" and "no random sample" not in figure]
    assert all(share >= 0.5 for share in shares)
    assert shares or name in ("agree-near", "calibrate")  # these need more groups


@pytest.mark.parametrize("name", [name for name in intervals.FAMILIES if name.startswith("tests")])
def test_tests_find_nothing_in_most_runs(name):
    cells = [row.split("|")[2].strip() for row in intervals.lines(name, 5, sizes=(15,))]
    assert cells and all(float(cell) <= 0.6 for cell in cells if cell != "-")


def test_a_run_without_an_interval_is_not_counted():
    known, unknown = Figure(value=1.0, low=0.5, high=2.0), Figure(value=1.0, refused="needs 15 groups, has 5")
    assert intervals.share([unknown, unknown, known], 1.0) == "-"
    assert intervals.share([known, known, unknown], 3.0) == "0.000" and intervals.share([known, known]) == "1.000"
    assert intervals.share([True, False, False, None]) == "0.333"
