"""The signals of a reward log, without a model: what a monitor would have seen, or did see.

A log of a plain reward has no held-out items, no shadow judge and no retests, so those signals are not evaluated. The
log of a monitored reward has them. Logs of earlier versions have no states of completions. Rows are streamed, one step
in memory at a time.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from checklist_rewards.attacks.patterns import Pattern
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import REWARDS, ScoredText, list_in, scored_text
from checklist_rewards.files.ranks import Starts, other_ranks, starts_in
from checklist_rewards.files.rows import Row, read_rows
from checklist_rewards.monitor.detectors import Reading
from checklist_rewards.monitor.seen import Observation, Retest, Seen, seen_of
from checklist_rewards.monitor.watch import Alarm, Watch, start_record, step_record
from checklist_rewards.rewards.settings import MonitorConfig

logger = logging.getLogger(__name__)

Record = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True)
class Audit:
    """What was found in a log."""

    steps: int
    completions: int
    readings: Mapping[str, Reading]
    """The signals after the last step."""
    alarms: tuple[Alarm, ...]
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    """Signals that are not turned off and were never compared with their threshold, with the reason."""
    too_short: bool = False
    """Whether the log has data for some of them, but fewer steps than a signal needs."""

    def as_json(self) -> dict[str, Any]:
        """The result as JSON-compatible values."""
        return {
            "steps": self.steps,
            "completions": self.completions,
            "signals": {name: asdict(reading) for name, reading in self.readings.items()},
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "not_evaluated": dict(self.not_evaluated),
        }


def audit(
    paths: Sequence[str | Path],
    settings: MonitorConfig | None = None,
    record: Record | None = None,
    attacks: Sequence[Pattern] = (),
) -> Audit:
    """Compute the signals of a reward log.

    Args:
        paths (sequence of `str` or `Path`): Reward logs (`ChecklistReward(log=...)`) of one run; the files of its
            other ranks are found by their names.
        settings ([`MonitorConfig`], *optional*): Thresholds and windows.
        record (callable, *optional*): Called with the records that a monitor would have written.
        attacks (sequence of [`Pattern`], *optional*): Attacks to look for in the completions ([`patterns_of`]).

    Raises:
        SampleError: If a file is not a reward log; names the file and the row. Also if no file has rows of training.
    """
    watch = Watch(settings or MonitorConfig(), attacks=attacks)
    if record is not None:
        record(start_record("audit", 0, watch))
    completions = 0
    alarms: list[Alarm] = []
    for observation in observations(paths, attacks):
        readings, raised = watch.update(observation)
        alarms += raised
        completions += len(observation.seen)
        if record is not None:
            reads = {"checklist": sum(len(one.lines) for one in observation.seen)}
            record(step_record(observation, readings, watch.statistics(observation), reads))
            for alarm in raised:
                record(alarm.record())
    if not watch.steps:
        raise SampleError(f"{', '.join(map(str, paths))}: no rows of training.")
    return Audit(watch.steps, completions, watch.readings, tuple(alarms), *watch.not_evaluated())


def observations(paths: Sequence[str | Path], attacks: Sequence[Pattern] = ()) -> Iterator[Observation]:
    """The steps of a log. Rows of one step are next to each other in each file; files are merged by step. Of a run
    that was started again, a step counts as it was done last.

    Raises:
        SampleError: If a row is not one of a reward log, or has no step.
    """
    files = dict.fromkeys(file for path in paths for file in (Path(path), *other_ranks(Path(path))))
    run = starts_in(*files)  # a job that goes on may write another file
    parts = heapq.merge(*(_steps(file, attacks, run) for file in files), key=itemgetter(0))
    for (_, step), same in groupby(parts, key=itemgetter(0)):
        yield Observation(step, [one for _, seen in same for one in seen])


def _steps(file: Path, attacks: Sequence[Pattern], run: Starts) -> Iterator[tuple[tuple[int, int], list[Seen]]]:
    """The completions by step. In a log of an earlier version, a run that was resumed may repeat steps, so the number
    of its starts precedes them."""
    starts, last = 0, None
    for step, same in groupby(read_rows(file), key=_step):
        rows = [row for row in same if run.count(row.data)]
        if rows:
            starts, last = starts + (last is not None and step < last), step
            yield (starts, step), [_seen(row, attacks) for row in rows if row.data["completion"] is not None]
    if last is None:
        logger.warning("%s: no row counts, since a later start did its steps again; audit each run by itself.", file)


def _step(row: Row) -> int:
    missing = [name for name in REWARDS if name not in row.data]
    if missing:
        columns = ", ".join(row.data) or "no columns"
        raise SampleError(
            f"{row.where}: not a row of a reward log: {missing[0]!r} is missing (columns: {columns}); pass the "
            "file of ChecklistReward(log=...)."
        )
    step = row.data["step"]
    if isinstance(step, bool) or not isinstance(step, int):
        raise SampleError(
            f"{row.where}: step={step!r:.40} is not a whole number; signals compare steps. If the trainer passes none "
            "(AsyncGRPOTrainer), set monitor=..., which counts calls."
        )
    return step


def _seen(row: Row, attacks: Sequence[Pattern]) -> Seen:
    text = scored_text(row, row.number, "rewards")
    if not isinstance(judged := row.data["completion"], str):
        raise SampleError(f"{row.where}: completion must be a string, got {type(judged).__name__}.")
    return seen_of(text, [_retest(text, one) for one in list_in(text, "retests")], attacks)


def _retest(text: ScoredText, value: Any) -> Retest:
    names = ("item", "how", "answer", "again")
    if not isinstance(value, Mapping) or not all(isinstance(value.get(name), str | None) for name in names):
        raise SampleError(f"{text.where}: a retest must be a mapping of {', '.join(names)}, got {value!r:.60}.")
    return Retest(str(value.get("item")), str(value.get("how")), value.get("answer"), value.get("again"))
