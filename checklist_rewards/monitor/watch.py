"""All signals together: an observation in, readings and alarms out. The same in a training run and on a log."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b
from statistics import fmean
from typing import Any

from checklist_rewards.attacks.patterns import Pattern
from checklist_rewards.monitor.detectors import LEAST_STEPS, Cusum, Reading, Sums
from checklist_rewards.monitor.extra_reads import CANARY, Canary, raised
from checklist_rewards.monitor.seen import Observation
from checklist_rewards.monitor.signals import (
    SIGNALS,
    About,
    Signal,
    attack_signals,
    best,
    credit,
    length_matched,
    within_groups,
)
from checklist_rewards.rewards.batch import Guard
from checklist_rewards.rewards.settings import Action, MonitorConfig
from checklist_rewards.scores import TargetState

MOST_FAILURES = 3
"""Failures after which a part of the monitor is turned off."""
_STATES: tuple[TargetState, ...] = ("empty", "cut_in_thought", "unfinished", "cut")
_MOST_PROMPTS = 10_000
"""Prompts whose last checklist is remembered."""
NO_DATA = "no data in the log"
"""Why a signal was not evaluated."""


@dataclass(frozen=True)
class Shown:
    """A completion that shows an alarm."""

    prompt: str
    completion: str
    reward: float | None
    evidence: float
    why: str
    """What the number `evidence` is."""
    state: TargetState | None = None
    """What the policy made of its turn; None if that is not recorded."""


@dataclass(frozen=True)
class Alarm:
    """A signal that reached its threshold."""

    step: int
    signal: str
    about: About
    size: float
    threshold: float
    action: Action
    """What is done: the `action` of the settings, but `warn` instead of `stop` for alarms about training."""
    message: str
    completions: tuple[Shown, ...]
    """The three completions of the step that show it best."""

    def record(self) -> dict[str, Any]:
        """The record in the monitor's file."""
        return {"kind": "alarm", **asdict(self)}

    def __str__(self) -> str:
        """One paragraph for logs."""
        shown = "".join(
            f"\n  {one.why} {one.evidence:.3g}{_named(one.state)}: {one.completion!r:.160}" for one in self.completions
        )
        sizes = f"{self.size:.3g} >= {self.threshold:.3g}"
        return f"step {self.step}, {self.signal} ({self.about}): {sizes}. {self.message}{shown}"


@dataclass
class Watch:
    """The detectors of all signals."""

    settings: MonitorConfig
    """Thresholds and windows."""
    guard: Guard | None = None
    """Runs each signal, so that a broken one does not silence the others. By default, its error is raised."""
    attacks: Sequence[Pattern] = ()
    """Attacks that raised the judge's scores; each is a signal."""
    alarms: int = 0
    """Number of alarms so far."""
    steps: int = 0
    """Number of steps of this run."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """The readings after the last of them."""
    _start: Sums | None = field(default=None, repr=False)
    _started: int = 0

    def __post_init__(self) -> None:
        signals = [*SIGNALS, *attack_signals(pattern.name for pattern in self.attacks)]
        self.signals = [s for s in signals if self.settings.threshold(s.name) is not None]
        if self.settings.steering == "off":
            self.signals = [s for s in self.signals if s.name not in ("steering", "judged_steering")]
        self._detectors = {signal.name: signal.detector(self.settings) for signal in self.signals}
        self._had: Counter[str] = Counter()  # steps of this run with data; 0 if only a run before it had some
        self._evaluated: set[str] = set()
        self._checklists: OrderedDict[str, dict[str, str]] = OrderedDict()
        """For each prompt, the last checklist of each of its rows."""
        self._changed = 0

    def update(self, observation: Observation) -> tuple[dict[str, Reading], list[Alarm]]:
        """Add a step.

        Returns:
            The readings of the signals that had a value at this or an earlier step, and the new alarms.
        """
        readings: dict[str, Reading] = {}
        alarms: list[Alarm] = []
        self._changed = self._changed_checklists(observation)
        if self._changed:
            for detector in self._detectors.values():
                if isinstance(detector, Cusum):
                    detector.new_segment()
        for signal in self.signals:
            work = partial(self._measured, signal, observation)
            found = work() if self.guard is None else self.guard(f"signal {signal.name}", work, None)
            if found is not None:
                readings[signal.name], alarm = found
                alarms += [] if alarm is None else [alarm]
        self.alarms += len(alarms)
        self.steps, self.readings = self.steps + 1, readings
        self._evaluated.update(name for name, reading in readings.items() if reading.size is not None)
        return readings, alarms

    def _measured(self, signal: Signal, observation: Observation) -> tuple[Reading, Alarm | None] | None:
        """The reading of a signal and its new alarm; None if it had no value yet."""
        parts = [sums for part in observation.parts if (sums := signal.measure(part)) is not None]
        reading = self._detectors[signal.name].update(parts)
        if parts:
            self._had[signal.name] += 1
        if signal.name not in self._had:
            return None
        return reading, self._alarm(signal, reading, observation) if reading.raised else None

    def not_evaluated(self) -> tuple[dict[str, str], bool]:
        """The signals that were never compared with their threshold in this run: the reason by signal, and whether
        there were too few steps for some that have data."""
        least = self.settings.start + LEAST_STEPS
        missing = {}
        for name in [signal.name for signal in self.signals if signal.name not in self._evaluated]:
            if name not in self.readings:
                missing[name] = NO_DATA
            elif self.steps < least:
                missing[name] = f"fewer than {least} steps"
            else:
                rare = self._had[name] < least
                missing[name] = f"data in fewer than {least} steps" if rare else "values that cannot be compared"
        return missing, self.steps < least and any(reason != NO_DATA for reason in missing.values())

    def canaries(self, step: int, found: Sequence[Canary]) -> list[Alarm]:
        """The alarm of degenerate replies with a high score, if any."""
        threshold = self.settings.max_canary
        size, canaries = raised(found)
        if threshold is None or size is None or size < threshold:
            return []
        shown = tuple(Shown(c.prompt, c.completion, c.score, c.score or 0.0, c.name) for c in canaries)
        message = f"The judge rewards a degenerate reply ({canaries[0].name})."
        self.alarms += 1
        return [Alarm(step, CANARY, "judge", size, threshold, self._action("judge"), message, shown)]

    def statistics(self, observation: Observation) -> dict[str, float]:
        """Plain numbers of one step. Those of texts and items are over the completions with an answer."""
        seen = observation.seen
        states = [one.state for one in seen if one.state is not None]
        lines = [line for one in seen for line in one.lines]
        passed = [line.passed for one in seen if one.score is not None for line in one.lines]
        shadows = [one.shadow for one in seen if one.shadow is not None]
        numbers: dict[str, float | None] = {
            "checklists_changed": float(self._changed) if self._changed else None,
            "reward_mean": _mean(one.reward for one in seen),
            "pass_rate": _mean(passed),
            "words": _mean(one.words for one in observation.answered),
            "label_mass": _mean(line.mass for line in lines),
            "unanswered": _mean(line.unanswered for line in lines),
            "reward_rewarded": _mean(credit(one, False) for one in seen),
            "reward_held_out": _mean(credit(one, True) for one in seen),
            "shadow_reward": _mean(one.shadow for one in shadows),
            "shadow_own": _mean(one.own for one in shadows),
            "length_matched": self._length_matched(within_groups(observation)),
            **{name: _mean(state == name for state in states) for name in _STATES},
        }
        return {name: value for name, value in numbers.items() if value is not None}

    @property
    def state(self) -> dict[str, Any]:
        """The state of all detectors, as JSON-compatible values."""
        return {
            "signals": {name: detector.state for name, detector in self._detectors.items()},
            "had": sorted(self._had),
            "alarms": self.alarms,
            "start": None if self._start is None else list(self._start),
            "started": self._started,
            "checklists": dict(self._checklists),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. Signals that it does not have begin anew."""
        for name, detector in self._detectors.items():
            if name in state["signals"]:
                detector.restore(state["signals"][name])
        self._had, self.alarms = Counter(dict.fromkeys(state["had"], 0)), int(state["alarms"])
        self._start = None if state["start"] is None else tuple(map(float, state["start"]))
        self._started = int(state["started"])
        known = state["checklists"].items()  # those of earlier versions have no rows
        self._checklists = OrderedDict((prompt, rows) for prompt, rows in known if isinstance(rows, dict))

    def _changed_checklists(self, observation: Observation) -> int:
        """Number of checklists that are others than before of their prompt, or of their row of the dataset: a prompt
        may be in several rows."""
        found: dict[str, dict[str, str]] = {}
        for one in observation.seen:
            if one.checklist is not None:
                prompt, own = _digest(one.prompt_key or one.prompt), _digest(one.own_items)
                found.setdefault(prompt, {})[own] = _digest(one.checklist)
        known = [(self._checklists[prompt], rows) for prompt, rows in found.items() if prompt in self._checklists]
        changed = sum(had.get(own) != checklist for had, rows in known for own, checklist in rows.items())
        for prompt, rows in found.items():
            self._checklists[prompt] = self._checklists.get(prompt, {}) | rows
            self._checklists.move_to_end(prompt)
        while len(self._checklists) > _MOST_PROMPTS:
            self._checklists.popitem(last=False)
        return changed

    def _alarm(self, signal: Signal, reading: Reading, observation: Observation) -> Alarm:
        shown = tuple(
            Shown(one.prompt, one.text, one.reward, value, signal.why, one.state)
            for one, value in best(observation.seen, signal.evidence)
        )
        assert reading.size is not None and reading.threshold is not None
        action = self._action(signal.about)
        message = signal.doc if signal.found is None else f"{signal.doc} {signal.found(observation)}"
        return Alarm(
            observation.step, signal.name, signal.about, reading.size, reading.threshold, action, message, shown
        )

    def _action(self, about: About) -> Action:
        return "warn" if self.settings.action == "stop" and about == "training" else self.settings.action

    def _length_matched(self, sums: Sums | None) -> float | None:
        if sums is None:
            return None
        if self._started < self.settings.start:
            self._started += 1
            start = self._start or (0.0,) * len(sums)
            self._start = tuple(a + b for a, b in zip(start, sums, strict=True))
        return None if self._start is None else length_matched(self._start, sums)


def step_record(
    observation: Observation,
    readings: Mapping[str, Reading],
    statistics: Mapping[str, float],
    reads: Mapping[str, int],
) -> dict[str, Any]:
    """The record of a step in the monitor's file; see docs/monitor.md."""
    names = ("now", "start", "recent", "size", "threshold", "error", "alarm")
    return {
        "kind": "step",
        "step": observation.step,
        "completions": len(observation.seen),
        "scored": sum(one.reward is not None for one in observation.seen),
        "groups": len(observation.groups),
        "reads": dict(reads),
        "signals": {signal: {name: getattr(reading, name) for name in names} for signal, reading in readings.items()},
        "statistics": dict(statistics),
    }


def start_record(name: str, step: int, watch: Watch) -> dict[str, Any]:
    """The record that begins a file."""
    return {
        "kind": "start",
        "format": FORMAT,
        "reward": name,
        "step": step,
        "settings": watch.settings.model_dump(exclude={"log", "shadow", "attacks"}),
        "signals": [
            {"name": s.name, "about": s.about, "threshold": watch.settings.threshold(s.name), "doc": s.doc}
            for s in watch.signals
        ],
    }


FORMAT = "checklist-rewards-monitor-1"


def _named(state: TargetState | None) -> str:
    return "" if state in (None, "answered") else f" ({state})"


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that exist."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
