"""Building a dataset of checklists: write a checklist for every prompt, in chunks.

The results of a chunk are written to a file, which is joined with the source's columns at the end, so memory does not
grow with the dataset. All replies of a chunk are stored before the next chunk starts, so a rerun resumes. All
prompts are validated before the first call.

Prompts without a usable checklist are never dropped silently. After all other prompts are done, a [`GenerationError`]
names the rows (`on_failure="raise"`), or they are dropped with a warning that names them (`on_failure="drop"`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset, Features, IterableDataset, concatenate_datasets

from checklist_rewards.datasets.columns import (
    CHECKLIST_COLUMNS,
    PROMPT,
    checklist_columns,
    checklist_features,
    dataset_from_rows,
    in_order,
)
from checklist_rewards.datasets.scoring import map_stream
from checklist_rewards.datasets.sources import transformed
from checklist_rewards.errors import ConfigError, GenerationError, SampleError
from checklist_rewards.files.cells import as_cell, as_text, messages_in
from checklist_rewards.files.rows import CHUNK_ROWS
from checklist_rewards.generators import Generator, Request
from checklist_rewards.judges import Progress
from checklist_rewards.pipelines import Pipeline, PipelineConfig, WriterConfig
from checklist_rewards.pipelines import pipeline as make_pipeline
from checklist_rewards.rows import HISTORY, IMAGE_COLUMNS, Columns
from checklist_rewards.validation import known, nearest, one_of

logger = logging.getLogger(__name__)

DEFAULT_PIPELINE = "tick"
_PIPELINE_SETTINGS = ("model", "backend", "base_url", "budget", "store", "refiners")
_LISTED = 10
_EXCERPT = 200


def build_checklists(
    prompts: Dataset | IterableDataset | Iterable[Any],
    generator: Generator | None = None,
    *,
    pipeline: str | Path | PipelineConfig = DEFAULT_PIPELINE,
    prompt_key: str | Sequence[str] = PROMPT,
    reference_key: str | None = None,
    on_failure: Literal["raise", "drop"] = "raise",
    progress: bool | Progress = True,
    **settings: Any,
) -> Dataset | IterableDataset:
    """Write a checklist for every prompt.

    For a stream, an [`~datasets.IterableDataset`], the result is a stream too: checklists are written as it is
    iterated, and nothing is kept. Prompts are then validated, and failures reported, chunk by chunk, without a
    progress bar.

    Args:
        prompts ([`~datasets.Dataset`], [`~datasets.IterableDataset`] or iterable): a dataset; a stream; or strings,
            lists of chat messages, or rows (mappings).
            In chat messages, the last user message is the instruction and the others are its history.
        generator ([`Generator`], *optional*): a generator or [`Pipeline`] to use instead of `pipeline`.
        pipeline (`str`, `Path` or [`PipelineConfig`], *optional*, defaults to `"tick"`): name, config file or config
            of the pipeline whose generator and refiners write the checklists. If its prompt uses `reference`,
            `history`, `context`, `candidates`, `chosen` or `rejected`, they are taken from the columns of these names.
        prompt_key (`str` or sequence of `str`, *optional*, defaults to `"prompt"`): the column with the prompt,
            renamed to `prompt` in the result. The nonblank texts of several columns are joined by blank lines.
        reference_key (`str`, *optional*): the column with a known good answer, if it is not `reference`.
        on_failure (`str`, *optional*, defaults to `"raise"`): how to handle prompts without a usable checklist after
            all others are done: `"raise"` an error that names them, or `"drop"` them with a warning.
        progress (`bool` or callable, *optional*, defaults to `True`): show a progress bar on stderr; or a callable,
            called with the number of prompts that got a reply since its last call.
        **settings: `model`, `backend`, `base_url`, `budget`, `store` and `refiners`; and settings of the generator
            that override the pipeline, such as `temperature` or `max_items`.

    Returns:
        [`~datasets.Dataset`] or [`~datasets.IterableDataset`]: The columns of [`checklist_features`] and the other
        columns of the source, in its order.

    Raises:
        SampleError: If a prompt is not valid. The message names its row, from 1; nothing has been sampled at that
            point.
        ConfigError: If the pipeline is not valid or writes one checklist for a whole corpus.
        GenerationError: After the last prompt, if some prompts got no checklist; `raw` is the first unusable reply.
    """
    one_of("on_failure", on_failure, ("raise", "drop"))
    pipe, shown = _pipeline(generator, pipeline, settings)
    keys = (prompt_key,) if isinstance(prompt_key, str) else tuple(prompt_key)
    if isinstance(prompts, IterableDataset):
        return _stream(prompts, pipe, shown, keys, reference_key, on_failure)
    dataset, keys = _as_dataset(prompts, keys)
    columns = _columns(dataset.column_names, shown, keys, reference_key)
    read = [*keys, *columns.writer.values(), *([columns.history] if columns.history else ())]
    read += [name for name in IMAGE_COLUMNS if name in dataset.column_names]
    inputs = dataset.select_columns(list(dict.fromkeys(read)))
    for number, row in enumerate(inputs, start=1):
        _request(pipe, columns, row, f"row {number}")
    pipe.check_writers()

    failures: dict[int, GenerationError] = {}
    features = _new_columns(keys)

    def results(count: Progress | None) -> Iterator[dict[str, Any]]:
        for start in range(0, len(inputs), CHUNK_ROWS):
            rows = list(inputs.select(range(start, min(start + CHUNK_ROWS, len(inputs)))))
            written = _written(pipe, columns, rows, start + 1, failures, count)
            yield from ({name: new[name] for name in features} for _, new in written)

    with _counter(progress, len(dataset)) as count:
        new = dataset_from_rows(results(count), features)
    if failures:
        _report(failures, len(dataset), on_failure)
        dataset = dataset.select([index for index in range(len(dataset)) if index + 1 not in failures])
    if len(keys) > 1:
        dataset = dataset.remove_columns(list(keys))
    elif keys[0] != PROMPT:
        dataset = dataset.rename_column(keys[0], PROMPT)
    return in_order(concatenate_datasets([dataset, new], axis=1))


def _stream(
    dataset: IterableDataset,
    pipe: Pipeline,
    shown: Collection[str],
    keys: tuple[str, ...],
    reference_key: str | None,
    on_failure: str,
) -> IterableDataset:
    """The stream with a checklist per prompt, written in chunks as it is iterated."""
    names = list(dataset.column_names or next(iter(dataset), {}))
    columns = _columns(names, shown, keys, reference_key)
    pipe.check_writers()
    others = [name for name in names if name not in keys]

    def chunk(rows: list[dict[str, Any]], start: int) -> list[dict[str, Any]]:
        failures: dict[int, GenerationError] = {}
        written = _written(pipe, columns, rows, start, failures)
        if failures:
            _report(failures, len(rows), on_failure, every=False)
        return [{name: row[name] for name in others} | new for row, new in written]

    features, new = dataset.features, checklist_features()
    if features is not None:
        prompt = features[keys[0]] if len(keys) == 1 else new[PROMPT]
        features = Features({PROMPT: prompt, **{name: features[name] for name in others}, **_new_columns(keys[:1])})
    return map_stream(dataset, chunk, features, [PROMPT, *others, *CHECKLIST_COLUMNS], CHUNK_ROWS)


def _request(pipe: Pipeline, columns: Columns, row: Mapping[str, Any], where: str) -> Request:
    """The request for the checklist of a row. Raises [`SampleError`] if it is not valid."""
    if len(columns.inputs) > 1:
        columns.messages_of(row, where)  # raises for an image that the text would not have
    return pipe.check_request(columns.request_of(row, where), where)


def _written(
    pipe: Pipeline,
    columns: Columns,
    rows: Sequence[dict[str, Any]],
    start: int,
    failures: dict[int, GenerationError],
    progress: Progress | None = None,
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The rows that got a checklist, each with its prompt and the checklist columns. `failures` receives the errors of
    the others, by number; the first row has the number `start`."""
    requests = [_request(pipe, columns, row, f"row {number}") for number, row in enumerate(rows, start)]
    written = []
    for number, (row, result) in enumerate(zip(rows, pipe.write_batch(requests, progress), strict=True), start):
        if isinstance(result, GenerationError):
            failures[number] = result
            continue
        several = len(columns.inputs) > 1
        prompt = columns.messages_of(row, "") if several else messages_in(row[columns.inputs[0]])
        written.append((row, {PROMPT: prompt} | checklist_columns(result)))
    return written


def _pipeline(
    generator: Generator | None, pipeline: str | Path | PipelineConfig, settings: dict[str, Any]
) -> tuple[Pipeline, Collection[str]]:
    """The pipeline that writes, and the fields that it takes from columns of their names. A generator takes none."""
    if generator is not None:
        if settings:
            raise SampleError(
                f"{', '.join(settings)} cannot be combined with `generator`; set it on the generator instead."
            )
        if pipeline != DEFAULT_PIPELINE:
            raise SampleError(f"`generator` and pipeline={pipeline!r} cannot be combined; pass one of them.")
        if isinstance(generator, Pipeline):
            return generator, generator.shown
        scorer: Any = None  # it only writes
        return Pipeline(PipelineConfig(), generator, (), scorer), ()
    own = [name for name in inspect.signature(build_checklists).parameters if name != "settings"]
    known("build_checklists", settings, dict.fromkeys((*own, *_PIPELINE_SETTINGS, *WriterConfig.model_fields)))
    shared = {name: settings.pop(name) for name in _PIPELINE_SETTINGS if name in settings}
    pipe = make_pipeline(pipeline, generator=settings or None, **shared)
    if pipe.corpus_level:
        raise ConfigError(
            f"the pipeline {pipe.name!r} writes one checklist for a whole corpus instead of one per prompt; use "
            f"pipeline({pipe.name!r}).generate(source)."
        )
    return pipe, pipe.shown


def _as_dataset(prompts: Any, keys: tuple[str, ...]) -> tuple[Dataset, tuple[str, ...]]:
    """The prompts as a dataset, with the names of their columns."""
    if isinstance(prompts, Dataset) and not transformed(prompts):
        dataset: Dataset | None = prompts.with_format(None) if len(prompts) else None
    elif isinstance(prompts, str | Mapping) or not isinstance(prompts, Iterable):
        hint = " Pass one of its splits." if isinstance(prompts, Mapping) else ""
        raise SampleError(f"prompts must be a Dataset or an iterable of prompts, got {type(prompts).__name__}.{hint}")
    else:
        rows = iter(prompts)
        first = next(rows, None)
        bare = not isinstance(first, Mapping)
        keys = (PROMPT,) if bare else keys
        cell = as_text if bare else as_cell  # texts and messages in one column are told apart when they are read
        dataset = None if first is None else dataset_from_rows(_as_rows(chain([first], rows), bare), cell=cell)
    if dataset is None:
        raise SampleError("prompts is empty; give at least one prompt.")
    return dataset, keys


def _as_rows(prompts: Iterable[Any], bare: bool) -> Iterator[dict[str, Any]]:
    for number, value in enumerate(prompts, start=1):
        if bare and isinstance(value, str | list | tuple):
            yield {PROMPT: value}
        elif not bare and isinstance(value, Mapping):
            yield dict(value)
        else:
            kind = "a prompt (a string or a list of messages)" if bare else "a mapping, as in row 1"
            raise SampleError(f"row {number}: expected {kind}, got {type(value).__name__} {value!r:.60}.")


def _columns(
    names: Sequence[str], shown: Collection[str], keys: tuple[str, ...], reference_key: str | None
) -> Columns:
    """How the rows are read: the prompt from `keys`, and the fields `shown` to the writer from columns of their names.
    Raises [`SampleError`] for a column that is missing, or that the result would have twice."""
    context = {name: name for name in sorted(shown) if name in names and name not in keys and name != "input"}
    context |= {"reference": reference_key} if reference_key else {}
    for name in (*keys, *context.values()):
        if name not in names:
            raise SampleError(f"column {name!r} not found{nearest(name, names)}; the columns are {', '.join(names)}.")
    for name in (PROMPT, *CHECKLIST_COLUMNS):
        if name in names and name not in keys:
            raise SampleError(f"the dataset already has a column {name!r}; remove or rename it first.")
    return Columns(keys, history=context.pop(HISTORY, None), writer=context, named=True)


def _new_columns(keys: Sequence[str]) -> Features:
    features = checklist_features()
    return Features({name: features[name] for name in features if name != PROMPT or len(keys) > 1})


def _report(failures: Mapping[int, GenerationError], total: int, on_failure: str, *, every: bool = True) -> None:
    """Warn of the failures or raise. `every`: these are all rows, so that none is left if all failed."""
    numbers = [str(number) for number in failures]
    rows = ", ".join(numbers[:_LISTED]) + (f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else "")
    number, first = next(iter(failures.items()))
    excerpt = f"{first.raw[:_EXCERPT]!r}{'...' if len(first.raw) > _EXCERPT else ''}"
    message = (
        f"{len(failures)} of {total} prompts got no checklist (row {rows}). "
        f"Row {number}: {first}{f' The reply was {excerpt}.' if first.raw else ''}"
    )
    if on_failure == "drop" and (len(failures) < total or not every):
        logger.warning("%s These rows were dropped.", message)
        return
    raise GenerationError(
        f"{message} Stored replies are reused: run again with another seed, prompt or model"
        + (", or with on_failure='drop' to drop these rows." if len(failures) < total else "."),
        first.raw,
    )


@contextmanager
def _counter(progress: bool | Progress, total: int) -> Iterator[Progress | None]:
    if not isinstance(progress, bool) or not progress:
        yield progress or None
        return
    from rich.console import Console

    from checklist_rewards.progress import progress_on

    with progress_on(Console(stderr=True)) as bar:
        yield bar("checklists", total)
