"""Progress of long-running work on stderr: bars on a terminal, lines in a log.

    >>> with progress_on(Console(stderr=True)) as bar:  # doctest: +SKIP
    ...     reads = bar("reads", 640)
    ...     reads(64)

If stderr is a file or a pipe, progress is printed as lines instead, at most one per minute (or per
`CHECKLIST_REWARDS_PROGRESS_SECONDS`) and one at the end:

    reads: 640 of 26,400 (2%), estimating
    reads: 12,000 of 26,400 (45%), 98/s, 2 min 27 s left
    reads: 26,400 of 26,400 (100%), took 4 min 21 s
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

SECONDS_BETWEEN_LINES = 60.0
SHORTEST_WINDOW = 5.0
"""Seconds that a rate is measured over at least, before a time left is estimated."""
SECONDS_VARIABLE = "CHECKLIST_REWARDS_PROGRESS_SECONDS"
"""Environment variable that replaces `SECONDS_BETWEEN_LINES`, for a program that reads the lines."""
FORECAST_VARIABLE = "CHECKLIST_REWARDS_FORECAST"
"""Environment variable: with `json`, a dry run prints its table and notes as JSON, for a program that reads them."""


class Bar:
    """One counter. Call it to advance it. Safe to share between threads."""

    def __init__(self, what: str, total: int | None, show: Callable[[Bar], None]):
        self.what, self.total, self.done, self.note = what, total, 0, ""
        self._show, self._lock = show, threading.Lock()

    def __call__(self, done: int, note: str | None = None) -> None:
        """Advance the counter by `done`. A note, such as the current loss, is shown after the numbers until the next
        note replaces it."""
        with self._lock:
            self.done += done
            self.note = self.note if note is None else note
            self._show(self)

    def expect(self, more: int) -> None:
        """Increase the total by `more`."""
        with self._lock:
            self.total = (self.total or 0) + more
            self._show(self)


AddBar = Callable[[str, int | None], Bar]
"""Adds a bar. Arguments: the name of what is counted, and the total (None if unknown)."""


@contextmanager
def progress_on(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[AddBar]:
    """Show progress on a console while the block runs.

    Args:
        console ([`~rich.console.Console`]): The console to write to.
        clock (callable, *optional*): Returns the current time in seconds; determines when the next log line is due.
    """
    if not console.is_terminal and not console.is_jupyter:
        printers: list[tuple[Bar, _LinePrinter]] = []

        def add_lines(what: str, total: int | None) -> Bar:
            printer = _LinePrinter(console, clock)
            printers.append((Bar(what, total, printer), printer))
            return printers[-1][0]

        yield add_lines
        for bar, printer in printers:
            printer.finish(bar)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:

        def add_task(what: str, total: int | None) -> Bar:
            task = progress.add_task(escape(what), total=total)

            def show(bar: Bar) -> None:
                described = escape(f"{bar.what}, {bar.note}" if bar.note else bar.what)
                progress.update(task, completed=bar.done, total=bar.total, description=described)

            return Bar(what, total, show)

        yield add_task


class _LinePrinter:
    """Prints the log lines of one counter.

    The rate is that of the last minute, or of the time since the last line if that is longer. It is measured from the
    first answers on: the time to load a model, and answers that were in the store, would distort the estimate.
    """

    def __init__(self, console: Console, clock: Callable[[], float]):
        self._console, self._clock = console, clock
        self._started = self._shown_at = clock()
        self._seconds = _seconds_between_lines()
        self._points: deque[tuple[float, int]] = deque()

    def __call__(self, bar: Bar) -> None:
        now = self._clock()
        if not self._points and bar.done:
            self._points.append((now, bar.done))
        if now - self._shown_at < self._seconds:
            return
        while len(self._points) > 1 and self._points[0][0] < now - SECONDS_BETWEEN_LINES:
            self._points.popleft()
        self._print(bar, *self._estimate(bar, now))
        self._points.append((now, bar.done))
        self._shown_at = now

    def _estimate(self, bar: Bar, now: float) -> tuple[float | None, str | None]:
        """The rate per second, and the time left in words; None for what is not known."""
        begin, before = self._points[0] if self._points else (now, bar.done)
        seconds = now - begin
        if seconds < SHORTEST_WINDOW:
            return None, None if bar.total is None else "estimating"
        rate = (bar.done - before) / seconds
        return rate, None if bar.total is None or not rate else f"{_duration((bar.total - bar.done) / rate)} left"

    def finish(self, bar: Bar) -> None:
        """Print the last line, if anything was counted."""
        if bar.done:
            self._print(bar, None, f"took {_duration(self._clock() - self._started)}")

    def _print(self, bar: Bar, rate: float | None, time: str | None) -> None:
        total = "" if bar.total is None else f" of {bar.total:,}"
        percent = f" ({100 * bar.done // bar.total}%)" if bar.total else ""
        speed = None if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
        parts = [f"{bar.what}: {bar.done:,}{total}{percent}", speed, time, bar.note]
        self._console.print(", ".join(part for part in parts if part), markup=False, highlight=False, soft_wrap=True)


class _Rate(ProgressColumn):
    """Recent number completed per second, without the time to load a model."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


def _seconds_between_lines() -> float:
    try:
        return float(os.environ[SECONDS_VARIABLE])
    except (KeyError, ValueError):
        return SECONDS_BETWEEN_LINES


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
