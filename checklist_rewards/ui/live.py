"""The figures of a training run while it writes its reward log.

The log is read once. After that only the bytes that were added are read, as far as the last complete line, and added
to the figures of [`TrainingFigures`], so they equal those of a report about the same rows. A log that became shorter
or was replaced is a new run and is read from its beginning, and so is the log of a run that was started again.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import REWARDS, ScoredFile, scored_text
from checklist_rewards.files.ranks import Starts
from checklist_rewards.files.rows import Row
from checklist_rewards.ui.figures import TrainingFigures
from checklist_rewards.ui.project import Project
from checklist_rewards.ui.report import MONITOR_FILE, kind_of, read_monitor

LATEST = 8
"""Completions that are shown: the last ones of the log."""
_KEPT = 4
_LONGEST = 4000


@dataclass
class _Log:
    identity: tuple[int, int]
    """Device and inode."""
    offset: int = 0
    lines: int = 0
    starts: Starts = field(default_factory=Starts)


@dataclass
class _Followed:
    """What was read of a log and of the logs of the other ranks."""

    figures: TrainingFigures = field(default_factory=TrainingFigures)
    logs: dict[Path, _Log] = field(default_factory=dict)
    latest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=LATEST))
    rows: int = 0

    def is_of(self, paths: list[Path]) -> bool:
        """Whether the logs are still those that were read."""
        return all(
            path in paths and log.identity == _identity(path) and path.stat().st_size >= log.offset
            for path, log in self.logs.items()
        )


class Live:
    """The logs of a project that are followed."""

    def __init__(self, project: Project):
        self.project = project
        self._followed: OrderedDict[str, _Followed] = OrderedDict()
        self._lock = threading.Lock()

    def figures(self, name: str, known: str | None = None) -> dict[str, Any] | None:
        """The figures of a reward log, a JSONL file of the project; None if nothing was added to those with the stamp
        that is `known`.

        Returns:
            `dict` or None: The `stamp`, the number of `rows`, the figures of `training`, the `latest` completions, the
            seconds for which the log has been `quiet`, and `monitor`: what the file of a reward monitor in the same
            folder says ([`read_monitor`]), or None.

        Raises:
            SampleError: If the file is not a reward log.
        """
        path = self.project.existing(name)
        if path.suffix.lower() != ".jsonl":
            raise SampleError(f"{name} is not followed; choose the reward log of a training, a .jsonl file.")
        paths = [one for one in ScoredFile(path).paths if self.project.holds(one)]
        with self._lock:
            followed = self._followed.pop(name, _Followed())  # an error leaves nothing
            if not (followed.is_of(paths) and all([self._read(followed, one) for one in paths])):
                followed = _Followed()
                for one in paths:
                    self._read(followed, one)
            self._followed[name] = followed
            while len(self._followed) > _KEPT:
                self._followed.popitem(last=False)
            watched = path.parent / MONITOR_FILE
            has_monitor = self.project.holds(watched) and watched.is_file()
            sizes = [(followed.logs[one].identity[1], followed.logs[one].offset) for one in paths]
            sizes += [(_identity(watched)[1], watched.stat().st_size)] if has_monitor else []
            stamp = "-".join(f"{number:x}.{size:x}" for number, size in sizes)
            if stamp == known:
                return None
            return {
                "stamp": stamp,
                "rows": followed.rows,
                "training": followed.figures.as_json(),
                "latest": list(followed.latest),
                "quiet": max(0.0, time.time() - max(one.stat().st_mtime for one in paths)),
                "monitor": _monitor(watched) if has_monitor else None,
            }

    def _read(self, followed: _Followed, path: Path) -> bool:
        """Read what was added to a log. False, without reading it, if rows that were read no longer count, because the
        run was started again."""
        log, size = followed.logs.setdefault(path, _Log(_identity(path))), path.stat().st_size
        again = [log.starts.add(row) for row, _ in self._added(log, path, size)]
        if log.lines and any(again):
            return False
        for row, end in self._added(log, path, size):
            log.offset, log.lines = end, row.number
            self._add(followed, row, log.starts.count(row.data))
        return True

    def _added(self, log: _Log, path: Path, size: int) -> Iterator[tuple[Row, int]]:
        """The rows of the complete lines between the offset and this size, each with the offset of its end."""
        with path.open("rb") as file:
            file.seek(log.offset)
            end = log.offset
            for number, line in enumerate(file, start=log.lines + 1):
                end += len(line)
                if not line.endswith(b"\n") or end > size:
                    return  # still written
                if line.strip():
                    yield self._row(path, number, line), end

    def _row(self, path: Path, number: int, line: bytes) -> Row:
        where = f"{path.relative_to(self.project.folder).as_posix()}, line {number}"
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SampleError(f"{where}: not valid JSON ({error}).") from None
        if not isinstance(data, dict) or not set(REWARDS) <= data.keys():
            raise SampleError(f"{where}: not a row of a reward log (step, completion, reward, score).")
        return Row(number, data, where)

    def _add(self, followed: _Followed, row: Row, counts: bool) -> None:
        followed.rows += 1
        record = scored_text(row, followed.rows, "rewards")
        if counts:
            followed.figures.add(record)
        read = record.score.items if record.score is not None and not record.score.no_answer else ()
        followed.latest.append(
            {
                "step": record.step,
                "prompt": _short(record.prompt),
                "completion": _short(record.text),
                "reward": record.reward,
                "state": record.state,
                "items": [{"question": one.question, "passed": one.passed} for one in read],
            }
        )


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _monitor(path: Path) -> dict[str, Any] | None:
    """What the file of a monitor says; None if it is another file, or while a line of it is written."""
    try:
        return read_monitor(path) if kind_of(path)["kind"] == "monitor" else None
    except SampleError:
        return None


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _LONGEST else text[:_LONGEST] + " …"
