"""The spool: rows on disk until all of them are known, then a table with one type per column.

Parquet and Arrow want the columns and their types first, and a stream of rows tells them last: a `quality` that is
null in the first thousand rows is a number in the next, an item gets a field that no item had before. So rows are kept
in an unnamed temporary file while their types are inferred and unified batch by batch, and are read again under the
final types. Memory holds one batch, however long the stream.

null, whole and decimal numbers unify; structs get the fields of all their rows. A column whose values cannot have one
type (a list here, a text there), or would become a struct with hundreds of fields (a mapping keyed by id), is kept as
JSON text, with a warning; nothing is dropped.
"""

from __future__ import annotations

import json
import logging
import math
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checklist_rewards.errors import SampleError

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_BATCH_ROWS = 1000
_BATCH_BYTES = 8 * 2**20
_MAX_FIELDS = 256


class Spool:
    """Rows put aside in a temporary file, which vanishes with this object or its process.

    Args:
        folder (`str` or `Path`): where the file is made.
    """

    def __init__(self, folder: str | Path):
        self._file = tempfile.TemporaryFile(dir=folder)
        self.columns: dict[str, None] = {}
        """Names of all columns so far, in order of first appearance."""

    def write(self, row: Mapping[str, Any]) -> int:
        """Put a row aside; returns its size in bytes."""
        self.columns.update(dict.fromkeys(row))
        data = pickle.dumps(dict(row), pickle.HIGHEST_PROTOCOL)
        self._file.write(data)
        return len(data)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self._batches_of_rows():
            yield from batch

    def _batches_of_rows(self) -> Iterator[list[dict[str, Any]]]:
        end = self._file.seek(0, 2)
        start = self._file.seek(0)
        batch: list[dict[str, Any]] = []
        while self._file.tell() < end:
            batch.append(pickle.load(self._file))
            if _full(batch, self._file.tell() - start) or self._file.tell() == end:
                yield batch
                batch, start = [], self._file.tell()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class ArrowSpool(Spool):
    """A spool that knows the Arrow type of every column once all rows are in.

    Args:
        folder (`str` or `Path`): where the file is made.
        types (mapping, *optional*): Arrow types of columns that are known beforehand.
    """

    def __init__(self, folder: str | Path, types: Mapping[str, pa.DataType] | None = None):
        super().__init__(folder)
        self._known = dict(types or {})
        self._inferred: dict[str, pa.DataType] = {}
        self._as_text: set[str] = set()
        self._batch: list[dict[str, Any]] = []
        self._batch_bytes = 0

    def write(self, row: Mapping[str, Any]) -> int:
        """Put a row aside; returns its size in bytes. Raises [`SampleError`] for a column that Arrow cannot name."""
        check_names(row)
        size = super().write(row)
        self._batch.append(dict(row))
        self._batch_bytes += size
        if _full(self._batch, self._batch_bytes):
            self._infer()
        return size

    @property
    def schema(self) -> pa.Schema:
        """The columns and types of all rows so far."""
        import pyarrow as pa

        self._infer()
        types = self._inferred | dict.fromkeys(self._as_text, pa.string()) | self._known
        return pa.schema([(name, types[name]) for name in self.columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows as Arrow batches of `schema`.

        Raises:
            SampleError: for a value that its column's type cannot hold, naming the column.
        """
        import pyarrow as pa

        schema = self.schema
        for rows in self._batches_of_rows():
            arrays = []
            for field in schema:
                values = [row.get(field.name) for row in rows]
                if field.name in self._as_text:
                    values = [None if value is None else as_text(value) for value in values]
                try:
                    arrays.append(_array(values, field.type))
                except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
                    where = f"column {field.name!r} of type {field.type}"
                    raise SampleError(f"{where}: a value does not fit ({error}).") from error
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _infer(self) -> None:
        import pyarrow as pa

        batch, self._batch, self._batch_bytes = self._batch, [], 0
        for name in dict.fromkeys(name for row in batch for name in row):
            if name in self._as_text or name in self._known:
                continue
            try:
                seen = _array([row.get(name) for row in batch], None).type
                unified = _unified(self._inferred.get(name, pa.null()), seen)
            except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
                logger.warning("column %r is written as JSON text: its values have no common type (%s).", name, error)
                self._as_text.add(name)
            else:
                self._inferred[name] = unified


def check_names(names: Iterable[str]) -> None:
    """Refuse a column name that Arrow cannot hold. Raises [`SampleError`]."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SampleError(
                f"a Parquet column cannot be named {name!r:.60}: half a surrogate pair is not valid Unicode."
            ) from None


def json_reader(type: pa.DataType) -> Callable[[Any], Any] | None:
    """What gives the values of Arrow's JSON type, which come as text; None for a type without any inside.

    `datasets` writes lists whose mappings have different keys with that type.
    """
    import pyarrow as pa

    if isinstance(type, pa.JsonType):
        return lambda value: None if value is None else json.loads(value)
    if isinstance(type, pa.StructType):
        found = {field.name: reader for field in type if (reader := json_reader(field.type)) is not None}
        if not found:
            return None
        return lambda value: (
            value and {name: found[name](entry) if name in found else entry for name, entry in value.items()}
        )
    is_list = pa.types.is_nested(type) and hasattr(type, "value_type")
    reader = json_reader(type.value_type) if is_list else None
    return None if reader is None else lambda value: value and [reader(entry) for entry in value]


def as_json(value: Any) -> str:
    """`value` as JSON in one line. Numbers that JSON does not have (NaN, infinities) become null.

    Raises [`SampleError`] for a value that JSON has no form for.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: only its escape is valid UTF-8
        text = json.dumps(json.loads(text))
    return text


def as_text(value: Any) -> str:
    """`value` as the text of one cell: a string as it is, a list or mapping as JSON, what JSON has as null as ""."""
    if isinstance(value, str):
        return value
    text = as_json(value)
    if isinstance(value, Mapping | list | tuple):
        return text
    plain = json.loads(text)
    return plain if isinstance(plain, str) else "" if plain is None else text


def _array(values: Sequence[Any], type: pa.DataType | None) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, type)
    except UnicodeEncodeError:
        return pa.array([_encodable(value) for value in values], type)


def _unified(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    schemas = [pa.schema([("column", one)]), pa.schema([("column", other)])]
    unified = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    if _fields(unified) > _MAX_FIELDS:
        raise ValueError(f"a struct with more than {_MAX_FIELDS} fields")
    return unified


def _fields(type: pa.DataType) -> int:
    """How many leaves a type has. Raises ValueError for a struct without fields, which Parquet cannot write."""
    import pyarrow as pa

    if not isinstance(type, pa.StructType):
        return sum(_fields(type.field(index).type) for index in range(type.num_fields)) or 1
    if type.num_fields == 0:
        raise ValueError("an empty mapping")
    return sum(_fields(type.field(index).type) for index in range(type.num_fields))


def _full(batch: Sequence[Any], size: int) -> bool:
    return len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "tolist"):  # numpy
        return value.tolist()
    raise SampleError(f"a value of type {type(value).__name__} cannot be written as JSON: {value!r:.60}.")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value if value is None or isinstance(value, str | int) else _finite(_plain(value))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {key: _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value
