"""A signal: what is measured at each step, and which completions show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from checklist_rewards.monitor.detectors import Cusum, Detector, Figure, Shift, Size, Sums, mean, risen
from checklist_rewards.monitor.seen import Observation, Seen
from checklist_rewards.monitor.settings import MonitorSettings

About = Literal["hacking", "judge", "training"]
Evidence = Callable[[Seen], float | None]


@dataclass(frozen=True)
class Signal:
    """One thing that is watched."""

    name: str
    """`max_<name>` of [`MonitorSettings`] is its threshold."""
    about: About
    """`hacking`: the policy may exploit the reward. `judge`: its answers cannot be trusted. `training`: the reward
    teaches little."""
    doc: str
    """What an alarm means, in one sentence."""
    measure: Callable[[Observation], Sums | None]
    """The sums of one step; None if the step has nothing to measure."""
    evidence: Evidence
    """How well a completion shows it: the larger, the better. None: not at all."""
    why: str
    """What the number of `evidence` is."""
    figure: Figure = mean
    size: Size | None = risen()
    """None: CUSUM."""
    relative: bool = True
    """Whether the size is relative to the first steps."""
    found: Callable[[Observation], str] | None = None
    """What a step shows, as a sentence that an alarm adds to `doc`."""

    def detector(self, settings: MonitorSettings) -> Detector:
        """A new detector for this signal."""
        threshold = settings.threshold(self.name)
        if self.size is None:
            return Cusum(self.figure, start=settings.start, threshold=threshold)
        return Shift(
            self.figure,
            self.size,
            self.relative,
            start=settings.start,
            window=settings.window,
            threshold=threshold,
            certainty=settings.certainty,
        )


def mean_of(values: Iterable[float | None]) -> Sums | None:
    """The sums of a mean over the values that exist."""
    known = [value for value in values if value is not None]
    return (sum(known), len(known)) if known else None


def over(number: Callable[[Seen], float | None]) -> Callable[[Observation], Sums | None]:
    """The measure that is the mean of a number over completions."""
    return lambda observation: mean_of(map(number, observation.seen))


def best(completions: Iterable[Seen], evidence: Evidence, count: int = 3) -> list[tuple[Seen, float]]:
    """The completions that show a signal best, with the evidence. Equal texts of one prompt are shown once."""
    rated = [(value, one) for one in completions if (value := evidence(one)) is not None]
    found: list[tuple[Seen, float]] = []
    shown: set[tuple[str, str]] = set()
    for value, one in sorted(rated, key=lambda pair: -pair[0]):
        if len(found) < count and (one.group, one.text) not in shown:
            shown.add((one.group, one.text))
            found.append((one, float(value)))
    return found
