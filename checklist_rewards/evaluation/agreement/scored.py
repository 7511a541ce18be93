"""Scored rows and their labels, as they are compared: read from files, matched by row and item.

A [`JudgedRow`] is one row of a scored file (its `checklist_score` column) with the items that the score is about. A
row is known by its `id` column, or by its place where there is none; an item by its id, the second of two equal
questions of one row by its place among them.

Labels stand in a column: for every item of a row in order (a list), by item id (a mapping), or as one number for the
whole target. None is no label. What cannot be a label is refused with one sentence that names the row and the item.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from checklist_rewards.checklists import NO, YES, Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import file_format
from checklist_rewards.judges.answers import named
from checklist_rewards.scores import ItemScore, Score
from checklist_rewards.scores.scales import ordinal_scale
from checklist_rewards.scores.table import BatchScore

ID, CHECKLIST = "id", "checklist"
YES_NO = "yes/no"


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One target with its score."""

    id: str
    group: str
    """What is resampled together: the value of the group column, else the row itself."""
    where: str
    """How an error names it: "scored.jsonl, row 3"."""
    data: Mapping[str, Any]
    score: Score
    items: tuple[ChecklistItem, ...]
    """As many as `score.items`, in their order."""
    known: bool
    """Whether a checklist has all of them, and so their weights."""

    @property
    def keys(self) -> tuple[str, ...]:
        """A key for every item: its id, of equal questions with a number behind it."""
        seen: dict[str, int] = {}
        keys = []
        for line in self.score.items:
            seen[line.id] = seen.get(line.id, 0) + 1
            keys.append(line.id if seen[line.id] == 1 else f"{line.id}#{seen[line.id]}")
        return tuple(keys)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one side says about an item."""

    label: str
    value: float | None
    """In [0, 1]; None for an abstention."""
    soft: float | None
    """Expected value by the probabilities; the value itself where there are none."""
    probabilities: Mapping[str, float] | None = None
    """As the judge gave them, before any calibration."""


def read_scored(
    path: str | Path,
    *,
    id_key: str | None = None,
    group_key: str | None = None,
    checklist_key: str | None = None,
    shared: Checklist | None = None,
) -> list[JudgedRow]:
    """Read a scored file. Rows without a score (they had no checklist) are left out.

    Args:
        path (`str` or `Path`): .jsonl, .csv or .parquet with a `checklist_score` column.
        id_key (`str`, *optional*): column that tells rows apart; `id` where every row has it, else their place.
        group_key (`str`, *optional*): column of what belongs together, such as a document.
        checklist_key (`str`, *optional*, defaults to `"checklist"`): column of the checklists; needed for weights and
            options only.
        shared ([`Checklist`], *optional*): the checklist of all rows, instead.

    Raises:
        SampleError: for a file without scores, a column that is not there, and ids that are not distinct.
    """
    batch = BatchScore.from_parquet(path) if file_format(path) == ".parquet" else BatchScore.from_jsonl(path)
    if id_key is None and batch.rows and all(row.get(ID) is not None for row in batch.rows):
        id_key = ID
    rows: list[JudgedRow] = []
    first: dict[str, str] = {}
    for number, (data, score) in enumerate(zip(batch.rows, batch.scores, strict=True), start=1):
        where = f"{path}, row {number}"
        name = str(number) if id_key is None else _named_value(data, id_key, "--id-key", where)
        if name in first:
            raise SampleError(f"{where}: {id_key!r} is {name!r} as in {first[name]}; an id is one row's (--id-key).")
        first[name] = where
        if score is None:
            continue
        group = name if group_key is None else _named_value(data, group_key, "--group-key", where)
        checklist, column = shared, data.get(checklist_key or CHECKLIST)
        if checklist is None and column not in (None, ""):
            checklist = Checklist.parse(column, f"{where}, checklist")
        items = _items(score, checklist, where)
        known = {item.id for item in checklist.items} if checklist is not None else set()
        rows.append(JudgedRow(name, group, where, data, score, items, {line.id for line in score.items} <= known))
    if not rows:
        raise SampleError(f"{path} has no row with a score.")
    return rows


def answer_given(item: ChecklistItem, line: ItemScore) -> Answer | None:
    """What the judge answered; None where it did not."""
    if line.unanswered is not None or line.answer is None:
        return None
    value = item.values.get(line.answer)
    probabilities = line.probabilities
    return Answer(line.answer, value, value if probabilities is None else expected(item, probabilities), probabilities)


def expected(item: ChecklistItem, probabilities: Mapping[str, float]) -> float | None:
    """Expected value over the labels that carry one; None if they have no probability at all."""
    known = [(p, value) for label, p in probabilities.items() if (value := item.values.get(label)) is not None]
    scale = math.fsum(p for p, _ in known)
    return math.fsum(p * value for p, value in known) / scale if scale > 0 else None


def answer_labelled(item: ChecklistItem, label: Any, where: str) -> Answer | None:
    """The answer that a label stands for: a label of the item, true or false, 1 or 0, an option's value; None for no
    label.

    Raises [`SampleError`] that begins with `where`.
    """
    if label is None:
        return None
    name: str | None
    if {YES, NO} <= item.values.keys() and isinstance(label, int | float) and label in (0, 1):
        name = YES if label else NO
    else:
        name = named(label, item)
    if name is None and isinstance(label, int | float) and not isinstance(label, bool):
        same = [option for option, value in item.values.items() if value == label and item.options is not None]
        name = same[0] if len(same) == 1 else None
    if name is None:
        allowed = ", ".join(item.values) + (", true, false, 1, 0" if item.options is None else "")
        raise SampleError(f"{where}: the label {label!r:.60} is none of its answers; allowed: {allowed}, null.")
    value = item.values[name]
    return Answer(name, value, value)


def labels_of(row: JudgedRow, value: Any, key: str) -> list[Answer | None] | float | None:
    """The labels of a row: one for every item, or the number that the whole target has.

    Args:
        row ([`JudgedRow`]).
        value: what the label column holds for it.
        key (`str`): the column, for errors.

    Returns:
        list with an [`Answer`] or None for every item; or `float`; or None where nothing is labelled.

    Raises:
        SampleError: naming the row and the item.
    """
    value = _parsed(value)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise SampleError(f"{row.where}: {key!r} must be a finite number, got {value}.")
        return float(value)
    if isinstance(value, bool | str) and len(row.items) == 1:
        value = [value]
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in row.keys]
        if unknown:
            raise SampleError(f"{row.where}: {key!r} labels an item {unknown[0]!r}, which the score does not have.")
        value = [value.get(name) for name in row.keys]
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise SampleError(
            f"{row.where}: {key!r} must be a list with a label for each of the {len(row.items)} items, a mapping of "
            f"item ids to labels, or a number for the whole target; got {value!r:.60}."
        )
    if len(value) != len(row.items):
        raise SampleError(f"{row.where}: {key!r} has {len(value)} labels for {len(row.items)} items.")
    return [
        answer_labelled(item, label, f"{row.where}, item {number} ({item.question!r:.60})")
        for number, (item, label) in enumerate(zip(row.items, value, strict=True), start=1)
    ]


def kind_of(item: ChecklistItem) -> str:
    """What items are compared with each other: those of the same possible answers, worth the same."""
    if item.options is None:
        return YES_NO
    return " | ".join(f"{label}={'na' if value is None else f'{value:g}'}" for label, value in item.values.items())


def pairs_of(
    rows: Sequence[JudgedRow], others: Sequence[JudgedRow], where: tuple[str, str]
) -> tuple[list[tuple[JudgedRow, JudgedRow]], int]:
    """Rows of two files with the same id, and how many have no partner.

    Raises [`SampleError`] if none has.
    """
    known = {row.id: row for row in others}
    pairs = [(row, known[row.id]) for row in rows if row.id in known]
    if not pairs:
        raise SampleError(
            f"{where[0]} and {where[1]} have no row in common: the first ids are {rows[0].id!r} and {others[0].id!r} "
            "(name the column with --id-key)."
        )
    return pairs, len(rows) + len(others) - 2 * len(pairs)


def _named_value(data: Mapping[str, Any], key: str, option: str, where: str) -> str:
    if data.get(key) is None:
        keys = ", ".join(map(repr, data)) or "no other columns"
        raise SampleError(f"{where}: there is nothing under {key!r} ({option}); the row has {keys}.")
    return str(data[key])


def _parsed(value: Any) -> Any:
    """A cell of a CSV file as the JSON that it holds."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value or None


def _items(score: Score, checklist: Checklist | None, where: str) -> tuple[ChecklistItem, ...]:
    known = {item.id: item for item in checklist.items} if checklist is not None else {}
    try:
        return tuple(_item(line, known, where) for line in score.items)
    except ValidationError as error:
        raise SampleError(f"{where}: an item of the score has no question ({error.errors()[0]['msg']}).") from None


def _item(line: ItemScore, known: Mapping[str, ChecklistItem], where: str) -> ChecklistItem:
    if line.id in known:
        return known[line.id]
    labels = list(line.probabilities or ([] if line.answer is None else [line.answer]))
    if set(labels) <= {YES, NO}:
        return ChecklistItem(id=line.id, question=line.question)
    # Questions that a scorer has put on a scale: their checklist has them without options.
    scale = ordinal_scale(len(labels)) if len(labels) > 1 else ()
    if labels == [option.label for option in scale]:
        return ChecklistItem(id=line.id, question=line.question, options=scale)
    raise SampleError(
        f"{where}: item {line.id} ({line.question!r:.60}) is answered by {', '.join(labels)}, and no checklist says "
        "what these count for (name it with --checklist-key or --checklist)."
    )
