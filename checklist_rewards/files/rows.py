"""Files of rows: JSONL, CSV and Parquet, read as a stream and written all or nothing.

The extension says the format. [`read_rows`] gives one row at a time with its place in the file, so an error can name
it; [`write_rows`] writes to a hidden file beside the target, which takes the target's name when the block ends well.
If it does not, nothing is there that was not there before. A process that is killed leaves its hidden file; the next
one that writes the same target removes it. Memory does not grow with the number of rows in either direction.

CSV has no types: every cell is read as a string, and a list or mapping (a checklist, a score) stands in its cell as
JSON.

A value that a format cannot hold is null rather than something else: NaN and infinities in JSON and CSV.
"""

from __future__ import annotations

import csv
import glob
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from checklist_rewards.errors import SampleError
from checklist_rewards.files.spool import ArrowSpool, Spool, as_json, as_text, check_names, json_reader

if sys.platform != "win32":
    import fcntl

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


def read_rows_for(path: str | Path, output: str | Path) -> Iterator[Row]:
    """[`read_rows`] for rows that will be written to `output`: a value that its format cannot hold is refused now.

    Raises:
        SampleError: also for bytes and other values that JSON and CSV have no form for, and for a key that cannot name
            a Parquet column.
    """
    rows, parquet = read_rows(path), file_format(output) == ".parquet"
    if file_format(path) == ".parquet":
        return rows if parquet else _checked(rows, _as_json, "drop the column, or write a .parquet file")
    return _checked(rows, check_names, "rename it, or write a .jsonl file") if parquet else rows


def _as_json(data: Mapping[str, Any]) -> None:
    for name, value in data.items():
        try:
            as_json(value)
        except SampleError as error:
            raise SampleError(f"{name!r}: {error}") from None


def _checked(rows: Iterator[Row], check: Callable[[Mapping[str, Any]], None], advice: str) -> Iterator[Row]:
    for row in rows:
        try:
            check(row.data)
        except SampleError as error:
            raise SampleError(f"{row.where}, {str(error).rstrip('.')} ({advice}).") from None
        yield row


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
    if path.is_dir():
        raise SampleError(f"{path}: cannot be written, it is a folder.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        temporary, lock = _temporary(path)
    except OSError as error:
        raise SampleError(f"{path}: cannot be written ({error.strerror or error}).") from error
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(lock)


def _temporary(path: Path) -> tuple[Path, int]:
    """A new file beside `path`, and the descriptor that locks it while its process lives."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if _locked(descriptor) is not False and temporary.exists():
            return temporary, descriptor
        os.close(descriptor)  # another process took it for abandoned before it was locked


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote `path`."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        try:
            descriptor = os.open(temporary, os.O_RDWR)
        except OSError:  # gone by now, or another user's
            continue
        try:
            if _locked(descriptor):
                temporary.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _locked(descriptor: int) -> bool | None:
    """Lock a file: True if that worked, False if another process holds it, None where files cannot be locked."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


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
            readers = {field.name: reader for field in file.schema_arrow if (reader := json_reader(field.type))}
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
                for data in batch.to_pylist():
                    number += 1
                    where = f"{path}, row {number}"
                    yield Row(number, _with_json(data, readers, where) if readers else data, where)
    except (pa.ArrowException, OSError) as error:
        raise SampleError(f"{path}: cannot be read as Parquet after row {number} ({error}).") from error


def _with_json(data: dict[str, Any], readers: Mapping[str, Callable[[Any], Any]], where: str) -> dict[str, Any]:
    try:
        return {name: readers[name](value) if name in readers else value for name, value in data.items()}
    except (ValueError, RecursionError) as error:
        raise SampleError(f"{where}: a column of type JSON holds something else ({error}).") from None


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
