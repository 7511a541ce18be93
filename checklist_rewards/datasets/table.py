"""Scored batches as tables and files.

A [`BatchScore`] contains the scores of a batch and their rows. It can be converted to a pandas `DataFrame`, to JSONL
and to Parquet, and back without loss. Each score is stored completely in one column, `checklist_score`, so it can be
scored again without an engine.

- JSONL: one row per line, with the score as an additional key.
- Parquet: a column has a native Arrow type if all its values round-trip exactly. Otherwise (rows without the key,
  values of mixed types) it is stored as JSON text. The field's metadata records the encoding.
- DataFrame: the row's columns and `checklist_score` as objects. The numbers of the score are added as read-only float
  columns (`checklist_score.primary_score` and so on). Rates of a row without a score are NaN, so the mean of a column
  is that of [`BatchScore`]. A missing key is `pandas.NA`.

All values that JSON supports round-trip exactly: strings, finite numbers, booleans, None, lists, and mappings with
string keys. In files, NaN and infinities become null and dates become text, as everywhere in this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.cells import JSON_TEXT, as_cell, from_cell, json_reader
from checklist_rewards.files.rows import SCORE_COLUMN, read_rows, write_batches, write_rows
from checklist_rewards.files.spool import check_names, check_unique
from checklist_rewards.rows import is_map, require_scores, score_from
from checklist_rewards.scores.reasons import Unanswered
from checklist_rewards.scores.score import Score
from checklist_rewards.scores.tally import PassRate, Tally, tally
from checklist_rewards.validation import import_extra

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NUMBERS = (
    "primary_score",
    "pass_rate",
    "weighted_score",
    "expected_score",
    "normalized_score",
    "raw_score",
    "quality",
    "scaled_score_1_5",
    "answered",
    "total",
    "answered_weight",
    "lower",
    "upper",
)
"""The numbers of a score that become DataFrame columns, with the prefix `checklist_score.`."""
RATES = ("pass_rate", "weighted_score", "expected_score", "normalized_score", "raw_score", "scaled_score_1_5")
"""Those that aggregate the items of a row."""


@dataclass(frozen=True)
class BatchScore:
    """The scores of a batch and the rows they belong to.

    Args:
        scores (sequence of [`Score`] or None): None for a row that was not scored, such as one without a checklist.
        rows (sequence of mappings, *optional*): One per score. Defaults to empty mappings.

    Raises:
        SampleError: If the numbers of rows and scores differ, or if a row already contains a score.
    """

    scores: tuple[Score | None, ...]
    rows: tuple[Mapping[str, Any], ...] = ()

    def __init__(self, scores: Iterable[Score | None], rows: Iterable[Mapping[str, Any]] | None = None):
        scores = tuple(scores)
        copies = tuple({} for _ in scores) if rows is None else tuple(dict(row) for row in rows)
        if len(copies) != len(scores):
            raise SampleError(f"got {len(copies)} rows for {len(scores)} scores; give one row per score.")
        for number, row in enumerate(copies, start=1):
            taken = next((name for name in row if name == SCORE_COLUMN or name.startswith(f"{SCORE_COLUMN}.")), None)
            if taken is not None:
                raise SampleError(
                    f"row {number} already has a column {taken!r}; rename it, the score needs this name."
                )
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "rows", copies)

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def tally(self) -> Tally:
        """All aggregates of the batch."""
        return tally(score for score in self.scores if score is not None)

    @property
    def macro(self) -> float | None:
        """Mean of the pass rates of the rows with a score."""
        return self.tally.macro

    @property
    def micro(self) -> float | None:
        """Passed / answered items of the rows with a score (DRFR)."""
        return self.tally.micro

    @property
    def mean(self) -> float | None:
        """Mean primary score."""
        return self.tally.mean

    @property
    def by_category(self) -> dict[str, PassRate]:
        """Pass rates of each category, in order of first appearance."""
        return self.tally.by_category

    def to_dataframe(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per score; the columns are described in the module's docstring."""
        [pd] = import_extra("pandas", extra="datasets")

        columns: dict[str, Any] = {}
        for name, values in _columns(self.rows).items():
            columns[name] = _objects([pd.NA if value is _ABSENT else value for value in values])
        columns[SCORE_COLUMN] = _objects(list(map(_dumped, self.scores)))
        scored = [None if score is None or score.primary_score is None else score for score in self.scores]
        for name in NUMBERS:
            of = scored if name in RATES else self.scores
            values = [None if score is None else getattr(score, name) for score in of]
            columns[f"{SCORE_COLUMN}.{name}"] = pd.Series(values, dtype="float64")
        for category in self.by_category:
            rates = [None if s is None else s.category_pass_rates.get(category) for s in scored]
            columns[f"{SCORE_COLUMN}.category/{category}"] = pd.Series(rates, dtype="float64")
        return pd.DataFrame(columns, index=range(len(self)))

    @classmethod
    def from_dataframe(cls, frame: pd.DataFrame) -> BatchScore:
        """Convert back from [`to_dataframe`]. Raises [`SampleError`] if the column `checklist_score` is missing."""
        [pd] = import_extra("pandas", extra="datasets")

        require_scores(frame.columns, "the DataFrame")
        names = [name for name in frame.columns if not str(name).startswith(f"{SCORE_COLUMN}.")]
        records = [
            {name: value for name, value in zip(names, values, strict=True) if value is not pd.NA}
            for values in zip(*(frame[name].tolist() for name in names), strict=True)
        ]
        return cls._of((record, f"row {number}") for number, record in enumerate(records, start=1))

    def to_jsonl(self, path: str | Path) -> None:
        """Write a JSONL file. If writing fails, no file is created."""
        with write_rows(path, ".jsonl") as rows:
            for row, score in zip(self.rows, self.scores, strict=True):
                rows.write({**row, SCORE_COLUMN: _dumped(score)})

    @classmethod
    def from_jsonl(cls, path: str | Path) -> BatchScore:
        """Read a file written by [`to_jsonl`] or the command line. Raises [`SampleError`] naming the line."""
        return cls._of((row.data, row.where) for row in read_rows(path))

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file. If writing fails, no file is created. Raises [`SampleError`] for a column name that is
        not valid Unicode."""
        [pa] = import_extra("pyarrow", extra="datasets")

        columns = _columns(self.rows)
        check_names(columns)
        arrays, schema = [], []
        for name, values in columns.items():
            array, encoding = _encoded(values, None)
            arrays.append(array)
            schema.append(pa.field(name, array.type, metadata=encoding))
        array, encoding = _encoded([_dumped(score) for score in self.scores], _arrow_type(Score))
        arrays.append(array)
        schema.append(pa.field(SCORE_COLUMN, array.type, metadata=encoding))
        table = pa.Table.from_arrays(arrays, schema=pa.schema(schema))
        with atomic_path(path) as temporary:
            write_batches(temporary, table.schema, table.to_batches())

    @classmethod
    def from_parquet(cls, path: str | Path) -> BatchScore:
        """Read a file written by [`to_parquet`]. Raises [`SampleError`] naming the row."""
        pa, pq = import_extra("pyarrow", "pyarrow.parquet", extra="datasets")

        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise SampleError(f"{path}: cannot be read as Parquet ({error}).") from error
        check_unique(table.column_names, path)
        require_scores(table.column_names, str(path))
        try:
            columns = {field.name: _decoded(table[field.name], field) for field in table.schema}
        except (ValueError, RecursionError) as error:
            raise SampleError(f"{path}: a JSON column contains invalid JSON ({error}).") from None
        records = [
            {name: values[index] for name, values in columns.items() if values[index] is not _ABSENT}
            for index in range(table.num_rows)
        ]
        return cls._of((record, f"{path}, row {number}") for number, record in enumerate(records, start=1))

    @classmethod
    def _of(cls, records: Iterable[tuple[Mapping[str, Any], str]]) -> BatchScore:
        scores, rows = [], []
        for record, where in records:
            require_scores(record, where)
            row = dict(record)
            scores.append(score_from(row.pop(SCORE_COLUMN), where))
            rows.append(row)
        return cls(scores, rows)


def _dumped(score: Score | None) -> dict[str, Any] | None:
    return None if score is None else score.model_dump(mode="json")


class _Absent:
    """Marks a key that a row does not have."""


_ABSENT: Any = _Absent()


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, _ABSENT) for row in rows] for name in names}


def _objects(values: Sequence[Any]) -> pd.Series:
    import numpy as np
    import pandas as pd

    cells = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        cells[index] = value  # one by one: from a list, pandas would convert None to NaN and lists to arrays
    return pd.Series(cells, dtype=object)


def _encoded(values: Sequence[Any], type: pa.DataType | None) -> tuple[pa.Array, dict[bytes, bytes] | None]:
    """Encode `values` as an Arrow array; also return the field metadata needed to decode it."""
    import pyarrow as pa

    if not any(value is _ABSENT for value in values):
        try:
            array = pa.array(values, type, from_pandas=False)
            if array.type != pa.null() and _same(_plain(_round_trip(array)), values):
                return array, None
        except (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError):
            pass
    texts = [None if value is _ABSENT else as_cell(value) for value in values]
    return pa.array(texts, pa.string()), JSON_TEXT


def _round_trip(array: pa.Array) -> list[Any]:
    """Write an array to Parquet and read it back. Raises an Arrow error for a type that Parquet does not support."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"column": array}), sink)
    return pq.read_table(pa.BufferReader(sink.getvalue()))["column"].to_pylist()


def _decoded(column: pa.ChunkedArray, field: pa.Field) -> list[Any]:
    values = column.to_pylist()
    if JSON_TEXT.items() <= (field.metadata or {}).items():
        return [_ABSENT if value is None else from_cell(value) for value in values]
    reader = json_reader(field.type)
    return _plain(values if reader is None else [reader(value) for value in values])


def _plain(value: Any) -> Any:
    """Convert Arrow's maps, which are read as lists of pairs, to mappings; other values are unchanged."""
    if isinstance(value, list):
        if is_map(value):
            return dict(value)
        return [_plain(entry) for entry in value]
    return {key: _plain(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal in value and type: 1, 1.0 and True all differ."""
    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(other, sort_keys=True, default=repr)


def _arrow_type(annotation: Any) -> pa.DataType:
    """The Arrow type of a field of a score: text, number, mapping of names to numbers, or tuple of records."""
    import pyarrow as pa

    plain = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string(), Unanswered: pa.string()}
    if annotation in plain:
        return plain[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return pa.struct([(name, _arrow_type(field.annotation)) for name, field in annotation.model_fields.items()])
    if is_dataclass(annotation):
        hints = get_type_hints(annotation)
        return pa.struct([(field.name, _arrow_type(hints[field.name])) for field in fields(annotation)])
    origin, inner = get_origin(annotation), [each for each in get_args(annotation) if each is not NoneType]
    if origin is dict:
        return pa.map_(*map(_arrow_type, inner))
    if origin is tuple:
        return pa.list_(_arrow_type(inner[0]))
    return pa.string() if origin is Literal else _arrow_type(inner[0])
