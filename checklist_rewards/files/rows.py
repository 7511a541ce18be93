"""Files of rows: JSONL, CSV and Parquet, read as a stream and written atomically.

The format is determined by the extension. A folder that `datasets.save_to_disk` wrote is read too. [`read_rows`]
yields one row at a time with its place in the file, so that errors can name it. [`write_rows`] writes atomically
(`atomic.py`). Memory does not grow with the number of rows, neither for reading nor for writing.

CSV has no types: every cell is read as a string. A list or mapping (a checklist, a score) is stored as JSON text. Only
chat messages are decoded here (`cells.py`), so that a conversation is the same in every format. Columns are separated
by commas, or by semicolons or tabs if the header is. Rows without any text, which spreadsheets leave, are skipped.
Before a column of scores, a CSV file has plain columns for spreadsheets: the primary score, and the answer to each
question ([`_plain_score`]). They repeat what the score contains, and are skipped when the file is read.

NaN and infinities, which JSON does not support, become null in JSON and empty in CSV.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.cells import (
    JSON_TEXT,
    UTF16_MARKS,
    as_json,
    as_text,
    check_depth,
    csv_text,
    decoded,
    from_cell,
    from_csv,
    json_reader,
)
from checklist_rewards.files.spool import ArrowSpool, Spool, check_names, check_unique
from checklist_rewards.validation import import_extra, install, missing

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS = 4096
"""Rows in memory at once. The engine idles while the last replies of a chunk are pending, so small chunks are slow."""
FORMATS = (".jsonl", ".csv", ".parquet")
SCORE_COLUMN = "checklist_score"
"""The column that contains a complete score."""
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
"""Files of spreadsheet programs, which are not read."""
FOLDER = "folder"
"""The format of a folder that `datasets.save_to_disk` wrote."""
_PARQUET_ROWS = 256
_MAX_CELL = 2**31 - 1
_ZIP = b"PK\x03\x04"
"""How a workbook of a spreadsheet begins."""
_AS_TEXT = "save it as UTF-8 (in a spreadsheet: CSV UTF-8)"
_PLAIN = f"{SCORE_COLUMN}."
"""What the names of plain columns begin with."""
_MOST_QUESTIONS = 100
"""Different questions for which a CSV file gets plain columns."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file."""

    number: int
    """The line on which the row begins (JSONL, CSV) or the number of the row (Parquet), from 1."""
    data: dict[str, Any]
    where: str
    """The place to name in an error: "data.jsonl, line 3"."""
    csv: bool = False
    """Whether it is of a CSV file, which has no null: an empty cell may be one."""
    folder: Path = Path()
    """The folder of the file, in which relative paths of images begin."""


class RowWriter(Protocol):
    """The writer that [`write_rows`] yields."""

    def write(self, row: Mapping[str, Any]) -> object:
        """Append a row. Rows may have different keys."""
        ...


def file_format(path: str | Path) -> str:
    """The extension of `path`, in lower case.

    Raises:
        SampleError: If it is not one of `FORMATS`, or if it is .parquet and pyarrow is not installed.
    """
    extension = Path(path).suffix.lower()
    if extension not in FORMATS:
        raise unknown_extension(path, FORMATS)
    if extension == ".parquet" and missing("pyarrow"):
        raise SampleError(f"{path}: Parquet files require pyarrow: {install('datasets')}.")
    return extension


def unknown_extension(path: str | Path, allowed: Sequence[str]) -> SampleError:
    """The error of a file whose extension is not one of those allowed."""
    extension = Path(path).suffix.lower()
    problem = f"unknown extension {extension!r}" if extension else "the file name has no extension"
    if Path(path).is_dir():
        problem = (
            "a folder is read only if `datasets.save_to_disk` wrote it; give one of its files, or write all to one"
        )
    elif extension == ".json" and Path(path).is_file():
        problem = "rows are not read from a JSON document; write one per line (jq -c '.[]' FILE > rows.jsonl)"
    elif extension in WORKBOOKS:
        problem = f"a workbook ({extension}) is not read; save the sheet as CSV UTF-8"
    return SampleError(f"{path}: {problem}; allowed: {', '.join(allowed)}.")


def input_format(path: str | Path) -> str:
    """The format of a file to read: its extension, or `FOLDER` for a folder of `datasets.save_to_disk`.

    Raises:
        SampleError: As [`file_format`], and for a saved `DatasetDict`.
    """
    return FOLDER if saved_dataset(path) else file_format(path)


def saved_dataset(path: str | Path) -> bool:
    """Whether a path is a folder that `datasets.save_to_disk` wrote. Raises [`SampleError`] for several splits."""
    path = Path(path)
    if os.path.isfile(path / "dataset_dict.json"):
        splits = ", ".join(sorted(str(folder) for folder in path.iterdir() if (folder / "state.json").is_file()))
        raise SampleError(f"{path} has several splits; give the folder of one of them: {splits or 'none found'}.")
    return os.path.isfile(path / "state.json")  # False, too, for a name that no file can have


def read_rows(path: str | Path, format: str | None = None) -> Iterator[Row]:
    """Read a file row by row. Blank lines and rows are skipped; an empty file has no rows.

    Args:
        path (`str` or `Path`): A .jsonl, .csv or .parquet file, or a folder that `datasets.save_to_disk` wrote.
        format (`str`, *optional*): One of `FORMATS`. Defaults to the extension of `path`.

    Returns:
        `Iterator[Row]`: The rows in order.

    Raises:
        SampleError: Immediately, if the file cannot be opened or its extension is unknown; while iterating, if a row
            is malformed. The message names the line.
    """
    path = Path(path).expanduser()
    format = format or input_format(path)
    if format == FOLDER:
        return _read_folder(path)
    read = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}[format]
    try:
        path.open("rb").close()
    except OSError as error:
        raise SampleError(f"{path}: cannot be read ({error.strerror or error}).") from error
    return read(path)


def read_rows_for(path: str | Path, output: str | Path) -> Iterator[Row]:
    """Like [`read_rows`], for rows that will be written to `output`. Values that the output format does not support
    are rejected when they are read.

    Raises:
        SampleError: Also for bytes and other values that JSON and CSV do not support, and for a key that is not a
            valid Parquet column name.
    """
    rows, parquet = read_rows(path), file_format(output) == ".parquet"
    if input_format(path) in (".parquet", FOLDER):
        return rows if parquet else _checked(rows, as_json, "drop the column, or write a .parquet file")
    return _checked(rows, check_depth, "rename or drop the column, or write a .jsonl file") if parquet else rows


def _checked(rows: Iterator[Row], check: Callable[[Any], object], advice: str) -> Iterator[Row]:
    for row in rows:
        place = ""
        try:
            if check is check_depth:  # columns of Parquet
                check_names(row.data)
            for name, value in row.data.items():
                place = f"{name!r}: "
                check(value)
        except SampleError as error:
            raise SampleError(f"{row.where}, {place}{str(error).rstrip('.')} ({advice}).") from None
        yield row


@contextmanager
def write_rows(path: str | Path, format: str | None = None) -> Iterator[RowWriter]:
    """Write a file row by row: `with write_rows("out.jsonl") as rows: rows.write({...})`.

    The complete file is created when the block ends. If the block raises, no file is created and an existing file is
    unchanged.

    Args:
        path (`str` or `Path`): The file.
        format (`str`, *optional*): One of `FORMATS`. Defaults to the extension of `path`.

    Raises:
        SampleError: Immediately, if the extension is unknown or the folder is not writable.
    """
    path = Path(path)
    writers: dict[str, type[_JsonlWriter | _CsvWriter | _ParquetWriter]]
    writers = {".jsonl": _JsonlWriter, ".csv": _CsvWriter, ".parquet": _ParquetWriter}
    writer_class = writers[format or file_format(path)]
    with atomic_path(path) as temporary:
        writer = writer_class(temporary)
        try:
            yield writer
            writer.finish()
        finally:
            writer.close()


def write_batches(path: str | Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write Arrow batches to a Parquet file, one row group per batch."""
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _read_jsonl(path: Path) -> Iterator[Row]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            data = json.loads(line)
        except json.JSONDecodeError as error:
            advice = _advice(line.strip())
            raise SampleError(f"{where}, column {error.colno}: not valid JSON ({error.msg}){advice}.") from None
        except (ValueError, RecursionError) as error:
            raise SampleError(f"{where}: not valid JSON ({error}).") from None
        if not isinstance(data, dict):
            advice = _advice(line.strip())
            raise SampleError(f"{where}: expected a JSON object, got {type(data).__name__} {data!r:.60}{advice}.")
        yield Row(number, data, where, folder=path.parent)


def _advice(line: str) -> str:
    """What to do about a line of JSONL that is part of another kind of JSON."""
    if line.startswith("["):
        return "; a .jsonl file has one object per line, not a list"
    if line.endswith(("},", "}]")):
        return "; a .jsonl file has one object per line, without commas between them"
    return "; a .jsonl file has each object on one line" if line in ("{", "}") else ""


def _read_csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(_MAX_CELL)  # the library's default limit is 128 kB per cell
    first = next((line for _, line in _lines(path) if line.strip()), "")
    reader = csv.reader((line for _, line in _lines(path)), strict=True, delimiter=_delimiter(first))
    header: list[str] | None = None
    plain: set[str] = set()
    while True:
        where = f"{path}, line {(number := reader.line_num + 1)}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if str(error).startswith("new-line character"):
                raise SampleError(
                    f"{where}: a line ends with CR only; save the file with LF or CRLF (in a spreadsheet: CSV UTF-8)."
                ) from None
            raise SampleError(f"{where}: not valid CSV ({error}).") from None
        if not cells or (header is None and cells == ["sep=", ""]):  # a spreadsheet's line that names the delimiter
            continue
        if header is None:
            header = cells
            if len(set(header)) < len(header):
                raise SampleError(f"{where}: two columns have the same name; the header is {header}.")
            plain = {name for name in header if name.startswith(_PLAIN)} if SCORE_COLUMN in header else set()
            continue
        if len(cells) != len(header):
            raise SampleError(f"{where}: the row has {len(cells)} cells, but the header has {len(header)} columns.")
        if len(cells) == 1 + len(plain) or any(map(str.strip, cells)):
            row = {name: from_csv(cell) for name, cell in zip(header, cells, strict=True) if name not in plain}
            yield Row(number, row, where, csv=True, folder=path.parent)


def _delimiter(header: str) -> str:
    """What separates the columns of a CSV file: the first of comma, semicolon and tab that separates its header."""
    for delimiter in ",;\t":
        try:
            if len(next(csv.reader([header], delimiter=delimiter, strict=True))) > 1:
                return delimiter
        except (csv.Error, StopIteration):  # a quoted name next to another delimiter
            pass
    return ","


def _read_folder(path: Path) -> Iterator[Row]:
    [datasets] = import_extra("datasets", extra="datasets")
    try:
        # Arrow's tables have images as bytes and paths, as Parquet files do.
        dataset = datasets.load_from_disk(str(path)).with_format("arrow")
    except Exception as error:  # whatever the library raises for files that are missing or damaged
        reason = str(error).partition("\n")[0]
        raise SampleError(f"{path}: cannot be read as a dataset on disk ({type(error).__name__}: {reason}).") from None
    yield from rows_of_tables(dataset.iter(_PARQUET_ROWS), path)


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            check_unique(file.schema_arrow.names, path)
            for row in rows_of_tables(file.iter_batches(batch_size=_PARQUET_ROWS), path):
                number = row.number
                yield row
    except (pa.ArrowException, OSError) as error:
        raise SampleError(f"{path}: cannot be read as Parquet after row {number} ({error}).") from error


def rows_of_tables(tables: Iterable[pa.Table | pa.RecordBatch], path: Path | None = None) -> Iterator[Row]:
    """The rows of Arrow tables, which have the same columns. Images are cells of `datasets.Image`, with their bytes as
    they are stored."""
    number, readers = 0, None
    for table in tables:
        if readers is None:
            readers = {field.name: reader for field in table.schema if (reader := _reader(field))}
        for data in table.to_pylist():
            number += 1
            where = f"row {number}" if path is None else f"{path}, row {number}"
            folder = Path() if path is None else path.parent
            yield Row(number, _with_json(data, readers, where) if readers else data, where, folder=folder)


def _reader(field: pa.Field) -> Callable[[Any], Any] | None:
    if JSON_TEXT.items() <= (field.metadata or {}).items():
        return lambda text: None if text is None else from_cell(text)
    return json_reader(field.type)


def _with_json(data: dict[str, Any], readers: Mapping[str, Callable[[Any], Any]], where: str) -> dict[str, Any]:
    try:
        return {name: readers[name](value) if name in readers else value for name, value in data.items()}
    except (ValueError, RecursionError) as error:
        raise SampleError(f"{where}: a JSON column contains invalid JSON ({error}).") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as stream:
        start = stream.read(4)
    if start.startswith(UTF16_MARKS):
        yield from _wide_lines(path)
        return
    if start == _ZIP:
        raise SampleError(f"{path}: a workbook or an archive, not text; save the sheet as CSV UTF-8.")
    if b"\0" in start:
        raise SampleError(f"{path}: not UTF-8 (it looks like UTF-16 without a byte order mark); {_AS_TEXT}.")
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield number, line.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").decode()
            except UnicodeDecodeError as error:
                where = f"{path}, line {number}, byte {error.start + 1}"
                raise SampleError(f"{where}: not UTF-8 ({error.reason}); {_AS_TEXT}.") from None


def _wide_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file in UTF-16, as spreadsheets export it."""
    number = 0
    with path.open(encoding="utf-16", newline="\n") as stream:
        try:
            for number, line in enumerate(stream, start=1):  # noqa: B007 - named in the error
                yield number, line
        except UnicodeError as error:
            reason = getattr(error, "reason", None) or error
            raise SampleError(f"{path}, after line {number}: not UTF-16 ({reason}).") from None


class _JsonlWriter:
    def __init__(self, path: Path):
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, row: Mapping[str, Any]) -> None:
        self._file.write(as_json(row) + "\n")

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()


class _CsvWriter(Spool):
    """Stores rows in a temporary file until the names of all columns are known."""

    def __init__(self, path: Path):
        super().__init__(path.parent)
        self._path = path

    def finish(self) -> None:
        columns = list(self.columns)
        if SCORE_COLUMN in columns:
            plain = list(dict.fromkeys(name for row in self for name in _plain_score(row.get(SCORE_COLUMN))))
            place = columns.index(SCORE_COLUMN)
            columns[place:place] = plain[: 1 if len(plain) > _MOST_QUESTIONS else None]
        with self._path.open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.writer(file)
            if columns:
                writer.writerow(columns)
            for row in self:
                cells = row | _plain_score(row.get(SCORE_COLUMN))
                values = (cells.get(name) for name in columns)
                writer.writerow([csv_text(cell) if isinstance(cell, str) else as_text(cell) for cell in values])


def _plain_score(score: Any) -> dict[str, Any]:
    """The plain columns of a score: the primary score, and by question the answer, empty if there is none.

    >>> _plain_score({"primary_score": 0.5, "items": [{"question": "Is it short?", "answer": "yes"}]})
    {'checklist_score.primary_score': 0.5, 'checklist_score.item/Is it short?': 'yes'}
    """
    score = decoded(score)
    if not isinstance(score, Mapping) or "primary_score" not in score:
        return {}
    items = {f"{_PLAIN}item/{item['question']}": item["answer"] for item in score.get("items", ())}
    return {f"{_PLAIN}primary_score": score["primary_score"]} | items


class _ParquetWriter(ArrowSpool):
    """Stores rows in a temporary file until the types of all columns are known."""

    def __init__(self, path: Path):
        super().__init__(path.parent)
        self._path = path

    def finish(self) -> None:
        write_batches(self._path, self.schema, self.batches())
