"""Scored batches as tables and files.

A [`BatchScore`] contains the scores of a batch and their rows. It can be converted to a pandas `DataFrame`, and to
JSONL and Parquet and back. Each score is stored completely in one column, `checklist_score`, so it can be scored again
without an engine.

- JSONL: one row per line, with the score as an additional key. All values that JSON supports come back as they were:
  strings, finite numbers, booleans, None, lists, and mappings with string keys.
- Parquet: the file that `checklist-rewards score -o out.parquet` writes. The values of a column have one type, so a
  key that a row does not have comes back as None.
- DataFrame: the row's columns and `checklist_score` as objects. The numbers of the score are added as read-only float
  columns (`checklist_score.primary_score` and so on). Rates of a row without a score are NaN, so the mean of a column
  is that of [`BatchScore`]. A missing key is `pandas.NA`.

In files, NaN and infinities become null and dates become text, as everywhere in this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import SCORE_COLUMN, read_rows, write_rows
from checklist_rewards.rows import require_scores, score_from
from checklist_rewards.scores.score import Score
from checklist_rewards.scores.tally import PassRate, Tally, tally
from checklist_rewards.validation import import_extra

if TYPE_CHECKING:
    import pandas as pd

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

        names = dict.fromkeys(name for row in self.rows for name in row)
        columns: dict[str, Any] = {name: _objects([row.get(name, pd.NA) for row in self.rows]) for name in names}
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

    def to_jsonl(self, path: str | Path) -> None:
        """Write a JSONL file. If writing fails, no file is created."""
        self._write(path, ".jsonl")

    @classmethod
    def from_jsonl(cls, path: str | Path) -> BatchScore:
        """Read a file written by [`to_jsonl`] or the command line. Raises [`SampleError`] naming the line."""
        return cls._of((row.data, row.where) for row in read_rows(path))

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file. If writing fails, no file is created. Raises [`SampleError`] for a column name that is
        not valid Unicode."""
        import_extra("pyarrow", extra="datasets")
        self._write(path, ".parquet")

    @classmethod
    def from_parquet(cls, path: str | Path) -> BatchScore:
        """Read a file written by [`to_parquet`], whatever its extension. Raises [`SampleError`] naming the row."""
        import_extra("pyarrow", extra="datasets")
        return cls._of((row.data, row.where) for row in read_rows(path, ".parquet"))

    def _write(self, path: str | Path, format: str) -> None:
        with write_rows(path, format) as rows:
            for row, score in zip(self.rows, self.scores, strict=True):
                rows.write({**row, SCORE_COLUMN: _dumped(score)})

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


def _objects(values: Sequence[Any]) -> pd.Series:
    import numpy as np
    import pandas as pd

    cells = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        cells[index] = value  # one by one: from a list, pandas would convert None to NaN and lists to arrays
    return pd.Series(cells, dtype=object)
