"""Importing checklists that somebody else wrote: a file whose rows already carry them, under whatever names.

Every row is checked on the way in, and the first one that cannot be used is named with its line, key and item.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.datasets.columns import (
    CHECKLIST_COLUMNS,
    PROMPT,
    checklist_columns,
    dataset_from_rows,
    in_order,
    prompt_of,
    request_of,
)
from checklist_rewards.errors import SampleError
from checklist_rewards.rows import Row, read_rows

TARGET = "target"


def import_checklists(
    path: str | Path,
    *,
    prompt_key: str | Sequence[str] = PROMPT,
    checklist_key: str = "checklist",
    target_key: str | None = None,
    item_keys: Mapping[str, str] | None = None,
    source: str | None = None,
) -> Dataset:
    """Read a JSONL, CSV or Parquet file whose rows carry a checklist.

    Args:
        path (`str` or `Path`): the file.
        prompt_key (`str` or sequence of `str`, *optional*, defaults to `"prompt"`): the key of the prompt (a string or
            chat messages). Several are joined, an empty line between texts that are not blank.
        checklist_key (`str`, *optional*, defaults to `"checklist"`): the key of the checklist: a list of strings or of
            mappings, or a JSON string of one.
        target_key (`str`, *optional*): the key of a text to be scored; its column is then called `target`.
        item_keys (mapping, *optional*): fields of the items that have another name, such as `{"question": "criterion",
            "weight": "points"}`. The name is a key of the items, or of the row, which then holds one value per item (a
            list of texts there is joined by ", "). With `item_keys`, what items hold beside their known fields is left
            out; without, it is refused.
        source (`str`, *optional*): where the checklists come from, for `checklist_source`.

    Returns:
        [`~datasets.Dataset`]: the columns of [`checklist_features`] in place of the ones named; all others are kept.

    Raises:
        SampleError, ChecklistError: for the first row that cannot be used.

    Example:

        >>> import_checklists(
        ...     "infobench.jsonl",
        ...     prompt_key=("instruction", "input"),
        ...     checklist_key="decomposed_questions",
        ...     target_key="output",
        ...     item_keys={"category": "question_label"},
        ... )  # doctest: +SKIP
    """
    keys = (prompt_key,) if isinstance(prompt_key, str) else tuple(prompt_key)
    item_keys = item_keys or {}
    for field in item_keys:
        if field not in ChecklistItem.model_fields:
            allowed = ", ".join(ChecklistItem.model_fields)
            raise SampleError(f"item_keys: {field!r} is no field of an item; allowed: {allowed}.")
    renamed = {PROMPT: keys, TARGET: (target_key,)} if target_key else {PROMPT: keys}
    replaced = {*keys, checklist_key, target_key, *CHECKLIST_COLUMNS}

    def rows() -> Iterator[dict[str, Any]]:
        for row in read_rows(path):
            _check_keys(row, [*keys, checklist_key, *([target_key] if target_key else [])], renamed)
            prompt = prompt_of(row.data, keys, row.where)
            request_of(prompt, None, row.where)
            checklist = Checklist.parse(_named(row, checklist_key, item_keys), row.where)
            origin = {
                "source": source or checklist.source or row.data.get("checklist_source") or None,
                "model": checklist.model or row.data.get("checklist_model") or None,
            }
            yield (
                {PROMPT: prompt}
                | ({TARGET: row.data[target_key]} if target_key else {})
                | {name: value for name, value in row.data.items() if name not in replaced}
                | checklist_columns(checklist.model_copy(update=origin))
            )

    dataset = dataset_from_rows(rows(), CHECKLIST_COLUMNS)
    if dataset is None:
        raise SampleError(f"{path}: the file has no rows.")
    return in_order(dataset)


def _check_keys(row: Row, needed: Sequence[str], renamed: Mapping[str, Sequence[str | None]]) -> None:
    for key in needed:
        if key not in row.data:
            raise SampleError(f"{row.where}: there is no {key!r}; the keys are {', '.join(row.data)}.")
    for name, keys in renamed.items():
        if name in row.data and name not in keys:
            raise SampleError(f"{row.where}: {keys[0]!r} would become {name!r}, but that is there already; rename it.")


def _named(row: Row, checklist_key: str, item_keys: Mapping[str, str]) -> Any:
    """The checklist of a row, its items' fields under the names that [`ChecklistItem`] has."""
    value = row.data[checklist_key]
    if not item_keys:
        return value
    value = _json(value)
    origin = value if isinstance(value, Mapping) and "items" in value else {}
    items = origin.get("items", value)
    if not isinstance(items, list):
        return value  # the parser says what is wrong with it
    found = [dict(item) if isinstance(item, Mapping) else {"question": item} for item in items]
    named = [{name: item[name] for name in ChecklistItem.model_fields if name in item} for item in found]
    for field, key in item_keys.items():
        if any(key in item for item in found):
            values = [item.get(key) for item in found]
        else:
            values = _one_per_item(row, key, len(items))
        for item, content in zip(named, values, strict=True):
            item[field] = content
    return {**origin, "items": named}


def _one_per_item(row: Row, key: str, count: int) -> list[Any]:
    values = _json(row.data.get(key))
    if not isinstance(values, list) or len(values) != count:
        raise SampleError(
            f"{row.where}: {key!r} must be a key of the items, or of the row with a list of {count} values, one per "
            f"item; got {values!r:.60}."
        )
    return [", ".join(v) if isinstance(v, list) and all(isinstance(t, str) for t in v) else v for v in values]


def _json(value: Any) -> Any:
    """A CSV cell holds its list as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
