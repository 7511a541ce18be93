"""The files of a reward log: their names (rank 0 writes `rewards.jsonl`, rank 1 `rewards.rank1.jsonl`), and which of
their rows are part of the run.

A run that is started again appends to its files. The steps from which it goes on are then there twice, of the first
start and of the second. Those of the first belong to no model that still exists, so they do not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from checklist_rewards.files.rows import Row, read_rows


def rank_of(path: Path, log: Path) -> int | None:
    """The rank whose log has this path, if `log` is that of rank 0; None for any other path."""
    if path.parent.resolve() != log.parent.resolve():
        return None
    match = re.fullmatch(rf"{re.escape(log.stem)}\.rank(\d+){re.escape(log.suffix)}", path.name)
    return None if match is None else int(match[1])


def other_ranks(log: Path) -> list[Path]:
    """The logs of the other ranks in the folder of `log`, by rank."""
    ranks = {path: rank_of(path, log) for path in sorted(log.parent.glob("*.rank*"))}
    return sorted((path for path, rank in ranks.items() if rank is not None), key=lambda path: ranks[path] or 0)


class Starts:
    """The starts of a run, by rank and the column `started`, which logs of earlier versions do not have."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, int]] = {}
        """The first step of each start in training, by rank."""

    def add(self, row: Row) -> bool:
        """Add a row; returns whether another row may no longer count because of it."""
        step, started = row.data.get("step"), row.data.get("started")
        if row.data.get("evaluation") or not isinstance(step, int) or not isinstance(started, str):
            return False
        first = self._first.setdefault(str(row.data.get("rank")), {})
        if step >= first.get(started, step + 1):
            return False
        first[started] = step
        return len(first) > 1

    def count(self, data: Mapping[str, Any]) -> bool:
        """Whether a row is part of the run: not of an evaluation, nor of a step that a later start did again."""
        return not data.get("evaluation") and not self.repeated(data)

    def repeated(self, data: Mapping[str, Any]) -> int:
        """How many later starts did the step of a row again."""
        step, started = data.get("step"), data.get("started")
        if not isinstance(step, int) or not isinstance(started, str):
            return 0
        starts = self._first.get(str(data.get("rank")), {})
        return sum(later > started and first <= step for later, first in starts.items())


def starts_in(*paths: Path) -> Starts:
    """The starts in the reward logs of a run. Reads the files."""
    starts = Starts()
    for row in chain.from_iterable(map(read_rows, paths)):
        starts.add(row)
    return starts
