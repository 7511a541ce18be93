"""The input and output files of one command. Rows are read twice: once to validate them and once to process them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

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
        SampleError: If an output is a folder or would overwrite another file of the command.
    """

    path: Path
    output: Path
    summary: Path | None = None

    def __post_init__(self) -> None:
        if self.path.exists() and self.output.exists() and self.path.samefile(self.output):
            raise SampleError(f"--output {self.output} is the input file; choose a different file name.")
        for option, file in (("--output", self.output), ("--summary", self.summary)):
            if file is not None and file.is_dir():
                raise SampleError(f"{option} {file} is a folder, expected a file name.")
        if self.summary is not None and self.summary.resolve() in (self.output.resolve(), self.path.resolve()):
            raise SampleError(f"--summary {self.summary} is the input or output file; choose a different file name.")
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
