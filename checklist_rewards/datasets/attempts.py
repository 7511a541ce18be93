"""Processing a shard so that one bad row fails alone.

- A row that is not valid is written without a result and listed.
- If a batch raises an error, its rows are processed one by one, and only the row that raises has no result.
- A row that ends the process (an engine crash, no memory) leaves a note of the batch in progress. A batch that was in
  progress at two such ends is split into smaller ones, down to one row, which then has no result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from checklist_rewards.datasets.shards import Shard, ShardError, ShardFolder, in_groups
from checklist_rewards.datasets.tasks import Prepared, RowTask, RowWork
from checklist_rewards.datasets.totals import Totals
from checklist_rewards.errors import ChecklistError, ConfigError, ModelError, PromptError, SampleError, StoreError
from checklist_rewards.files.rows import Row, read_rows_for
from checklist_rewards.files.store import Store
from checklist_rewards.scores.reasons import Reason, Unanswered

CHUNK_ROWS = 4096
_DEATHS = 2
_PARTS = 16
_NO_ROW = (ModelError, ConfigError, PromptError, StoreError)
"""Errors of the run, not of a row."""


class Attempts:
    """Notes of the batches in progress, in a file that outlives the process.

    Args:
        path (`Path`): the file.
    """

    def __init__(self, path: Path):
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="ascii").split("start\n") if path.exists() else []
        last = [lines.splitlines()[-1] for lines in before if lines.endswith("\n")]
        self._deaths = Counter(last)
        self._file = path.open("a", encoding="ascii")
        self._note("start")

    def deaths(self, rows: Sequence[Row]) -> int:
        """How often the process ended during this batch."""
        return self._deaths[_batch(rows)]

    def begin(self, rows: Sequence[Row]) -> None:
        """Note that this batch is in progress."""
        self._note(_batch(rows))

    def stopped(self) -> None:
        """Note that an error ended this attempt, which says nothing about the batch in progress."""
        self._note("error")
        self._file.close()

    def done(self) -> None:
        """Delete the notes."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _note(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()


def process_shard(task: RowTask, folder: ShardFolder, shard: Shard, *, keep: bool = True) -> Totals:
    """Process one shard and write its result.

    Args:
        task ([`RowTask`]): what to do with the rows.
        folder ([`ShardFolder`]): the output folder.
        shard ([`Shard`]): the shard.
        keep (`bool`, *optional*, defaults to `True`): store answers, so that an unfinished shard continues.

    Raises:
        ShardError: If the source cannot be read.
        ChecklistRewardsError: If the result cannot be written, or if the judge cannot be used. Then no shard can be
            processed.
    """
    store = folder.store(shard)
    opened = task.open(Store(store) if keep else None, shard.name)
    attempts = Attempts(folder.attempts(shard))
    inputs = task.columns.inputs

    def rows() -> Iterator[Row]:
        with shard.reading():
            yield from read_rows_for(shard.source, folder.output(shard))

    def results() -> Iterator[dict[str, Any]]:
        for batch in in_groups(rows(), CHUNK_ROWS, lambda row: [row.data.get(key) for key in inputs]):
            yield from _results(opened.work, batch, attempts)

    try:
        folder.write(shard, results(), lambda: opened.totals)
    except Exception as error:  # raised again; only the note of the batch in progress is closed
        attempts.stopped()
        if isinstance(error, ShardError):
            folder.confirm()  # another run may have replaced the parts of a file
        raise
    attempts.done()
    return opened.totals


def _results(work: RowWork, rows: Sequence[Row], attempts: Attempts) -> list[dict[str, Any]]:
    """The output rows of a batch, in order."""
    if attempts.deaths(rows) >= _DEATHS:
        if len(rows) == 1:
            return [work.failed(rows[0], Unanswered(Reason.ROW_FAILED, "the process ended while it was processed"))]
        step = -(-len(rows) // _PARTS)
        parts = [rows[start : start + step] for start in range(0, len(rows), step)]
        return [result for part in parts for result in _results(work, part, attempts)]
    attempts.begin(rows)
    results: dict[int, dict[str, Any]] = {}
    prepared: dict[int, Prepared] = {}
    for place, row in enumerate(rows):
        try:
            prepared[place] = work.prepare(row)
        except (SampleError, ChecklistError) as error:
            results[place] = work.failed(row, Unanswered(Reason.INVALID_ROW, str(error)))
    results.update(zip(prepared, _processed(work, list(prepared.values())), strict=True))
    return [results[place] for place in range(len(rows))]


def _processed(work: RowWork, rows: Sequence[Prepared]) -> list[dict[str, Any]]:
    try:
        return work.process(rows)
    except _NO_ROW:
        raise
    except Exception as error:  # anything that one row may raise; the other rows must not be lost
        if len(rows) == 1:
            why = Unanswered(Reason.ROW_FAILED, f"{type(error).__name__}: {error}"[:200])
            return [work.failed(rows[0].row, why)]
    return [result for row in rows for result in _processed(work, [row])]


def _batch(rows: Sequence[Row]) -> str:
    return f"{rows[0].number} {len(rows)}"
