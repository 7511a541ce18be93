"""Building a dataset of checklists: every prompt through a generator, in chunks.

What a chunk gave goes straight into an Arrow file that joins the source's own columns at the end, so memory does not
grow with the dataset. Every reply is in the store before the next chunk is asked: running again resumes. All prompts
are checked before the first one is paid for.

A prompt whose checklist cannot be had is never left out silently: the rest is finished first, then a
[`GenerationError`] names the rows (`on_failure="raise"`), or a warning does and the dataset is without them
(`on_failure="drop"`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset, Features, concatenate_datasets

from checklist_rewards.datasets.columns import (
    CHECKLIST_COLUMNS,
    PROMPT,
    ArrowFile,
    checklist_columns,
    checklist_features,
    dataset_from_rows,
    in_order,
    prompt_of,
    request_of,
)
from checklist_rewards.errors import ConfigError, GenerationError, SampleError
from checklist_rewards.generators import Generator, Request
from checklist_rewards.judges import Progress
from checklist_rewards.pipelines import Pipeline, PipelineConfig
from checklist_rewards.pipelines import pipeline as make_pipeline
from checklist_rewards.pipelines.requests import fields_of, joined

logger = logging.getLogger(__name__)

DEFAULT_PIPELINE = "tick"
CHUNK_ROWS = 4096
"""Rows in memory at once; many, because the last replies of a chunk are waited for before the next one is asked."""
_AROUND = ("model", "backend", "base_url", "budget", "store", "refiners")
_LISTED = 10
_EXCERPT = 200


def build_checklists(
    prompts: Dataset | Iterable[Any],
    generator: Generator | None = None,
    *,
    pipeline: str | Path | PipelineConfig = DEFAULT_PIPELINE,
    prompt_key: str | Sequence[str] = PROMPT,
    reference_key: str | None = None,
    on_failure: Literal["raise", "drop"] = "raise",
    progress: bool | Progress = True,
    **settings: Any,
) -> Dataset:
    """Write a checklist for every prompt.

    Args:
        prompts ([`~datasets.Dataset`] or iterable): a dataset; or strings, lists of chat messages, or rows (mappings).
            Of chat messages the last one by the user is the instruction and the others are its history.
        generator ([`Generator`], *optional*): who writes, instead of a pipeline; a [`Pipeline`] is one.
        pipeline (`str`, `Path` or [`PipelineConfig`], *optional*, defaults to `"tick"`): whose generator and refiners
            write; a name, a config file, or a config. What its prompt speaks of beside the input (`reference`,
            `history`, `context`, `candidates`, `chosen`, `rejected`) is taken from the columns of these names.
        prompt_key (`str` or sequence of `str`, *optional*, defaults to `"prompt"`): the column with the prompt, called
            `prompt` in the result. Several columns are joined, an empty line between texts that are not blank.
        reference_key (`str`, *optional*): the column with a known good answer, where it has another name.
        on_failure (`str`, *optional*, defaults to `"raise"`): what becomes of prompts without a usable checklist, once
            all others are done: raise an error that names them, or drop them with a warning that does.
        progress (`bool` or callable, *optional*, defaults to `True`): a bar on stderr; or told how many prompts got a
            reply since its last call.
        **settings: `model`, `backend`, `base_url`, `budget`, `store` and `refiners`; settings of the generator that
            beat the pipeline's: `temperature`, `max_items` ...

    Returns:
        [`~datasets.Dataset`]: the columns of [`checklist_features`] and the source's others, in the source's order.

    Raises:
        SampleError: for prompts that cannot be used, naming the row (from 1), before anything is sampled.
        ConfigError: for a pipeline that cannot be used, or that writes one checklist for a whole corpus.
        GenerationError: after the last prompt, if some got no checklist; `raw` is the first unusable reply.
    """
    if on_failure not in ("raise", "drop"):
        raise SampleError(f"on_failure={on_failure!r} is not known; allowed: 'raise', 'drop'.")
    if generator is not None and settings:
        raise SampleError(f"a generator is given, so {', '.join(settings)} would be ignored; set it on the generator.")
    if generator is not None and pipeline != DEFAULT_PIPELINE:
        raise SampleError(f"a generator is given, so the pipeline {pipeline!r} would be ignored; give one of them.")
    generator = generator if generator is not None else _writer(pipeline, settings)
    dataset, keys = _as_dataset(prompts, prompt_key)
    beside = _beside(generator, dataset, keys, reference_key)
    asked = _asked(dataset, keys, list(beside.values()))
    for number, row in enumerate(asked, start=1):
        request = _request(row, keys, beside, number)
        if isinstance(generator, Pipeline):
            generator.check_request(request, f"row {number}")
    generator.check()

    failures: dict[int, GenerationError] = {}
    with _counter(progress, len(dataset)) as count, ArrowFile(_new_columns(keys)) as file:
        for start in range(0, len(dataset), CHUNK_ROWS):
            rows = list(enumerate(asked.select(range(start, min(start + CHUNK_ROWS, len(asked)))), start=start + 1))
            requests = [_request(row, keys, beside, number) for number, row in rows]
            made = []
            for (number, row), result in zip(rows, generator.generate_batch(requests, count), strict=True):
                if isinstance(result, GenerationError):
                    failures[number] = result
                else:
                    made.append({PROMPT: prompt_of(row, keys, "")} | checklist_columns(result))
            file.write(made)
        columns = file.dataset()
    if failures:
        _report(failures, len(dataset), on_failure)
        dataset = dataset.select([index for index in range(len(dataset)) if index + 1 not in failures])
    if len(keys) > 1:
        dataset = dataset.remove_columns(list(keys))
    elif keys[0] != PROMPT:
        dataset = dataset.rename_column(keys[0], PROMPT)
    return in_order(concatenate_datasets([dataset, columns], axis=1))


def _writer(pipeline: str | Path | PipelineConfig, settings: dict[str, Any]) -> Pipeline:
    around = {name: settings.pop(name) for name in _AROUND if name in settings}
    pipe = make_pipeline(pipeline, generator=settings or None, **around)
    if pipe.corpus_level:
        raise ConfigError(
            f"the pipeline {pipe.name!r} writes one checklist for a whole corpus, not one per prompt: use "
            f"pipeline({pipe.name!r}).generate(source)."
        )
    return pipe


def _beside(generator: Generator, dataset: Dataset, keys: Sequence[str], reference_key: str | None) -> dict[str, str]:
    """What the generator is shown beside the prompt: field of a [`Request`] to column."""
    shown = generator.shown - {"input"} if isinstance(generator, Pipeline) else ()
    usual = {name: name for name in sorted(shown) if name in dataset.column_names and name not in keys}
    return usual | ({"reference": reference_key} if reference_key else {})


def _as_dataset(prompts: Any, prompt_key: str | Sequence[str]) -> tuple[Dataset, tuple[str, ...]]:
    """The prompts as a dataset, with the names of the columns that hold them."""
    keys = (prompt_key,) if isinstance(prompt_key, str) else tuple(prompt_key)
    if isinstance(prompts, Dataset):
        dataset: Dataset | None = prompts.with_format(None) if len(prompts) else None
    elif isinstance(prompts, str | Mapping) or not isinstance(prompts, Iterable):
        hint = " Pass one of its splits." if isinstance(prompts, Mapping) else ""
        raise SampleError(f"prompts must be a Dataset or an iterable of prompts, got {type(prompts).__name__}.{hint}")
    else:
        rows = iter(prompts)
        first = next(rows, None)
        bare = not isinstance(first, Mapping)
        keys = (PROMPT,) if bare else keys
        dataset = None if first is None else dataset_from_rows(_as_rows(chain([first], rows), bare))
    if dataset is None:
        raise SampleError("there are no prompts.")
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


def _asked(dataset: Dataset, keys: Sequence[str], beside: Sequence[str]) -> Dataset:
    """The columns that a generator is shown."""
    needed = [*keys, *beside]
    for name in needed:
        if name not in dataset.column_names:
            raise SampleError(f"there is no column {name!r}; the columns are {', '.join(dataset.column_names)}.")
    for name in (PROMPT, *CHECKLIST_COLUMNS):
        if name in dataset.column_names and name not in keys:
            raise SampleError(f"there already is a column {name!r}; remove or rename it first.")
    return dataset.select_columns(list(dict.fromkeys(needed)))


def _request(row: Mapping[str, Any], keys: Sequence[str], beside: Mapping[str, str], number: int) -> Request:
    where = f"row {number}"
    reference = row[beside["reference"]] if "reference" in beside else None
    request = request_of(prompt_of(row, keys, where), reference, where)
    others = {name: row[column] for name, column in beside.items() if name != "reference"}
    fields = fields_of(others, where, beside)
    return replace(request, **fields | {"history": joined([fields.get("history"), request.history])})


def _new_columns(keys: Sequence[str]) -> Features:
    features = checklist_features()
    return Features({name: features[name] for name in features if name != PROMPT or len(keys) > 1})


def _report(failures: Mapping[int, GenerationError], total: int, on_failure: str) -> None:
    numbers = [str(number) for number in failures]
    rows = ", ".join(numbers[:_LISTED]) + (f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else "")
    number, first = next(iter(failures.items()))
    excerpt = f"{first.raw[:_EXCERPT]!r}{'...' if len(first.raw) > _EXCERPT else ''}"
    message = (
        f"{len(failures)} of {total} prompts got no checklist (row {rows}). "
        f"Row {number}: {first}{f' The reply was {excerpt}.' if first.raw else ''}"
    )
    if on_failure == "drop" and len(failures) < total:
        logger.warning("%s The dataset is without them.", message)
        return
    raise GenerationError(
        f"{message} All replies are in the store, if there is one: run again with another seed, prompt or model"
        + (", or with on_failure='drop' to go without these rows." if len(failures) < total else "."),
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
