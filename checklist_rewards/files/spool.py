"""Temporary storage of rows on disk until the types of their columns are known.

Parquet and Arrow require the columns and their types before the first row. In a stream of rows they are known only at
the end: a `quality` that is null in the first thousand rows may be a number in the next, and an item may have a new
field. So rows are written to an unnamed temporary file, which is read once for the types, which are inferred and
unified batch by batch, and once for the rows. Only one batch is in memory at a time.

Null, integer and decimal columns are unified; structs get the fields of all their rows. Only messages and tools with
different keys have Arrow's JSON type, as in `datasets`: a policy would be shown the nulls of arguments that its calls
do not have. A column whose values have no common type (lists and strings), that would become a struct with hundreds of
fields (a mapping keyed by id), or whose texts are not valid Unicode, is stored as JSON text, with a warning. The
field's metadata marks it, and its values are read back as they were. Nothing is dropped.
"""

from __future__ import annotations

import json
import logging
import pickle
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import JSON_TEXT, as_cell, as_json

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_BATCH_ROWS = 1000
_BATCH_BYTES = 8 * 2**20
_MAX_FIELDS = 256
_NOT_JSON = re.compile(r"\b(?:binary|decimal\d+\(|(?:timestamp|date|time|duration)\d*\[)")
"""The types of Arrow, as it writes them, whose values JSON does not have."""


class Spool:
    """Rows in a temporary file. The file is deleted with this object or at the end of the process.

    Args:
        folder (`str` or `Path`): The folder of the temporary file.
    """

    def __init__(self, folder: str | Path):
        self._file = tempfile.TemporaryFile(dir=folder)
        self.columns: dict[str, None] = {}
        """Names of all columns seen so far, in order of first appearance."""

    def write(self, row: Mapping[str, Any]) -> int:
        """Append a row. Returns its size in bytes."""
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
            place = self._file.tell()
            if len(batch) >= _BATCH_ROWS or place - start >= _BATCH_BYTES or place == end:
                yield batch
                batch, start = [], place

    def close(self) -> None:
        """Close and delete the temporary file."""
        self._file.close()


class ArrowSpool(Spool):
    """A spool whose rows become Arrow batches.

    Args:
        folder (`str` or `Path`): The folder of the temporary file.
        types (mapping, *optional*): The Arrow types of columns whose type is already known.
        cell (callable, *optional*, defaults to [`as_cell`]): How the values of a column without a type become text.
    """

    def __init__(
        self,
        folder: str | Path,
        types: Mapping[str, pa.DataType] | None = None,
        cell: Callable[[Any], str] = as_cell,
    ):
        super().__init__(folder)
        self._known, self._cell = dict(types or {}), cell
        self._differing: set[str] = set()
        """Columns of chats and tools whose entries have different keys."""

    def write(self, row: Mapping[str, Any]) -> int:
        """Append a row. Returns its size in bytes. Raises [`SampleError`] for a column name that is not valid in
        Arrow."""
        check_names(row)
        return super().write(row)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns and their types, which fit all rows. It is made when it is first used, after the last row."""
        import pyarrow as pa

        inferred = dict.fromkeys((name for name in self.columns if name not in self._known), pa.null())
        promoted: set[str] = set()
        as_text: set[str] = set()
        differing: set[str] = set()

        def write_as_text(name: str, error: Exception) -> None:
            logger.warning("column %r is written as JSON text: its values have no type in Arrow (%s).", name, error)
            as_text.add(name)

        for rows in self._batches_of_rows():
            for name in (name for name in self.columns if name in inferred and name not in as_text):
                values = [row.get(name) for row in rows]
                try:
                    array = pa.array(values)
                    seen, common = array.type, unified(inferred[name], array.type)
                except _misfits() as error:
                    write_as_text(name, error)
                else:
                    differing |= {name} if _differ(values, array) else set()
                    if any(type != common and not pa.types.is_null(type) for type in (inferred[name], seen)):
                        promoted.add(name)
                    inferred[name] = common
        # Values of earlier batches may not fit a type that was unified with a later one: 2**53 + 1 is not a float.
        for rows in self._batches_of_rows() if promoted - as_text else ():
            for name in sorted(promoted - as_text):
                values = [row.get(name) for row in rows]
                try:
                    differing |= {name} if _differ(values, _array(values, inferred[name])) else set()
                except _misfits() as error:
                    write_as_text(name, error)
        self._differing = {name for name in differing - as_text if not _NOT_JSON.search(str(inferred[name]))}
        entries = dict.fromkeys(self._differing, pa.list_(pa.json_()))
        types = inferred | entries | dict.fromkeys(as_text, pa.string()) | self._known
        marked = {name: JSON_TEXT if name in as_text else None for name in self.columns}
        cell, unnamed = (pa.struct([("bytes", pa.binary()), ("path", path)]) for path in (pa.string(), pa.null()))
        features: dict[str, dict[str, Any]] = {}
        for name in ("image", "images"):
            if types.get(name) in (cell, unnamed):
                types[name], features[name] = cell, {"_type": "Image"}
            elif types.get(name) in (pa.list_(cell), pa.list_(unnamed)):
                types[name], features[name] = pa.list_(cell), {"_type": "List", "feature": {"_type": "Image"}}
        fields = [pa.field(name, types[name], metadata=marked[name]) for name in self.columns]
        # What `datasets` writes: a trainer gets images, not cells.
        info = {"huggingface": json.dumps({"info": {"features": features}})}
        return pa.schema(fields, metadata=info if features else None)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows as Arrow batches with `schema`.

        Raises:
            SampleError: If a value does not fit the type of its column. The message names the column.
        """
        import pyarrow as pa

        schema = self.schema
        for rows in self._batches_of_rows():
            arrays = []
            for field in schema:
                values = [row.get(field.name) for row in rows]
                if field.metadata == JSON_TEXT:
                    values = [None if value is None else self._cell(value) for value in values]
                try:
                    if field.name in self._differing:
                        entries = [value and [None if e is None else as_json(e) for e in value] for value in values]
                        arrays.append(_array(entries, pa.list_(pa.string())).cast(field.type))
                    else:
                        arrays.append(_array(values, field.type))
                except _misfits() as error:
                    where = f"column {field.name!r} of type {field.type}"
                    raise SampleError(f"{where}: a value does not fit ({error}).") from error
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _misfits() -> tuple[type[Exception], ...]:
    """The errors of values that have no common type, or do not fit one."""
    import pyarrow as pa

    return pa.ArrowException, ArithmeticError, TypeError, ValueError


def check_names(names: Iterable[str]) -> None:
    """Raises [`SampleError`] for a column name that is not valid in Arrow."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SampleError(
                f"a Parquet column cannot be named {name!r:.60}: an unpaired surrogate is not valid Unicode."
            ) from None


def check_unique(names: Sequence[str], where: str | Path) -> None:
    """Raises [`SampleError`] if two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SampleError(f"{where}: two columns have the same name {twice!r}.")


def _array(values: Sequence[Any], type: pa.DataType | None) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, type)
    except UnicodeEncodeError:
        return pa.array([_encodable(value) for value in values], type)


def unified(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of a column whose values have one of two types. Raises `ValueError`, or an `ArrowException`, if it is
    stored as JSON text instead."""
    import pyarrow as pa

    schemas = [pa.schema([("column", one)]), pa.schema([("column", other)])]
    common = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    if _fields(common) > _MAX_FIELDS:
        raise ValueError(f"a struct with more than {_MAX_FIELDS} fields")
    return common


def _fields(type: pa.DataType) -> int:
    """Number of leaf fields of a type. Raises `ValueError` for a struct without fields, which Parquet cannot store."""
    import pyarrow as pa

    if not isinstance(type, pa.StructType):
        return sum(_fields(type.field(index).type) for index in range(type.num_fields)) or 1
    if type.num_fields == 0:
        raise ValueError("an empty mapping")
    return sum(_fields(type.field(index).type) for index in range(type.num_fields))


def _differ(values: Sequence[Any], array: pa.Array) -> bool:
    """Whether values are chats or lists of tools to which their array adds nulls."""
    first = next((value[0] for value in values if isinstance(value, list | tuple) and value), None)
    is_chat = isinstance(first, Mapping) and ("role" in first or "function" in first)
    return is_chat and array.to_pylist() != values


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {key: _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value
