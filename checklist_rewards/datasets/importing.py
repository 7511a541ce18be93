"""Importing existing checklists: from a file whose rows have a checklist, or from a rubric format of `rubrics.py`.

Every row is validated. The error of the first invalid row names its line, key and item.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from checklist_rewards.datasets.criteria import json_or_text
from checklist_rewards.datasets.rubrics import DOCUMENTS, FORMATS, FoundRows, read_rubrics, rubric_format
from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import write_text
from checklist_rewards.files.rows import Row, read_rows, write_rows
from checklist_rewards.scores.scales import with_abstention
from checklist_rewards.validation import import_extra, one_of

if TYPE_CHECKING:
    from datasets import Dataset

TARGET, CHECKLIST = "target", "checklist"
AUTO, ROWS = "auto", "rows"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImportedRows:
    """The rows of a file."""

    format: str
    rows: Iterator[tuple[dict[str, Any], Checklist]]
    """Each row without its checklist, and the checklist. Rows have a `prompt` unless the file has none."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Dropped fields with the number of items that had them; complete once all rows have been read."""


def import_checklists(
    path: str | Path,
    *,
    format: str = AUTO,
    prompt_key: str | Sequence[str] = PROMPT,
    checklist_key: str = CHECKLIST,
    target_key: str | None = None,
    item_keys: Mapping[str, str] | None = None,
    may_abstain: bool = False,
    source: str | None = None,
) -> Dataset:
    """Import a file with checklists as a dataset.

    Args:
        path (`str` or `Path`): a JSONL, CSV or Parquet file; for some formats a JSON or YAML file.
        format (`str`, *optional*, defaults to `"auto"`): `"rows"` for rows with a checklist in this package's format
            under any key names, or one of `rubrics.FORMATS` (see `datasets/rubrics.py`). `"auto"` detects the format
            from the first entries.
        prompt_key (`str` or sequence of `str`, *optional*, defaults to `"prompt"`): the key of the prompt (a string or
            chat messages). The nonblank texts of several keys are joined by blank lines.
        checklist_key (`str`, *optional*, defaults to `"checklist"`): the key of the checklist: a list of strings or of
            mappings, or a JSON string of one.
        target_key (`str`, *optional*): the key of a text to score; its column is renamed to `target`.
        item_keys (mapping, *optional*): item fields with other names, such as `{"question": "criterion", "weight":
            "points"}`. The name is a key of the items, or of the row with one value per item (lists of strings are
            joined by ", "). With `item_keys`, unknown fields of items are dropped with a warning; without it, they are
            an error.
        may_abstain (`bool`, *optional*, defaults to `False`): allow "cannot_assess" for every question.
        source (`str`, *optional*): origin of the checklists, for the column `checklist_source`.

    Returns:
        [`~datasets.Dataset`]: The columns of [`checklist_features`] and all other columns of the file.

    Raises:
        SampleError, ChecklistError: If a row is not valid.

    Example:

        >>> import_checklists(
        ...     "infobench.jsonl",
        ...     prompt_key=("instruction", "input"),
        ...     checklist_key="decomposed_questions",
        ...     target_key="output",
        ...     item_keys={"category": "question_label"},
        ... )  # doctest: +SKIP
    """
    import_extra("datasets", extra="datasets")
    imported = imported_rows(
        path,
        format=format,
        prompt_key=prompt_key,
        checklist_key=checklist_key,
        target_key=target_key,
        item_keys=item_keys,
        may_abstain=may_abstain,
        source=source,
    )

    def rows() -> Iterator[dict[str, Any]]:
        for row, checklist in imported.rows:
            if PROMPT not in row:
                raise SampleError(
                    f"{path}: the checklist has no prompt, but every row of a dataset needs one; `checklists import` "
                    "writes it to a .json file that can be used for all rows of another file."
                )
            yield row | checklist_columns(checklist)

    dataset = dataset_from_rows(rows(), CHECKLIST_COLUMNS)
    if dataset is None:
        raise SampleError(f"{path}: the file has no rows.")
    if imported.left_out:
        logger.warning("%s: dropped fields that items do not have: %s", path, listed_fields(imported.left_out))
    return in_order(dataset)


def imported_rows(
    path: str | Path,
    *,
    format: str = AUTO,
    prompt_key: str | Sequence[str] = PROMPT,
    checklist_key: str = CHECKLIST,
    target_key: str | None = None,
    item_keys: Mapping[str, str] | None = None,
    may_abstain: bool = False,
    source: str | None = None,
) -> ImportedRows:
    """The rows of [`import_checklists`] as an iterator, with the count of dropped fields."""
    item_keys = item_keys or {}
    for name in item_keys:
        if name not in ChecklistItem.model_fields:
            allowed = ", ".join(ChecklistItem.model_fields)
            raise SampleError(f"item_keys: {name!r} is not a field of an item; allowed: {allowed}.")
    one_of("format", format, (AUTO, ROWS, *FORMATS))
    named = checklist_key != CHECKLIST or prompt_key != PROMPT or bool(item_keys)
    if named and format in FORMATS:
        raise SampleError(
            f"format={format!r} has fixed keys; prompt_key, checklist_key and item_keys require format='rows'."
        )
    if format == AUTO:
        format = ROWS if named else rubric_format(path) or ROWS
        if format == ROWS and Path(path).suffix.lower() in DOCUMENTS:
            raise SampleError(f"{path}: unknown format; set `format` to one of {', '.join(FORMATS)}.")
    left_out: Counter[str] = Counter()
    if format == ROWS:
        keys = (prompt_key,) if isinstance(prompt_key, str) else tuple(prompt_key)
        imported = _own_rows(path, keys, checklist_key, target_key, item_keys, left_out)
    else:
        imported = _rubric_rows(read_rubrics(path, format, left_out), target_key)

    def rows() -> Iterator[tuple[dict[str, Any], Checklist]]:
        for row, checklist in imported:
            checklist = with_abstention(checklist) if may_abstain else checklist
            yield row, checklist if source is None else checklist.model_copy(update={"source": source})

    return ImportedRows(format, rows(), left_out)


def write_imported(imported: ImportedRows, file: Path, output: Path) -> tuple[int | None, int]:
    """Write imported rows, or with an output in .json the only checklist of the file.

    Args:
        imported ([`ImportedRows`]): The rows.
        file (`Path`): Where they come from, for errors.
        output (`Path`): The file to write.

    Returns:
        `tuple[int | None, int]`: The number of rows, None for a checklist, and the number of items.

    Raises:
        SampleError: If a row is not valid, or the output cannot hold the rows. Nothing is written.
    """
    if output.suffix.lower() == ".json":
        checklist = _only({checklist.id: checklist for _, checklist in imported.rows}, file, output)
        write_text(output, json.dumps(checklist.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n")
        return None, len(checklist)
    rows = items = 0
    with write_rows(output) as out:
        for row, checklist in imported.rows:
            if PROMPT not in row:
                raise SampleError(
                    f"{file} holds a single checklist without a prompt, which cannot be written as rows; set "
                    "--output to a .json file and use it with `score --checklist`."
                )
            others = {name: value for name, value in row.items() if name not in (PROMPT, *CHECKLIST_COLUMNS)}
            out.write({PROMPT: row[PROMPT]} | others | checklist_columns(checklist))
            rows, items = rows + 1, items + len(checklist)
        if not rows:
            raise SampleError(f"{file} has no rows.")
    return rows, items


def listed_fields(left_out: Counter[str]) -> str:
    """The dropped fields with their counts, as text."""
    return ", ".join(f"{name} ({count})" for name, count in sorted(left_out.items()))


def _own_rows(
    path: str | Path,
    keys: Sequence[str],
    checklist_key: str,
    target_key: str | None,
    item_keys: Mapping[str, str],
    left_out: Counter[str],
) -> Iterator[tuple[dict[str, Any], Checklist]]:
    """Rows with a checklist that [`Checklist.parse`] accepts after renaming the keys of items."""
    renamed = {PROMPT: keys, TARGET: (target_key,)} if target_key else {PROMPT: keys}
    replaced = {*keys, checklist_key, target_key, *CHECKLIST_COLUMNS}
    for row in read_rows(path):
        _check_keys(row, [*keys, checklist_key, *([target_key] if target_key else [])], renamed)
        prompt = prompt_of(row.data, keys, row.where)
        request_of(prompt, None, row.where)
        checklist = Checklist.parse(_named(row, checklist_key, item_keys, left_out), row.where)
        origin = {
            "source": checklist.source or row.data.get("checklist_source") or None,
            "model": checklist.model or row.data.get("checklist_model") or None,
        }
        yield (
            {PROMPT: prompt}
            | ({TARGET: row.data[target_key]} if target_key else {})
            | {name: value for name, value in row.data.items() if name not in replaced},
            checklist.model_copy(update=origin),
        )


def _rubric_rows(rows: FoundRows, target_key: str | None) -> Iterator[tuple[dict[str, Any], Checklist]]:
    """Rows of a rubric format, with validated prompts, the target renamed, and no column overwritten."""
    for where, columns in rows:
        checklist = columns.pop(CHECKLIST)
        if target_key is not None:
            _check_keys(Row(0, columns, where), [target_key], {TARGET: (target_key,)})
            columns = {(TARGET if name == target_key else name): value for name, value in columns.items()}
        reserved = [name for name in columns if name in CHECKLIST_COLUMNS]
        if reserved:
            raise SampleError(f"{where}: the column name {reserved[0]!r} is reserved; rename the column.")
        if PROMPT in columns:
            request_of(columns[PROMPT], None, where)
        yield columns, checklist


def _check_keys(row: Row, needed: Sequence[str], renamed: Mapping[str, Sequence[str | None]]) -> None:
    for key in needed:
        if key not in row.data:
            raise SampleError(f"{row.where}: key {key!r} not found; the keys are {', '.join(row.data)}.")
    for name, keys in renamed.items():
        if name in row.data and name not in keys:
            raise SampleError(
                f"{row.where}: {keys[0]!r} would be renamed to {name!r}, but that column exists; rename it."
            )


def _named(row: Row, checklist_key: str, item_keys: Mapping[str, str], left_out: Counter[str]) -> Any:
    """The checklist of a row, with item fields renamed to those of [`ChecklistItem`]."""
    value = row.data[checklist_key]
    if not item_keys:
        return value
    value = json_or_text(value)
    origin = value if isinstance(value, Mapping) and "items" in value else {}
    items = origin.get("items", value)
    if not isinstance(items, list):
        return value  # Checklist.parse raises the error
    parsed = [dict(item) if isinstance(item, Mapping) else {"question": item} for item in items]
    named = [{name: item[name] for name in ChecklistItem.model_fields if name in item} for item in parsed]
    used = {*ChecklistItem.model_fields, *item_keys.values()}
    left_out.update(key for item in parsed for key in item if key not in used)
    for name, key in item_keys.items():
        if any(key in item for item in parsed):
            values = [item.get(key) for item in parsed]
        else:
            values = _one_per_item(row, key, len(items))
        for item, content in zip(named, values, strict=True):
            item[name] = content
    return {**origin, "items": named}


def _one_per_item(row: Row, key: str, count: int) -> list[Any]:
    values = json_or_text(row.data.get(key))
    if not isinstance(values, list) or len(values) != count:
        raise SampleError(
            f"{row.where}: {key!r} must be a key of the items, or a column with a list of {count} values (one per "
            f"item); got {values!r:.60}."
        )
    return [", ".join(v) if isinstance(v, list) and all(isinstance(t, str) for t in v) else v for v in values]


def _only(checklists: Mapping[str, Checklist], file: Path, output: Path) -> Checklist:
    if len(checklists) != 1:
        content = f"{len(checklists)} different checklists" if checklists else "no rows"
        raise SampleError(
            f"{file} has {content}, but --output {output} holds exactly one checklist; set it to a .jsonl, .csv or "
            ".parquet file."
        )
    [checklist] = checklists.values()
    return checklist
