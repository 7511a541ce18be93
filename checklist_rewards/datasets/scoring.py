"""Scoring a dataset: in memory-mapped files, or row by row while a stream is read, of which nothing is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from datasets import Dataset, Features, IterableDataset, Value

from checklist_rewards.datasets.columns import dataset_from_rows, media
from checklist_rewards.datasets.shards import in_groups
from checklist_rewards.datasets.sources import rows_of_dataset
from checklist_rewards.datasets.tasks import RowWork, Source, Totals
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import as_json
from checklist_rewards.files.rows import SCORE_COLUMN, Row
from checklist_rewards.pipelines import Pipeline, PipelineConfig
from checklist_rewards.rows import Columns
from checklist_rewards.scorer import Scorer

BATCH_ROWS = 1024
"""Rows of a stream that are read and scored together."""


def score_dataset(
    dataset: Dataset | IterableDataset,
    scorer: Scorer,
    *,
    prompt_key: str | None = None,
    target_key: str | None = None,
    checklist_key: str | None = None,
    reference_key: str | None = None,
) -> Dataset | IterableDataset:
    """Score every row of a dataset with its checklist.

    Args:
        dataset ([`~datasets.Dataset`] or [`~datasets.IterableDataset`]): rows with a text and a checklist.
        scorer ([`Scorer`]): the scorer.
        prompt_key, target_key, checklist_key, reference_key (`str`, *optional*): the columns, as in
            `checklist-rewards score`: `prompt` or `input`, `target` or `completion`, `checklist`, and no reference.

    Returns:
        The same kind of dataset, with the column `checklist_score`; it is null where the checklist is null. In a
        stream it is JSON text, because the types of a stream must be known before its first row; see
        `Score.model_validate_json`.

    Raises:
        SampleError, ChecklistError: If a row cannot be scored; for a stream, when it is reached.
    """
    if isinstance(dataset, Mapping) or not isinstance(dataset, Dataset | IterableDataset):
        raise SampleError(f"dataset must be a Dataset or an IterableDataset, got {type(dataset).__name__}.")
    every = rows_of_dataset(dataset)
    if (row := next(every, None)) is None:
        raise SampleError("dataset has no rows.")
    first = row.data
    columns = Columns.of(
        first,
        inputs=None if prompt_key is None else [prompt_key],
        target=target_key,
        checklist=checklist_key,
        reference=reference_key,
    )
    pipe = Pipeline(PipelineConfig(), None, (), scorer)

    def scored(rows: Sequence[Row]) -> list[dict[str, Any]]:
        return RowWork(pipe, columns, Totals(), scores=True, checklists=Source.COLUMN).process(rows)

    if isinstance(dataset, Dataset):
        batches = in_groups(chain([row], every), BATCH_ROWS, lambda row: row.number)
        result = dataset_from_rows(chain.from_iterable(map(scored, batches)), media(dataset.features))
        assert result is not None
        return result

    features = None if dataset.features is None else Features({**dataset.features, SCORE_COLUMN: Value("string")})

    def chunk(rows: list[dict[str, Any]], start: int) -> list[dict[str, Any]]:
        found = scored([Row(number, dict(row), f"row {number}") for number, row in enumerate(rows, start)])
        return [row | {SCORE_COLUMN: row[SCORE_COLUMN] and as_json(row[SCORE_COLUMN])} for row in found]

    return map_stream(dataset, chunk, features, list(dict.fromkeys([*first, SCORE_COLUMN])), BATCH_ROWS)


def map_stream(
    dataset: IterableDataset,
    function: Callable[[list[dict[str, Any]], int], list[dict[str, Any]]],
    features: Features | None,
    columns: Sequence[str],
    batch_rows: int,
) -> IterableDataset:
    """A stream of the rows that `function` returns for batches of rows. It is called with the rows of a batch and the
    number of the first one, from 1. `features` and `columns` are those of the result; None for types that the source
    does not know."""
    names = list(dataset.column_names or next(iter(dataset)))

    def of_columns(batch: Mapping[str, Sequence[Any]], indices: Sequence[int]) -> dict[str, list[Any]]:
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        out = function(rows, indices[0] + 1)
        return {name: [row[name] for row in out] for name in columns}

    # Tables with types: the library would infer them per batch, and could not write batches that differ.
    def of_table(table: Any, indices: Sequence[int]) -> Any:
        import pyarrow as pa

        assert features is not None
        # Not decoded, so that images keep their bytes.
        results = [features.encode_example(row) for row in function(table.to_pylist(), indices[0] + 1)]
        return pa.Table.from_pylist(results, schema=features.arrow_schema)

    options: dict[str, Any] = {"batched": True, "batch_size": batch_rows, "with_indices": True}
    if features is None or "Json(" in str(features):  # pyarrow builds no arrays of JSON
        return dataset.map(of_columns, remove_columns=names, **options)
    return dataset.with_format("arrow").map(of_table, features=features, **options).with_format(None)
