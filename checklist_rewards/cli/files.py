"""The input and output files of one command. Rows are read twice: once to validate them and once to process them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.datasets.rows import Columns
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import Row, file_format, read_rows_for

CHUNK_ROWS = 4096
"""Rows in memory at once. A command waits for the last reply of a chunk before it starts the next one, so small chunks
would leave the engine idle."""


@dataclass(frozen=True)
class RowFile:
    """The file of rows that a command reads, and the files that it writes.

    Raises:
        SampleError: If an output is a folder or would overwrite another file of the command; see [`check_outputs`].
    """

    path: Path
    output: Path
    summary: Path | None = None
    others: tuple[Path | None, ...] = ()
    """Other files that the command reads, such as a checklist or the store."""

    def __post_init__(self) -> None:
        check_outputs([self.path, *self.others], output=self.output, summary=self.summary)
        file_format(self.output)

    def __iter__(self) -> Iterator[Row]:
        return read_rows_for(self.path, self.output)

    def columns(self, **named: Any) -> Columns:
        """The columns of this file, by its first row; `named` as in [`Columns.of`].

        Raises:
            SampleError: If the file has no rows.
        """
        first = next(iter(self), None)
        if first is None:
            raise SampleError(f"{self.path} has no rows.")
        return Columns.of(first.data, blank_is_null=file_format(self.path) == ".csv", **named)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[list[Row]]:
        """The rows in lists of up to `size`."""
        rows = iter(self)
        while chunk := list(islice(rows, size)):
            yield chunk
