"""Progress in a log: a line per minute at most, and one at the end."""

import io

import pytest
from rich.console import Console

from checklist_rewards.progress import SECONDS_VARIABLE, progress_on


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def lines(log: io.StringIO) -> list[str]:
    return log.getvalue().splitlines()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log():
    return io.StringIO()


def test_a_line_per_minute_with_counts_rate_and_what_is_left_and_one_at_the_end(clock, log):
    with progress_on(Console(file=log), clock) as bar:
        reads = bar("reads", 26_400)
        for clock.seconds in range(10, 200, 10):
            reads(600)
        reads(26_400 - 19 * 600)
        assert lines(log) == [
            "reads: 3,600 of 26,400 (13%), 60/s, 6 min 20 s left",
            "reads: 7,200 of 26,400 (27%), 60/s, 5 min 20 s left",
            "reads: 10,800 of 26,400 (40%), 60/s, 4 min 20 s left",
        ]
    assert lines(log)[3:] == ["reads: 26,400 of 26,400 (100%), took 3 min 10 s"]


def test_the_rate_is_the_one_of_the_last_line_on(clock, log):
    with progress_on(Console(file=log), clock) as bar:
        reads = bar("reads", 10_000)
        clock.seconds = 60
        reads(9_000)  # most were in the store
        clock.seconds = 120
        reads(6)
        clock.seconds = 180
        reads(0)
    assert lines(log) == [
        "reads: 9,000 of 10,000 (90%), estimating",
        "reads: 9,006 of 10,000 (90%), 0.1/s, 2 h 45 min left",
        "reads: 9,006 of 10,000 (90%), 0/s",
        "reads: 9,006 of 10,000 (90%), took 3 min 0 s",
    ]


def test_the_time_left_is_estimated_from_the_answers_and_not_from_the_time_to_load(clock, log, monkeypatch):
    monkeypatch.setenv(SECONDS_VARIABLE, "1")
    with progress_on(Console(file=log), clock) as bar:
        reads = bar("reads", 1_000)
        clock.seconds = 40  # the model is loaded
        reads(10)
        for clock.seconds in (42, 44, 46):
            reads(20)
        clock.seconds = 106
        reads(20)
        clock.seconds = 116  # the window is a minute: it begins at 106
        reads(5)
        assert lines(log) == [
            "reads: 10 of 1,000 (1%), estimating",
            "reads: 30 of 1,000 (3%), estimating",
            "reads: 50 of 1,000 (5%), estimating",
            "reads: 70 of 1,000 (7%), 10/s, 1 min 33 s left",
            "reads: 90 of 1,000 (9%), 0.33/s, 45 min 30 s left",
            "reads: 95 of 1,000 (9%), 0.5/s, 30 min 10 s left",
        ]


def test_a_note_stands_behind_the_numbers_and_a_total_may_grow_or_be_unknown(clock, log):
    with progress_on(Console(file=log), clock) as bar:
        steps, draws, unused = bar("steps", 0), bar("draws [all]", None), bar("rows", 5)
        steps.expect(4)
        clock.seconds = 60
        steps(1, "loss 0.5")
        draws(3)
        assert lines(log) == ["steps: 1 of 4 (25%), estimating, loss 0.5", "draws [all]: 3"]
    assert lines(log)[2:] == ["steps: 1 of 4 (25%), took 1 min 0 s, loss 0.5", "draws [all]: 3, took 1 min 0 s"]
    assert unused.done == 0


def test_work_that_breaks_has_no_last_line(clock, log):
    with pytest.raises(ZeroDivisionError), progress_on(Console(file=log), clock) as bar:
        bar("reads", 2)(1)
        raise ZeroDivisionError
    assert lines(log) == []


def test_a_terminal_gets_bars(log):
    console = Console(file=log, force_terminal=True, width=200)
    with progress_on(console) as bar:
        reads = bar("reads", 1)
        reads.expect(1)
        reads(2, "loss 0.5")
    assert "reads, loss 0.5" in log.getvalue() and "2/2" in log.getvalue()
