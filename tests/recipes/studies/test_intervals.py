"""The study of intervals and tests, on a small scale."""

import numpy as np
import pytest
from scipy import stats
from studies import intervals

from checklist_rewards.evaluation.bootstrap import Figure
from checklist_rewards.evaluation.measures import Numbers, Raters


@pytest.mark.parametrize("name", [name for name in intervals.FAMILIES if not name.startswith("tests")])
def test_intervals_contain_the_truth_in_most_runs(name):
    rows = [row.split("|")[1:3] for row in intervals.lines(name, 4, sizes=(15,))]
    shares = [float(cell) for figure, cell in rows if cell.strip() != "-" and "no random sample" not in figure]
    assert all(share >= 0.5 for share in shares)
    assert shares or name.startswith(("agree-judge", "agree-near", "calibrate"))  # these need more groups


def test_the_figures_of_sums_are_those_of_the_package():
    found = intervals.ranks(np.random.default_rng(1), 20)
    rng, codes = np.random.default_rng(1), intervals.equal(20)
    columns, (p, labels) = intervals.correlated(rng, codes, 3), intervals.judge(rng, codes)
    expected = Numbers(*columns[:2], only=("spearman",)).figures() | Numbers(p, labels, only=("auc",)).figures()
    levels = [np.array(list(intervals.LEVELS))[np.digitize(column, (-1, 0, 1))].tolist() for column in columns]
    for what, answers, values in (
        ("yes/no", map(intervals.words, columns), {"yes": 1.0, "no": 0.0}),
        ("levels", levels, intervals.LEVELS),
    ):
        figures = Raters(list(zip(*answers, strict=True)), values).figures()
        expected |= {f"{name}, {what}": figures[name] for name in ("alpha", "fleiss_kappa")}
    assert {name: figure.value for name, figure in found.items()} == pytest.approx(expected)
    drawn = np.repeat(np.random.default_rng(2).multinomial(20, [1 / 20] * 20, 5), 4, axis=1)
    for weights, ranks in zip(drawn, intervals._ranks(columns[0], drawn), strict=True):
        assert np.repeat(ranks, weights) == pytest.approx(stats.rankdata(np.repeat(columns[0], weights)))


@pytest.mark.parametrize("name", [name for name in intervals.FAMILIES if name.startswith("tests")])
def test_tests_find_nothing_in_most_runs(name):
    cells = [row.split("|")[2].strip() for row in intervals.lines(name, 5, sizes=(15,))]
    assert cells and all(float(cell) <= 0.6 for cell in cells if cell != "-")


def test_a_run_without_an_interval_is_not_counted():
    known, unknown = Figure(value=1.0, low=0.5, high=2.0), Figure(value=1.0, refused="needs 15 groups, has 5")
    assert intervals.share([unknown, unknown, known], 1.0) == "-"
    assert intervals.share([known, known, unknown], 3.0) == "0.000" and intervals.share([known, known]) == "1.000"
    assert intervals.share([True, False, False, None]) == "0.333"
