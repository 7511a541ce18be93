"""The files of one command: rows that are read twice, once to check them and once to work, and where the result
goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from checklist_rewards.cli.columns import Columns
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import Row, file_format, read_rows_for

CHUNK_ROWS = 4096
"""Rows in memory at once: few enough for any file, and many, because the last replies of a chunk are waited for before
the next one is asked."""


@dataclass(frozen=True)
class RowFile:
    """A file of rows that a command reads, and the files that it writes. Raises [`SampleError`] if they cannot be
    these."""

    path: Path
    output: Path
    summary: Path | None = None

    def __post_init__(self) -> None:
        if self.path.exists() and self.output.exists() and self.path.samefile(self.output):
            raise SampleError(f"--output {self.output} is the file of rows itself; give the result a name of its own.")
        for option, file in (("--output", self.output), ("--summary", self.summary)):
            if file is not None and file.is_dir():
                raise SampleError(f"{option} {file} is a folder; give a file.")
        if self.summary is not None and self.summary.resolve() in (self.output.resolve(), self.path.resolve()):
            raise SampleError(f"--summary {self.summary} is a file of rows; give the summary a name of its own.")
        file_format(self.output)

    def __iter__(self) -> Iterator[Row]:
        return read_rows_for(self.path, self.output)

    def columns(self, **named: Any) -> Columns:
        """The keys of this file, by its first row; see [`Columns.of`]. Raises [`SampleError`] for a file without
        rows."""
        first = next(iter(self), None)
        if first is None:
            raise SampleError(f"{self.path} has no rows.")
        return Columns.of(first.data, blank_is_null=file_format(self.path) == ".csv", **named)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[list[Row]]:
        """The rows, so many at a time."""
        rows = iter(self)
        while chunk := list(islice(rows, size)):
            yield chunk
