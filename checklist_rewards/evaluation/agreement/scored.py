"""Scored rows and their labels: read from files, matched by row and item.

A [`JudgedRow`] is one row of a scored file (its `checklist_score` column) with the items of the score. Rows are
identified by the `id` column, or by their number if there is none. Items are identified by their id; the second of two
equal questions in a row gets the key `<id>#2`.

A label column holds one label per item in order (a list), labels by item id (a mapping), or one number for the whole
target; `judges/labels.py` reads it. None means unlabelled. An invalid label raises a [`SampleError`] that names the
row and the value.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from checklist_rewards.chat import completion_text, prompt_text
from checklist_rewards.checklists import NO, YES, Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import messages_in
from checklist_rewards.files.rows import Row, input_format, read_rows
from checklist_rewards.judges.labels import LabelCell, read_column
from checklist_rewards.rows import INPUTS, Columns
from checklist_rewards.scores import ItemScore, Score, item_keys
from checklist_rewards.scores.scales import ordinal_scale
from checklist_rewards.scores.table import BatchScore
from checklist_rewards.validation import one_sentence

logger = logging.getLogger(__name__)
ID, CHECKLIST = "id", "checklist"
PROBABILITY = "label_probability"
"""Column of the probability with which a row was chosen for labelling, as the app exports it."""
YES_NO = "yes/no"
_without_texts: set[Path] = set()
"""Files of labels without texts that have been warned of."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One target with its score."""

    id: str
    group: str
    """Rows of one group are resampled together: the value of the group column, or the row id without one."""
    where: str
    """The row as named in error messages, such as "scored.jsonl, row 3"."""
    data: Mapping[str, Any]
    score: Score
    items: tuple[ChecklistItem, ...]
    """The items of `score.items`, in the same order."""
    known: bool
    """Whether the checklist contains all items, so that their weights are available."""

    @property
    def keys(self) -> tuple[str, ...]:
        """One key per item; see [`item_keys`]."""
        return item_keys(self.score.items)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one side to an item."""

    label: str
    value: float | None
    """In [0, 1]; None for an abstention."""
    soft: float | None
    """Expected value under the probabilities; equal to `value` without probabilities."""
    probabilities: Mapping[str, float] | None = None
    """Probabilities of the judge before calibration."""


def read_scored(
    path: str | Path,
    *,
    id_key: str | None = None,
    group_key: str | None = None,
    checklist_key: str | None = None,
    shared: Checklist | None = None,
) -> list[JudgedRow]:
    """Read a scored file. Rows without a score (rows that had no checklist) are skipped.

    Args:
        path (`str` or `Path`): .jsonl, .csv or .parquet with a `checklist_score` column.
        id_key (`str`, *optional*): column with the row ids. Defaults to `id` if every row has one, otherwise the row
            number.
        group_key (`str`, *optional*): column of the groups that are resampled together, such as a document id.
        checklist_key (`str`, *optional*, defaults to `"checklist"`): column of the checklists; only needed for weights
            and options.
        shared ([`Checklist`], *optional*): one checklist for all rows, used instead of the column.

    Raises:
        SampleError: If the file has no scores, a column is missing, or ids are not unique.
    """
    batch = BatchScore.from_parquet(path) if input_format(path) == ".parquet" else BatchScore.from_jsonl(path)
    if id_key is None and batch.rows and all(row.get(ID) is not None for row in batch.rows):
        id_key = ID
    rows: list[JudgedRow] = []
    first: dict[str, str] = {}
    for number, (data, score) in enumerate(zip(batch.rows, batch.scores, strict=True), start=1):
        where = f"{path}, row {number}"
        name = str(number) if id_key is None else _named_value(data, id_key, "--id-key", where)
        if name in first:
            raise SampleError(f"{where}: {id_key!r} is {name!r}, as in {first[name]}; ids must be unique (--id-key).")
        first[name] = where
        if score is None:
            continue
        group = name if group_key is None else _named_value(data, group_key, "--group-key", where)
        checklist, column = shared, data.get(checklist_key or CHECKLIST)
        if checklist is None and column not in (None, ""):
            checklist = Checklist.parse(column, f"{where}, checklist")
        items = _items(score, checklist, where)
        listed = {item.id for item in checklist.items} if checklist is not None else set()
        rows.append(JudgedRow(name, group, where, data, score, items, {line.id for line in score.items} <= listed))
    if not rows:
        raise SampleError(f"{path} has no scored rows.")
    return rows


def judged_row(id: str, group: str, where: str, data: Mapping[str, Any], score: Score) -> JudgedRow:
    """A row from its score alone. Raises [`SampleError`] for an item whose options are unknown."""
    return JudgedRow(id, group, where, data, score, _items(score, None, where), known=False)


def answer_given(item: ChecklistItem, line: ItemScore) -> Answer | None:
    """The judge's answer; None if unanswered."""
    if line.unanswered is not None or line.answer is None:
        return None
    value = item.values.get(line.answer)
    probabilities = line.probabilities
    return Answer(line.answer, value, value if probabilities is None else expected(item, probabilities), probabilities)


def expected(item: ChecklistItem, probabilities: Mapping[str, float]) -> float | None:
    """Expected value over the labels that have a value; None if these labels have zero probability in total."""
    weighted = [(p, value) for label, p in probabilities.items() if (value := item.values.get(label)) is not None]
    scale = math.fsum(p for p, _ in weighted)
    return math.fsum(p * value for p, value in weighted) / scale if scale > 0 else None


def labels_of(row: JudgedRow, value: Any, key: str) -> RowLabels:
    """The labels of a row alone; see [`labels_of_rows`]."""
    return labels_of_rows([row], [value], key)[0]


def labels_of_rows(
    rows: Sequence[JudgedRow], values: Sequence[Any], key: str, *, any_scale: bool = False
) -> list[RowLabels]:
    """The labels of rows: one per item, or one number for the whole target.

    Args:
        rows (sequence of [`JudgedRow`]): the scored rows.
        values (sequence, one per row): the cells of the label column.
        key (`str`): the name of the label column, for error messages.
        any_scale (`bool`, *optional*, defaults to `False`): see [`read_column`].

    Returns:
        For each row a list with an [`Answer`] or None per item, or a `float` for the target, or None if the row is
        unlabelled.

    Raises:
        SampleError: If a label is not valid, or of another kind than others. The message names the row and the value.
    """
    cells = [LabelCell(row.where, value, row.items) for row, value in zip(rows, values, strict=True)]
    found = read_column(cells, key, any_scale=any_scale)
    return [
        [
            Answer(label, item.values[label], item.values[label]) if isinstance(label, str) else None
            for item, label in zip(row.items, labels, strict=True)
        ]
        if isinstance(labels, list)
        else labels
        for row, labels in zip(rows, found, strict=True)
    ]


RowLabels = list[Answer | None] | float | None
"""The labels of a row: one per item, or one number for the whole target, or None for an unlabelled row."""


@dataclass(frozen=True)
class Labels:
    """The labels of scored rows, in a column of the scored file or in a file of their own.

    Args:
        path (`Path`, *optional*): A file with the labels, matched by row id and text. Without texts (columns `target`
            or `completion`), the id alone is compared, with a warning. Defaults to the scored file.
        key (`str`, *optional*, defaults to `"labels"`): Column of the labels.
        id_key, group_key, checklist_key, shared (*optional*): How scored files are read; see [`read_scored`].
        lenient (`bool`, *optional*, defaults to `False`): Accept rows of `path` without an `id` or without labels,
            repeated ids, of which the last counts, and rows about other texts, which are not used.
        any_scale (`bool`, *optional*, defaults to `False`): The user named the scale of the numbers; see
            [`read_column`].
    """

    path: Path | None = None
    key: str = "labels"
    id_key: str | None = None
    group_key: str | None = None
    checklist_key: str | None = None
    shared: Checklist | None = None
    lenient: bool = False
    any_scale: bool = False

    def read(self, path: str | Path) -> list[JudgedRow]:
        """The rows of a scored file. Raises [`SampleError`]."""
        return read_scored(
            path, id_key=self.id_key, group_key=self.group_key, checklist_key=self.checklist_key, shared=self.shared
        )

    def of(self, rows: Sequence[JudgedRow]) -> tuple[list[RowLabels], int]:
        """The labels of every row, and the number of labelled rows that were not scored.

        Raises:
            SampleError: For an invalid label, or if no row has a label.
        """
        key, unmatched = self.key, 0
        values = [row.data.get(key) for row in rows]
        if self.path is not None:
            labelled, unmatched = self._matched(self.path, rows)
            values = [None if label is None else label.data.get(key) for label in labelled]
            # An error about a label names the row of the label.
            rows = [
                row if label is None else replace(row, where=label.where)
                for row, label in zip(rows, labelled, strict=True)
            ]
        elif not any(key in row.data for row in rows):
            columns = ", ".join(map(repr, rows[0].data)) or "no other columns"
            raise SampleError(
                f"{rows[0].where}: column {key!r} not found; the row has {columns} (set --label-key or --labels)."
            )
        labels = labels_of_rows(rows, values, key, any_scale=self.any_scale)
        if not any(isinstance(each, float) or any(each or ()) for each in labels):
            raise SampleError(f"{rows[0].where}: neither this row nor any other has a label in column {key!r}.")
        return labels, unmatched

    def probabilities(self, rows: Sequence[JudgedRow]) -> list[float | None] | None:
        """The probability with which every row was chosen for labelling, in (0, 1]; None for a row that was not.

        Returns:
            One per row, from the column `label_probability`; None if no row has one: they were chosen with equal
            probabilities.

        Raises:
            SampleError: For another value.
        """
        sources: Sequence[JudgedRow | Row | None] = rows
        if self.path is not None:
            sources = self._matched(self.path, rows)[0]
        found: list[float | None] = []
        for row, source in zip(rows, sources, strict=True):
            value = None if source is None else source.data.get(PROBABILITY)
            try:
                number = None if value in (None, "") or isinstance(value, bool) else float(value)
            except (TypeError, ValueError):
                number = math.nan
            if number is not None and not 0 < number <= 1 or isinstance(value, bool):
                raise SampleError(f"{row.where}: {PROBABILITY!r} must be above 0 and at most 1, got {value!r:.60}.")
            found.append(number)
        return None if all(value is None for value in found) else found

    def _matched(self, path: Path, rows: Sequence[JudgedRow]) -> tuple[list[Row | None], int]:
        """The row of the labels file of every scored row, and the number of its other rows. A row matches if it has
        the id and the text of the scored row; the same id of another text is refused, or counted if read leniently."""
        labelled = list(read_rows(path))
        if not labelled:
            raise SampleError(f"{path} has no rows.")
        have_ids = self.lenient or all(row.data.get(ID) is not None for row in labelled)
        id_key = self.id_key or (ID if have_ids else None)
        labels: dict[str, list[Row]] = {}
        for number, row in enumerate(labelled, start=1):
            for key in filter(None, (self.key, id_key)):
                if key not in row.data and not self.lenient:
                    columns = ", ".join(map(repr, row.data))
                    raise SampleError(f"{row.where}: column {key!r} not found; the row has {columns}.")
            name = str(number) if id_key is None else str(row.data.get(id_key))
            if name in labels and not self.lenient:
                raise SampleError(f"{row.where}: duplicate id {name!r}; ids must be unique (--id-key).")
            labels.setdefault(name, []).append(row)
        if not any(row.id in labels for row in rows):
            raise SampleError(
                f"{path} has labels for none of the scored rows: its first id is {next(iter(labels))!r}, the scored "
                f"file's is {rows[0].id!r} (set the id column with --id-key)."
            )
        found: list[Row | None] = []
        for scored in rows:
            label: Row | None = None
            for candidate in labels.get(scored.id, ()):  # the last one of this text counts
                same = same_text(scored.data, candidate.data)
                if same is not False:
                    label = candidate
                elif not self.lenient:
                    raise SampleError(
                        f"{candidate.where}: the label with the id {scored.id!r} is about another "
                        f"{_difference(candidate.data, scored.data, scored.where)}; a label is of one text."
                    )
                if same is None and path.resolve() not in _without_texts:
                    _without_texts.add(path.resolve())
                    how = "row number" if id_key is None else "id"
                    why = "because rows have no text to compare (column 'target')"
                    logger.warning("%s: labels are matched by %s alone, %s.", candidate.where, how, why)
            found.append(label)
        return found, len(labels) - sum(label is not None for label in found)


def kind_of(item: ChecklistItem) -> str:
    """The kind of an item. Items are compared within a kind: the same possible answers with the same values."""
    if item.options is None:
        return YES_NO
    return " | ".join(f"{label}={'na' if value is None else f'{value:g}'}" for label, value in item.values.items())


def pairs_of(
    rows: Sequence[JudgedRow], others: Sequence[JudgedRow], where: tuple[str, str], *, same_texts: bool = True
) -> tuple[list[tuple[JudgedRow, JudgedRow]], int]:
    """Pair the rows of two files by id, and count the unpaired rows.

    Args:
        rows, others (sequences of [`JudgedRow`]): The rows of each file.
        where (pair of `str`): The names of the files, for error messages.
        same_texts (`bool`, *optional*, defaults to `True`): Refuse rows with the same id and different texts. Two
            judges can only be compared on the same texts.

    Raises:
        SampleError: If the files have no id in common, or if the texts of a pair differ.
    """
    partners = {row.id: row for row in others}
    pairs = [(row, partners[row.id]) for row in rows if row.id in partners]
    if not pairs:
        raise SampleError(
            f"{where[0]} and {where[1]} have no row id in common: the first ids are {rows[0].id!r} and "
            f"{others[0].id!r} (set the id column with --id-key)."
        )
    if same_texts and (differing := other_texts(rows, others)) is not None:
        one, other = differing
        raise SampleError(
            f"{one.where} and {other.where} have the same id {one.id!r}, but their texts differ: "
            f"{_text(one.data)!r:.60} and {_text(other.data)!r:.60}. Judges are compared on the same texts; for the "
            "rate of wins of one file over the other, label rows of both (--label-key)."
        )
    return pairs, len(rows) + len(others) - 2 * len(pairs)


def other_texts(rows: Sequence[JudgedRow], others: Sequence[JudgedRow]) -> tuple[JudgedRow, JudgedRow] | None:
    """The first two rows of the same id whose texts differ, such as those of two policies; None without any."""
    partners = {row.id: row for row in others}
    for row in rows:
        if (other := partners.get(row.id)) is not None:
            first, second = _text(row.data), _text(other.data)
            if first is not None and second is not None and not equal_answers(first, second):
                return row, other
    return None


def same_text(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Whether two rows are about the same text, and about the same prompt if both have the same column of it; None if
    a row has no text."""
    if not all(isinstance(messages_in(row.get(Columns.of(row).target)), str | list) for row in (one, other)):
        return None  # without a text, or with another meaning of "target", such as a number
    return _difference(one, other, "") is None


def _difference(one: Mapping[str, Any], other: Mapping[str, Any], where: str) -> str | None:
    """In what two rows with texts differ, as the end of a sentence; None for equal ones."""
    first, second = _text(one) or "", _text(other) or ""
    if not equal_answers(first, second):
        return f"text than {where}: {first!r:.60} and {second!r:.60}"
    for name in INPUTS:
        before, after = _prompt(one.get(name)), _prompt(other.get(name))
        if before is not None and after is not None and _lines(before) != _lines(after):
            return f"prompt than {where}: {before!r:.60} and {after!r:.60}"
    return None


def equal_answers(one: str, other: str) -> bool:
    """Whether two texts are equal, or their answers are: the app exports texts without their thoughts, and other
    programs change the ends of lines."""
    return one == other or _lines(completion_text(messages_in(one))) == _lines(completion_text(messages_in(other)))


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _prompt(value: Any) -> str | None:
    """A prompt as text: chat messages as "role: text" paragraphs, one user message alone as its text."""
    value = messages_in(value)
    if value is None or isinstance(value, str):
        return value
    try:
        input, history = prompt_text(value)
    except SampleError:
        return str(value)
    return input if history is None else "\n\n".join(filter(None, (history, input and f"user: {input}")))


def _text(data: Mapping[str, Any]) -> str | None:
    """The text of a row; equal for the cells of JSON Lines, CSV and Parquet. None if it has none."""
    value = data.get(Columns.of(data).target)
    return None if value is None else text_of(value)


def text_of(value: Any) -> str:
    """A text to compare with others, equal for the cells of JSON Lines, CSV and Parquet: of messages, the answer."""
    value = messages_in(value)
    return completion_text(value) if isinstance(value, list) else str(value)


def _named_value(data: Mapping[str, Any], key: str, option: str, where: str) -> str:
    if data.get(key) is None:
        keys = ", ".join(map(repr, data)) or "no columns"
        raise SampleError(f"{where}: {key!r} is missing or empty ({option}); the row has {keys}.")
    return str(data[key])


def _items(score: Score, checklist: Checklist | None, where: str) -> tuple[ChecklistItem, ...]:
    items = checklist.items if checklist is not None else ()
    known = {item.id: item for item in items} | dict(zip(item_keys(items), items, strict=True))
    try:
        found = tuple(
            _item(key, line, known, where) for key, line in zip(item_keys(score.items), score.items, strict=True)
        )
    except ValidationError as error:
        raise SampleError(f"{where}: an item of the score has no valid question: {one_sentence(error)}") from None
    for item, line in zip(found, score.items, strict=True):
        _check_labels(item, line, where)
    return found


def _check_labels(item: ChecklistItem, line: ItemScore, where: str) -> None:
    """Check that the stored answer and probabilities are about the labels of the item."""
    labels = item.values.keys()
    for given in (line.probabilities, line.uncalibrated):
        if given is not None and given.keys() != labels:
            raise SampleError(
                f"{where}: item {line.id} ({line.question!r:.60}) has probabilities of {', '.join(given)}; expected "
                f"those of {', '.join(labels)}."
            )
    if line.answer is not None and line.answer not in labels:
        raise SampleError(
            f"{where}: item {line.id} ({line.question!r:.60}) has the answer {line.answer!r:.60}; allowed: "
            f"{', '.join(labels)}."
        )


def _item(key: str, line: ItemScore, known: Mapping[str, ChecklistItem], where: str) -> ChecklistItem:
    if line.id in known:
        return known.get(key, known[line.id])
    labels = list(line.probabilities or ([] if line.answer is None else [line.answer]))
    if set(labels) <= {YES, NO}:
        return ChecklistItem(id=line.id, question=line.question)
    # The scorer may have put yes/no questions on an ordinal scale; the checklist column has them without options.
    scale = ordinal_scale(len(labels)) if len(labels) > 1 else ()
    if labels == [option.label for option in scale]:
        return ChecklistItem(id=line.id, question=line.question, options=scale)
    raise SampleError(
        f"{where}: item {line.id} ({line.question!r:.60}) is answered by {', '.join(labels)}, but the values of these "
        "labels are unknown; pass the checklist with --checklist-key or --checklist."
    )


def stored_items(score: Score, checklist: Checklist | None, where: str) -> tuple[ChecklistItem, ...]:
    """The items of a stored score: those of `checklist`, others from the score itself, with their weights.

    Raises:
        SampleError: For an item with options whose values are unknown.
    """
    known = {item.id for item in checklist.items} if checklist is not None else set()
    return tuple(
        item
        if item.id in known
        else item.model_copy(
            update={
                "weight": 1.0 if line.weight is None else line.weight,
                "required": line.required,
                "category": line.category,
            }
        )
        for item, line in zip(_items(score, checklist, where), score.items, strict=True)
    )
