"""When a signal alarms: the change between the first and the last steps, and CUSUM.

A detector keeps windows, not histories, so its memory is bounded. Its state is saved with a checkpoint.

A value is a tuple of sums, such as (sum of gaps, number of completions). A step gives one value for each of its parts,
which share no prompt ([`Observation.parts`]). A figure of several steps, a mean or a correlation, is computed from the
added tuples, so large steps weigh more. Its standard error is the jackknife's (Efron and Tibshirani 1993, chapter 11).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Sums = tuple[float, ...]
Figure = Callable[[Sums], float | None]
Size = Callable[[Sums, Sums], float | None]
Parts = Sequence[Sums]
"""The values of one step; empty if it has nothing to measure."""

LEAST_STEPS = 3
"""Steps that a window needs before it is compared."""
_DRIFT = 0.5
_MOST_CHANGES = 50
_FEW_CHANGES = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """A signal at one step. None where a number does not exist (yet)."""

    now: float | None = None
    start: float | None = None
    recent: float | None = None
    size: float | None = None
    error: float | None = None
    threshold: float | None = None
    alarm: bool = False
    """Whether the signal is above its threshold."""
    raised: bool = False
    """Whether it has been below at the step before."""


class Shift:
    """Compares the last steps with the first ones, or if the size is [`reached`], with a constant.

    Args:
        figure (callable): Sums to the value that is shown.
        size (callable): Sums of the first and of the last steps to the size that is compared with the threshold. If it
            needs the first steps, they are not among the last ones.
        start, window (`int`): Number of first and of last steps.
        threshold (`float`, *optional*): Size of an alarm. None: never.
        certainty (`float`): Size of an alarm in standard errors.
    """

    def __init__(
        self, figure: Figure, size: Size, *, start: int, window: int, threshold: float | None, certainty: float
    ):
        self.figure, self.size, self.relative = figure, size, size is not reached
        self.steps, self.threshold, self.certainty = start, threshold, certainty
        self.start: list[Parts] = []
        self.recent: deque[Parts] = deque(maxlen=window)
        self.alarm = False

    def update(self, parts: Parts) -> Reading:
        """Add the values of a step."""
        if parts:
            filling = len(self.start) < self.steps
            if filling:
                self.start.append(parts)
            if not (filling and self.relative):
                self.recent.append(parts)
        first, last = _added(_flat(self.start)), _added(_flat(self.recent))
        size = error = None
        if last is not None and first is not None and len(self.recent) >= LEAST_STEPS:
            size, error = self._sized(first, last)
        before, self.alarm = self.alarm, self._above(size, error)
        sums = (_added(parts), first, last)
        now, start, recent = (None if one is None else self.figure(one) for one in sums)
        return Reading(now, start, recent, size, error, self.threshold, self.alarm, self.alarm and not before)

    def _above(self, size: float | None, error: float | None) -> bool:
        if size is None or self.threshold is None:
            return False
        return size >= self.threshold and (error is None or size >= self.certainty * error)

    def _sized(self, start: Sums, recent: Sums) -> tuple[float | None, float | None]:
        """The size and its standard error: the larger one of the jackknife over parts and over whole steps, because
        steps may differ in what their prompts have in common, and a few steps alone are a poor estimate. The variance
        of a change is the sum of those of the first and of the last steps. A change inside the window makes the error
        larger, so a slow one alarms later; a few first steps that are alike by chance no longer make it small."""

        def error(first: Sequence[Sums], last: Sequence[Sums]) -> float | None:
            of_first = _jackknife([self.size(_less(start, sums), recent) for sums in first]) if self.relative else None
            of_last = _jackknife([self.size(start, _less(recent, sums)) for sums in last])
            return None if of_first is None and of_last is None else math.hypot(of_first or 0.0, of_last or 0.0)

        errors = map(error, _windows(self.start), _windows(self.recent))
        return self.size(start, recent), max((each for each in errors if each is not None), default=None)

    @property
    def state(self) -> dict[str, Any]:
        """What [`restore`] needs, as JSON-compatible values."""
        windows = {"start": self.start, "recent": self.recent}
        return {name: [[*map(list, parts)] for parts in window] for name, window in windows.items()} | {
            "alarm": self.alarm
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. Raises `KeyError`, `TypeError` or `ValueError` if it is not one."""
        self.start = _read(state["start"])[: self.steps]
        self.recent = deque(_read(state["recent"]), maxlen=self.recent.maxlen)
        self.alarm = bool(state["alarm"])


class Cusum:
    """Two-sided CUSUM of the changes of a value from step to step (Page 1954).

    A change is divided by a scale: the standard deviation of the n changes before it, at most the first 50, times 1 +
    3 / n. The factor is for small n: the deviation of a few changes is often far too small, and noise then looks like
    jumps. A change that alarms is not part of the scale. Upwards S = max(0, S + change - 0.5), downwards likewise; the
    size is the larger one. Steady improvement of less than half a standard deviation per step adds up to nothing, a
    jump does. After an alarm, both sums start again at 0.

    Args:
        figure (callable): Sums of a step to its value.
        start (`int`): Number of changes before the first one that is compared.
        threshold (`float`, *optional*): Size of an alarm. None: never.
    """

    def __init__(self, figure: Figure, *, start: int, threshold: float | None):
        self.figure, self.steps, self.threshold = figure, start, threshold
        self.changes: list[float] = []
        self.last: float | None = None
        self.up = self.down = 0.0

    def update(self, parts: Parts) -> Reading:
        """Add the values of a step."""
        sums = _added(parts)
        now = None if sums is None else self.figure(sums)
        size = None
        raised = False
        if now is not None:
            change = None if self.last is None else now - self.last
            self.last = now
            if change is not None and len(self.changes) < self.steps:
                self.changes.append(change)
            elif change is not None:
                scale = self._scale()
                self.up = max(0.0, self.up + change / scale - _DRIFT)
                self.down = max(0.0, self.down - change / scale - _DRIFT)
                size = max(self.up, self.down)
                raised = self.threshold is not None and size >= self.threshold
                if raised:
                    self.up = self.down = 0.0
                elif len(self.changes) < _MOST_CHANGES:
                    self.changes.append(change)
        return Reading(now, size=size, threshold=self.threshold, alarm=raised, raised=raised)

    def _scale(self) -> float:
        """The scale of a change; 1 if all changes before it are equal, so that it counts as it is."""
        count = len(self.changes)
        return math.sqrt(count / (count - 1)) * (1 + _FEW_CHANGES / count) * spread(self.changes) or 1.0

    def new_segment(self) -> None:
        """Do not count the next change: it is that of the checklists."""
        self.last = None

    @property
    def state(self) -> dict[str, Any]:
        """As that of [`Shift`]."""
        return {"changes": list(self.changes), "last": self.last, "up": self.up, "down": self.down}

    def restore(self, state: Mapping[str, Any]) -> None:
        """As that of [`Shift`]."""
        self.changes = [*map(float, state["changes"])][: max(self.steps, _MOST_CHANGES)]
        self.last = None if state["last"] is None else float(state["last"])
        self.up, self.down = float(state["up"]), float(state["down"])


def spread(values: Sequence[float]) -> float:
    """Population standard deviation, 0 if it is only rounding; twenty times as fast as that of `statistics`."""
    centre = math.fsum(values) / len(values)
    found = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))
    return found if found > 1e-12 else 0.0


def mean(sums: Sums) -> float | None:
    """The first sum divided by the second."""
    return sums[0] / sums[1] if sums[1] else None


def risen(figure: Figure = mean) -> Size:
    """recent - start."""
    return lambda start, recent: _minus(figure(recent), figure(start))


def fallen(figure: Figure = mean) -> Size:
    """start - recent."""
    return lambda start, recent: _minus(figure(start), figure(recent))


def reached(start: Sums, recent: Sums) -> float | None:
    """recent, whatever the start."""
    return mean(recent)


def changed(start: Sums, recent: Sums) -> float | None:
    """The larger of recent / start and start / recent, minus 1."""
    before, after = mean(start), mean(recent)
    return max(before / after, after / before) - 1 if before and after else None


def lost(start: Sums, recent: Sums) -> float | None:
    """1 - recent / start."""
    before, after = mean(start), mean(recent)
    return None if after is None or not before else 1 - after / before


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _added(values: Iterable[Sums]) -> Sums | None:
    known = list(values)
    return tuple(map(math.fsum, zip(*known, strict=True))) if known else None


def _read(window: Iterable[Any]) -> list[Parts]:
    return [[tuple(map(float, sums)) for sums in parts] for parts in window]


def _flat(window: Iterable[Parts]) -> list[Sums]:
    return [sums for parts in window for sums in parts]


def _windows(window: Iterable[Parts]) -> tuple[list[Sums], list[Sums]]:
    """A window by parts, and by steps."""
    steps = list(window)
    return _flat(steps), [added for parts in steps if (added := _added(parts)) is not None]


def _jackknife(sizes: Sequence[float | None]) -> float | None:
    """Standard error from the sizes without each of the values."""
    known = [size for size in sizes if size is not None]
    return math.sqrt(len(known) - 1) * spread(known) if len(known) > 1 else None


def _less(total: Sums, sums: Sums) -> Sums:
    return tuple(all - one for all, one in zip(total, sums, strict=True))
