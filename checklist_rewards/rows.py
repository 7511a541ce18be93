"""Files of rows: JSONL, CSV and Parquet, read as a stream and written all or nothing.

The extension says the format. [`read_rows`] gives one row at a time with its place in the file, so an error can name
it; [`write_rows`] writes to a hidden file beside the target, which takes the target's name when the block ends well.
If it does not, nothing is there that was not there before. Memory does not grow with the number of rows in either
direction.

CSV has no types: every cell is read as a string, and a list or mapping (a checklist, a score) stands in its cell as
JSON.

A value that a format cannot hold is null rather than something else: NaN and infinities in JSON and CSV.
"""

from __future__ import annotations

import csv
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checklist_rewards.errors import SampleError
from checklist_rewards.spool import ArrowSpool, Spool, as_json, as_text

FORMATS = (".jsonl", ".csv", ".parquet")
_BOM = b"\xef\xbb\xbf"
_PARQUET_ROWS = 256
_MAX_CELL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file."""

    number: int
    """The line it begins on (JSONL, CSV) or its place among the rows (Parquet); from 1."""
    data: dict[str, Any]
    where: str
    """How an error names it: "data.jsonl, line 3"."""


class RowWriter(Protocol):
    """What [`write_rows`] gives."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a row. Rows need not have the same keys."""
        ...

    def finish(self) -> None:
        """All rows are there."""
        ...

    def close(self) -> None:
        """Let go of all files."""
        ...


def file_format(path: str | Path) -> str:
    """The extension of `path`. Raises [`SampleError`] if it is none of `FORMATS`."""
    extension = Path(path).suffix.lower()
    if extension not in FORMATS:
        kind = f"the extension {extension!r} is not known" if extension else "the file name has no extension"
        raise SampleError(f"{path}: {kind}; allowed: {', '.join(FORMATS)}.")
    return extension


def read_rows(path: str | Path) -> Iterator[Row]:
    """Read a file row by row. Blank lines are skipped; an empty file has no rows.

    Raises:
        SampleError: at once if the file cannot be opened or its extension is not known; at the row, naming its line,
            if it is malformed.
    """
    path = Path(path)
    read = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}[file_format(path)]
    try:
        path.open("rb").close()
    except OSError as error:
        raise SampleError(f"{path}: cannot be read ({error.strerror or error}).") from error
    return read(path)


@contextmanager
def write_rows(path: str | Path) -> Iterator[RowWriter]:
    """Write a file row by row: `with write_rows("out.jsonl") as rows: rows.write({...})`.

    The file appears, complete, when the block ends; if the block raises, nothing appears and a file that was there
    stays.

    Raises:
        SampleError: at once if the extension is not known or the folder cannot be written to.
    """
    path = Path(path)
    makers: dict[str, Callable[[Path], RowWriter]]
    makers = {".jsonl": _JsonlWriter, ".csv": _CsvWriter, ".parquet": _ParquetWriter}
    make = makers[file_format(path)]
    with atomic_path(path) as temporary:
        writer = make(temporary)
        try:
            yield writer
            writer.finish()
        finally:
            writer.close()


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A new, empty file beside `path`, which takes its place when the block ends well and is removed when it does not.

    Missing folders are made.

    Raises [`SampleError`] if `path` cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    if path.is_dir():
        raise SampleError(f"{path}: cannot be written, it is a folder.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.open("xb").close()
    except OSError as error:
        raise SampleError(f"{path}: cannot be written ({error.strerror or error}).") from error
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_jsonl(path: Path) -> Iterator[Row]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            data = json.loads(line)
        except json.JSONDecodeError as error:
            raise SampleError(f"{where}, column {error.colno}: not valid JSON ({error.msg}).") from None
        except (ValueError, RecursionError) as error:
            raise SampleError(f"{where}: not valid JSON ({error}).") from None
        if not isinstance(data, dict):
            raise SampleError(f"{where}: expected a JSON object, got {type(data).__name__} {data!r:.60}.")
        yield Row(number, data, where)


def _read_csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(_MAX_CELL)  # the library's default refuses a cell of 128 kB
    reader = csv.reader((line for _, line in _lines(path)), strict=True)
    header: list[str] | None = None
    while True:
        where = f"{path}, line {(number := reader.line_num + 1)}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise SampleError(f"{where}: not valid CSV ({error}).") from None
        if not cells:
            continue
        if header is None:
            header = cells
            if len(set(header)) < len(header):
                raise SampleError(f"{where}: two columns have the same name; the header is {header}.")
            continue
        if len(cells) != len(header):
            raise SampleError(f"{where}: {len(cells)} cells where the header names {len(header)} columns.")
        yield Row(number, dict(zip(header, cells, strict=True)), where)


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                for data in batch.to_pylist():
                    number += 1
                    yield Row(number, data, f"{path}, row {number}")
    except (pa.ArrowException, OSError) as error:
        raise SampleError(f"{path}: cannot be read as Parquet after row {number} ({error}).") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield number, line.removeprefix(_BOM if number == 1 else b"").decode()
            except UnicodeDecodeError as error:
                where = f"{path}, line {number}, byte {error.start + 1}"
                raise SampleError(f"{where}: not UTF-8 ({error.reason}).") from None


class _JsonlWriter:
    def __init__(self, path: Path):
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(as_json(row) + "\n")

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()


class _CsvWriter:
    """Keeps rows aside until the names of all columns are known."""

    def __init__(self, path: Path):
        self._path = path
        self._rows = Spool(path.parent)

    def write(self, row: Mapping[str, Any]) -> None:
        self._rows.write(row)

    def finish(self) -> None:
        with self._path.open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.writer(file)
            if self._rows.columns:
                writer.writerow(self._rows.columns)
            for row in self._rows:
                writer.writerow([as_text(row.get(name)) for name in self._rows.columns])

    def close(self) -> None:
        self._rows.close()


class _ParquetWriter:
    """Keeps rows aside until the types of all columns are known."""

    def __init__(self, path: Path):
        self._path = path
        self._rows = ArrowSpool(path.parent)

    def write(self, row: Mapping[str, Any]) -> None:
        self._rows.write(row)

    def finish(self) -> None:
        import pyarrow.parquet as pq

        with pq.ParquetWriter(self._path, self._rows.schema) as writer:
            for batch in self._rows.batches():
                writer.write_batch(batch)

    def close(self) -> None:
        self._rows.close()
