"""Labels in the cells of a file: one parser for all commands.

A cell labels the items of its row one by one (a list in their order, or a mapping of item ids), or the text as a whole
(a number, or yes, no, true or false). Cells of CSV files hold the same as JSON text.

The column decides what its cells mean, not the single cell. A column that labels items in one row does so in all rows;
true, false, yes and no label the item where all rows have one, and so do 1 and 0. Other numbers are of whole texts and
have one scale: a column with yes, no or fractions between 0 and 1 is on the scale from 0 to 1, and a 4 in it is
refused with its row. No label is ever left out because of its value. [`label_in`] unwraps what annotation tools write.

[`read_labelled`] reads files of labelled texts for training and for few-shot examples: one [`Labelled`] per label.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import decoded
from checklist_rewards.files.rows import SCORE_COLUMN, Row, read_rows
from checklist_rewards.rows import Columns, score_from
from checklist_rewards.scores import item_keys
from checklist_rewards.validation import is_finite, string

LABELS, GROUP = "labels", "group"
STOPS = ".,;:!…。，、；：！．؛،۔।"
"""Marks after an answer, in any script."""
_AROUND = f" \t\r\n*_\"'`“”‘’«»「」『』()[]（）【】{STOPS}"
_SYNONYMS = {"true": YES, "false": NO}
_WORDS = {YES: 1.0, NO: 0.0, "true": 1.0, "false": 0.0}
_ABSTAINING = ("n/a", "na", "not applicable", "cannot assess", "can't assess")

Label = str | float | None
"""The label of an item: the name of its answer, or the fraction of yes; None without one."""


@dataclass(frozen=True, slots=True)
class LabelCell:
    """A cell of a label column, and what it may label."""

    where: str
    """The row, for error messages."""
    value: Any
    items: Sequence[ChecklistItem] = ()
    """The items of the row; empty if the row has a single question, which the cell labels."""


def label_in(row: Mapping[str, Any], key: str, where: str) -> Any:
    """The cell with the labels of a row. A list that an annotation tool puts around one label is removed: Label Studio
    around a rating (`[{"rating": 4}]`), and Argilla around the answers of annotators. Raises a [`SampleError`] for the
    answers of several, which are not those to several items."""
    value, states = decoded(row.get(key)), decoded(row.get(f"{key}.status"))
    if isinstance(value, list) and isinstance(states, list) and f"{key}.users" in row:
        value = [answer for answer, state in zip(value, states, strict=False) if state == "submitted"]
        if len(value) > 1:
            raise SampleError(f"{where}: {key!r} has answers of {len(value)} annotators; write one label per row.")
        return value[0] if value else None
    match value:
        case [{"rating": label, **others}] | [{"number": label, **others}] if not others:
            return label
    return value


def read_column(
    cells: Sequence[LabelCell], key: str, *, soft: bool = False, any_scale: bool = False
) -> list[list[Label] | float | None]:
    """The labels of a column named `key`: for each cell a list with the label of each item, a `float` for the whole
    text, or None without a label.

    With `soft`, a yes/no item may have a number between 0 and 1 as its label. With `any_scale`, the user named the
    scale of the numbers, so that 0.5 and 4 may be on it.

    Raises:
        SampleError: For a label that is not valid, or of another kind or on another scale than others of the column.
            The message names the row and the value.
    """
    values = [_parsed(cell, key) for cell in cells]
    present = [(cell, value) for cell, value in zip(cells, values, strict=True) if value is not None]
    lists = [cell for cell, value in present if isinstance(value, Mapping | list | tuple)]
    words = [(cell, value) for cell, value in present if isinstance(value, bool | str)]
    only = [cell.items[0] for cell, _ in present if len(cell.items) == 1]
    # 1 and 0 mean yes and no of an item if they mean the same of the whole text.
    digits = not any_scale and all(item.options is None and item.weight > 0 for item in only)
    of_items = words or (digits and all(value in (0, 1) for _, value in present))
    if lists or (of_items and len(only) == len(present)):
        return [
            None if value is None else _of_items(cell, value, key, soft, lists[0].where if lists else "")
            for cell, value in zip(cells, values, strict=True)
        ]
    numbers = [None if value is None else _number(cell, value, key) for cell, value in zip(cells, values, strict=True)]
    outside = [(c, n) for c, n in zip(cells, numbers, strict=True) if n is not None and not 0 <= n <= 1]
    if words and any_scale:
        cell, value = words[0]
        raise SampleError(
            f"{cell.where}: the label {value!r:.60} in {key!r} is not a number on the scale of the labels."
        )
    within: list[tuple[LabelCell, Any]] = [*words]
    if not any_scale and all(n > 1 and n.is_integer() for _, n in outside):
        within = within or [(c, n) for c, n in zip(cells, numbers, strict=True) if n is not None and 0 < n < 1]
    if outside and within:
        (cell, number), (other, value) = outside[0], within[0]
        raise SampleError(
            f"{cell.where}: the label {number:g} in {key!r} is not on the scale of {other.where}, which has "
            f"{value!r}; use one scale in a column, such as 0 to 1 (for `agree`, name another with --label-range)."
        )
    return list(numbers)


def on_unit_scale(labels: Sequence[Any]) -> bool:
    """Whether all numbers of a column that [`read_column`] has read are from 0 to 1."""
    return all(0 <= label <= 1 for label in labels if isinstance(label, float))


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text with the label of one question about it: training data of a judge, or a few-shot example."""

    target: str
    question: str
    """Empty if `item` names the question."""
    label: Any
    """An answer of the item, or what [`label_of`] takes for one; in training, P(yes) from 0 to 1."""
    group: str | None = None
    """Group of dependent texts, such as the responses to one prompt. They are held out together, and a judge of one of
    them sees none of the others as an example."""
    input: str | None = None
    """What the target answers."""
    reference: str | None = None
    """A reference answer."""
    item: str | None = None
    """Id of the item, instead of its question."""
    reason: str | None = None
    where: str = field(default="an example", compare=False)
    """Origin of the label, for errors."""


def read_labelled(
    path: str | Path,
    *,
    target_key: str | None = None,
    question_key: str = "question",
    label_key: str = "label",
    group_key: str | None = None,
    soft: bool = False,
) -> list[Labelled]:
    """Read labelled texts from a JSONL, CSV or Parquet file.

    A row is one label, with the columns `target` (or `completion`), `question` (or `item`, an id), `label` and
    optionally `reason`; or a text with several labels, with the columns `target`, `checklist`, `labels` (one per item,
    null for none, or a mapping by item id) and optionally `reasons` in the same form. Both may have `prompt` (or
    `input`), `reference` and `group`. The `..._key` arguments name other columns.

    With `soft`, the labels are P(yes), numbers from 0 to 1; items with options have none, and the yes/no answers of a
    scored row without a `label` are its labels. The text is read with its `input` and `reference`, not its `prompt`.

    Raises:
        SampleError, ChecklistError: For an invalid row, with the file and row number, and for a row with an image,
            because examples and training data are text.
    """
    rows = list(read_rows(path))
    if not rows:
        return []
    columns = Columns.of(
        rows[0],
        target=target_key,
        reference="reference" if soft else None,
    )
    columns = replace(columns, optional=columns.optional | {*columns.inputs, "input", "reference"})
    context = replace(columns, inputs=("input",), named=True) if soft else columns
    found: dict[int, list[Labelled]] = {}
    single: dict[int, LabelCell] = {}
    listed: dict[int, LabelCell] = {}
    for place, row in enumerate(rows):
        scored = soft and label_key not in row.data and SCORE_COLUMN in row.data
        if scored and (row.data[SCORE_COLUMN] not in (None, "") or LABELS not in row.data):
            found[place] = _of_judge(row)
        elif LABELS in row.data and not (label_key in row.data and {question_key, "item"} & row.data.keys()):
            checklist = columns.checklist_of(row.data, row.where)
            label = label_in(row.data, LABELS, row.where)
            listed[place] = LabelCell(row.where, label, () if checklist is None else checklist.items)
        else:
            single[place] = LabelCell(row.where, label_in(row.data, label_key, row.where))
    cells = list(single.values())
    values = read_column(cells, label_key) if soft else [_parsed(cell, label_key) for cell in cells]
    for place, value in zip(single, values, strict=True):
        found[place] = [_of_row(rows[place], value, label_key, question_key, soft)]
    for place, labels in zip(listed, read_column(list(listed.values()), LABELS, soft=soft), strict=True):
        found[place] = list(_of_list(rows[place], listed[place], labels, soft))
    labelled = []
    for place, row in enumerate(rows):
        input, _, images = context.context_of(row.data, row.where)
        target = columns.target_of(row.data, row.where)
        if images or target.images:
            raise SampleError(
                f"{row.where}: the row has an image, but labelled texts are read without images; remove the image, or "
                "the row."
            )
        about: dict[str, Any] = {
            "input": input or None,
            "target": target.text,
            "reference": columns.reference_of(row.data, row.where),
            "group": _group(row, group_key),
            "where": row.where,
        }
        labelled += [replace(one, **about) for one in found[place]]
    return labelled


def _group(row: Row, key: str | None) -> str | None:
    """The group of a row, which is empty for an empty cell; None without the column."""
    if key is None and GROUP not in row.data:
        return None
    value = row.data.get(key or GROUP)
    return "" if value is None else str(value)


def _of_judge(row: Row) -> list[Labelled]:
    """P(yes) of the yes/no questions that the judge of a scored row has answered."""
    score = score_from(row.data[SCORE_COLUMN], row.where)
    return [
        Labelled("", line.question, line.probabilities[YES])
        for line in (() if score is None else score.items)
        if line.unanswered is None and line.probabilities is not None and line.probabilities.keys() == {YES, NO}
    ]


def _of_list(row: Row, cell: LabelCell, labels: Any, soft: bool) -> Iterator[Labelled]:
    """The labels of the items of a row."""
    if isinstance(labels, float):
        raise SampleError(
            f"{cell.where}: {LABELS!r} must be a list of {len(cell.items)} labels, one per item, or a mapping of item "
            f"ids to labels, got {cell.value!r:.60}."
        )
    reasons = _parsed(LabelCell(cell.where, row.data.get("reasons")), "reasons")
    reasons = [None] * len(cell.items) if reasons is None else _one_each(cell, reasons, "reasons")
    labels = [None] * len(cell.items) if labels is None else labels
    for number, (item, label, reason) in enumerate(zip(cell.items, labels, reasons, strict=True), start=1):
        if label is None or (soft and item.options is not None):
            continue
        label = float(label == YES) if soft and isinstance(label, str) else label
        yield Labelled("", item.question, label, reason=_text(reason, f"reason {number}", cell.where))


def _of_row(row: Row, label: Any, key: str, question_key: str, soft: bool) -> Labelled:
    """The label of a row that has one."""
    given = Columns.get(row.data, key, "--label-key", row.where)
    if label is None or (soft and (not isinstance(label, float) or not 0 <= label <= 1)):
        allowed = "yes, no, or a number from 0 (no) to 1 (yes)" if soft else "an answer of the item"
        raise SampleError(f"{row.where}: {key!r} is {given!r:.60}; a label must be {allowed}.")
    if soft:
        question = Columns.get(row.data, question_key, "--question-key", row.where)
        string(f"{row.where}: {question_key!r}", question)
        return Labelled("", question, label)
    question, item, reason = (_text(row.data.get(name), name, row.where) for name in (question_key, "item", "reason"))
    return Labelled("", question or "", label, item=item, reason=reason)


def _text(value: Any, what: str, where: str) -> str | None:
    if value is None or value == "":
        return None
    string(f"{where}: {what!r}", value)
    return value


def label_of(item: ChecklistItem, label: Any, *, soft: bool = False) -> Label:
    """What a label says about an item: the name of one of its answers; with `soft`, or a fraction of yes.

    Allowed are the answers of the item, true, false, 1 and 0 for yes and no, and the value of an option that no other
    option has. None for anything else.
    """
    number = isinstance(label, int | float) and not isinstance(label, bool)
    if {YES, NO} <= item.values.keys() and isinstance(label, int | float) and label in (0, 1):
        return YES if label else NO
    if (name := named(label, item)) is not None:
        return name
    if number and item.options is not None:
        same = [option for option, value in item.values.items() if value == label]
        return same[0] if len(same) == 1 else None
    return float(label) if soft and number and 0 < label < 1 else None


def named(answer: Any, item: ChecklistItem) -> str | None:
    """The label that an answer names, such as the value of "answer" in a JSON reply; None if it is not a label."""
    labels = list(item.values)
    if isinstance(answer, bool):
        answer = str(answer)
    elif isinstance(answer, int):
        answer = str(answer)  # a number with hundreds of digits does not fit a float
    elif isinstance(answer, float):
        answer = f"{answer:g}"
    if not isinstance(answer, str):
        return None
    if answer in labels:
        return answer
    word = _plain(answer)
    matching = [label for label in labels if _plain(label) == word]
    if len(matching) == 1:
        return matching[0]
    if item.options is None:
        return _SYNONYMS.get(word)
    abstaining = [option.label for option in item.options if option.na]
    return abstaining[0] if len(abstaining) == 1 and word in _ABSTAINING and not matching else None


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip(_AROUND).replace("_", " ").casefold()


def _parsed(cell: LabelCell, key: str) -> Any:
    """The value of a cell, which a CSV file holds as JSON text; None for an empty one."""
    value = cell.value
    if not isinstance(value, str):
        return value
    if value.lstrip()[:1] in ("[", "{"):
        found = decoded(value)
        if isinstance(found, str):
            raise SampleError(f"{cell.where}: {key!r} is not JSON, got {value!r:.60}.")
        return found
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value or None


def _of_items(cell: LabelCell, value: Any, key: str, soft: bool, lists: str) -> list[Label]:
    if not isinstance(value, Mapping | list | tuple):
        if len(cell.items) == 1:
            value = [value]
        elif lists and isinstance(value, int | float):
            raise SampleError(
                f"{cell.where}: the label {value!r} in {key!r} is of the whole text, but {lists} has one label per "
                "item; use one kind of labels in a column."
            )
        else:
            raise _unusable(cell, key)
    if not cell.items:
        raise _unusable(cell, key)
    found = []
    for number, (item, label) in enumerate(zip(cell.items, _one_each(cell, value, key), strict=True), start=1):
        found.append(None if label is None else label_of(item, label, soft=soft))
        if label is not None and found[-1] is None:
            allowed = ", ".join(item.values) + (", true, false, 1, 0" if item.options is None else "")
            raise SampleError(
                f"{cell.where}, item {number} ({item.question!r:.60}): the label {label!r:.60} is not an answer of "
                f"this item; allowed: {allowed}, {'a number from 0 to 1, ' if soft else ''}null."
            )
    return found


def _one_each(cell: LabelCell, value: Any, key: str) -> Sequence[Any]:
    """One value per item, from a list in their order or a mapping of item ids."""
    keys = item_keys(cell.items)
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in keys]
        if unknown:
            raise SampleError(
                f"{cell.where}: {key!r} labels an item {unknown[0]!r} that is not in the score or checklist."
            )
        return [value.get(name) for name in keys]
    if not isinstance(value, list | tuple) or len(value) != len(keys):
        count = f"{len(value)} labels" if isinstance(value, list | tuple) else f"{value!r:.60}"
        raise SampleError(f"{cell.where}: {key!r} has {count} for {len(keys)} items.")
    return value


def _number(cell: LabelCell, value: Any, key: str) -> float:
    """The label of a whole text."""
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower(), value)
    if not isinstance(value, int | float):
        raise _unusable(cell, key)
    if not isinstance(value, bool) and not is_finite(value):
        raise SampleError(f"{cell.where}: {key!r} must be a finite number, got {value!r:.60}.")
    return float(value)


def _unusable(cell: LabelCell, key: str) -> SampleError:
    """What is said of a value that cannot be a label."""
    if not cell.items:
        return SampleError(f"{cell.where}: {key!r} is {cell.value!r:.60}; it must be a number per text, or yes or no.")
    return SampleError(
        f"{cell.where}: {key!r} must be a list of {len(cell.items)} labels (one per item), a mapping of item ids to "
        f"labels, or a number for the whole target; got {cell.value!r:.60}."
    )
