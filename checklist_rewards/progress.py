"""Progress of long work on stderr: bars on a terminal, lines in a log.

    >>> with progress_on(Console(stderr=True)) as bar:  # doctest: +SKIP
    ...     reads = bar("reads", 640)
    ...     reads(64)

Where stderr is a file or a pipe, a bar is invisible until it is full. There, each count is a line, at most one per
minute and one at the end:

    reads: 12,000 of 26,400 (45%), 98/s, 2 min 27 s left
    reads: 26,400 of 26,400 (100%), took 4 min 21 s
"""

from __future__ import annotations

import threading
import time
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


class Bar:
    """One count; calling it moves it on. Threads may share it."""

    def __init__(self, what: str, total: int | None, show: Callable[[Bar], None]):
        self.what, self.total, self.done, self.note = what, total, 0, ""
        self._show, self._lock = show, threading.Lock()

    def __call__(self, done: int, note: str | None = None) -> None:
        """Count `done` more. A note, such as the current loss, stands behind the numbers until the next one."""
        with self._lock:
            self.done += done
            self.note = self.note if note is None else note
            self._show(self)

    def expect(self, more: int) -> None:
        """Raise the total."""
        with self._lock:
            self.total = (self.total or 0) + more
            self._show(self)


AddBar = Callable[[str, int | None], Bar]
"""Adds a bar, given what is counted and how many there are, None if that is not known."""


@contextmanager
def progress_on(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[AddBar]:
    """Show progress on a console while the work inside goes on.

    Args:
        console ([`~rich.console.Console`]): where to.
        clock (callable, *optional*): seconds that have passed; decides when a line is due in a log.
    """
    if not console.is_terminal and not console.is_jupyter:
        lines: list[tuple[Bar, _Lines]] = []

        def add_lines(what: str, total: int | None) -> Bar:
            shown = _Lines(console, clock)
            lines.append((Bar(what, total, shown), shown))
            return lines[-1][0]

        yield add_lines
        for bar, shown in lines:
            shown.finish(bar)
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


class _Lines:
    """The lines of one count."""

    def __init__(self, console: Console, clock: Callable[[], float]):
        self._console, self._clock = console, clock
        self._started = self._shown_at = clock()
        self._shown = 0

    def __call__(self, bar: Bar) -> None:
        now = self._clock()
        seconds = now - self._shown_at
        if seconds < SECONDS_BETWEEN_LINES:
            return
        # The rate since the last line: answers from the store come at once and say nothing about the rest.
        rate = (bar.done - self._shown) / seconds
        left = None if bar.total is None or not rate else f"{_duration((bar.total - bar.done) / rate)} left"
        self._print(bar, rate, left)
        self._shown_at, self._shown = now, bar.done

    def finish(self, bar: Bar) -> None:
        """The last line, if there was anything to count."""
        if bar.done:
            self._print(bar, None, f"took {_duration(self._clock() - self._started)}")

    def _print(self, bar: Bar, rate: float | None, time: str | None) -> None:
        total = "" if bar.total is None else f" of {bar.total:,}"
        share = f" ({100 * bar.done // bar.total}%)" if bar.total else ""
        shown = None if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
        parts = [f"{bar.what}: {bar.done:,}{total}{share}", shown, time, bar.note]
        self._console.print(", ".join(part for part in parts if part), markup=False, highlight=False, soft_wrap=True)


class _Rate(ProgressColumn):
    """Completed per second, lately; loading a model is no part of it."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
