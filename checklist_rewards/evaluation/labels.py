"""The labels of scored texts, and the pairs of two scorings of the same texts.

[`Labels`] finds the label of every text, in a column of the scored file or in a file of labels, such as one that the
app exported. A label of a file belongs to the text that has its id and its content: the same id of another text is
refused. `judges/labels.py` parses the column as a whole: one label per item in order (a list), labels by item id (a
mapping), or one number for the whole text. None means unlabelled. An invalid label raises a [`SampleError`] that names
the row and the value.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checklist_rewards.chat import completion_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError, SampleError, warn_once
from checklist_rewards.evaluation.scored import CHECKLIST, ItemAnswer, ScoredText, own_id, read_scored, shown_prompt
from checklist_rewards.files.cells import messages_in
from checklist_rewards.files.rows import Row, read_rows
from checklist_rewards.images import PLACE, is_logged, path_in
from checklist_rewards.judges.labels import LabelCell, label_in, read_column
from checklist_rewards.keys import image_key, worded
from checklist_rewards.messages import with_places
from checklist_rewards.rows import INPUTS, Columns
from checklist_rewards.scores import item_keys

logger = logging.getLogger(__name__)
PROBABILITY = "label_probability"
"""Column of the probability with which a row was chosen for labelling, as the app exports it."""


@dataclass(frozen=True)
class Labels:
    """The labels of scored rows, in a column of the scored file or in a file of their own.

    Args:
        path (`Path`, *optional*): A file with the labels, matched by row id and text. Without texts (columns `target`
            or `completion`), the id alone is compared, with a warning. Defaults to the scored file.
        key (`str`, *optional*, defaults to `"labels"`): Column of the labels.
        id_key, group_key, target_key, checklist_key, shared (*optional*): How scored files are read; see
            [`read_scored`].
        lenient (`bool`, *optional*, defaults to `False`): Accept rows of `path` without an `id` or without labels,
            repeated ids, of which the last counts, and rows about other texts, which are not used.
        any_scale (`bool`, *optional*, defaults to `False`): The user named the scale of the numbers; see
            [`read_column`].
    """

    path: Path | None = None
    key: str = "labels"
    id_key: str | None = None
    group_key: str | None = None
    target_key: str | None = None
    checklist_key: str | None = None
    shared: Checklist | None = None
    lenient: bool = False
    any_scale: bool = False

    def read(self, path: str | Path) -> list[ScoredText]:
        """The rows of a scored file. Raises [`SampleError`]."""
        return read_scored(
            path,
            id_key=self.id_key,
            group_key=self.group_key,
            target=self.target_key,
            checklist=self.checklist_key,
            shared=self.shared,
        )

    def of(self, rows: Sequence[ScoredText]) -> tuple[list[ScoredText], int]:
        """The texts with their labels, and the number of labelled rows that were not scored.

        If a row has a value in the column `label_probability`, it is the `chance` of its text, and that of the others
        is None.

        Raises:
            SampleError: For an invalid label or probability, or if no row has a label.
        """
        key, unmatched = self.key, 0
        sources: Sequence[ScoredText | Row | None] = rows
        if self.path is not None:
            sources, unmatched = self._matched(self.path, rows)
        elif not any(key in row.data for row in rows):
            Columns.get(rows[0].data, key, "--label-key", rows[0].where)  # raises
        # An error about a label names the row of the label.
        cells = [
            LabelCell(row.where if source is None else source.where, source and _cell(source, row, key), row.items)
            for row, source in zip(rows, sources, strict=True)
        ]
        found = read_column(cells, key, any_scale=self.any_scale)
        labelled = [replace(row, labels=_answers(row, labels)) for row, labels in zip(rows, found, strict=True)]
        chances = [_chance(source, row.where) for row, source in zip(rows, sources, strict=True)]
        if any(chance is not None for chance in chances):
            labelled = [replace(text, chance=chance) for text, chance in zip(labelled, chances, strict=True)]
        if not any(isinstance(text.labels, float) or any(text.labels or ()) for text in labelled):
            raise SampleError(f"{rows[0].where}: neither this row nor any other has a label in column {key!r}.")
        return labelled, unmatched

    def _matched(self, path: Path, rows: Sequence[ScoredText]) -> tuple[list[Row | None], int]:
        """The row of the labels file of every scored row, and the number of its other rows. A row matches if it has
        the id and the text of the scored row; the same id of another text is refused, or counted if read leniently."""
        labelled = list(read_rows(path))
        if not labelled:
            raise SampleError(f"{path} has no rows.")
        have_ids = self.id_key is not None or any(own_id(row.data) is not None for row in labelled)
        labels: dict[str, list[Row]] = {}
        for number, row in enumerate(labelled, start=1):
            for key, option in ((self.key, "--label-key"), (self.id_key, "--id-key")):
                if key and not self.lenient:
                    Columns.get(row.data, key, option, row.where)
            name = own_id(row.data, self.id_key) or str(number)
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
                same = same_text(scored.data, candidate.data, scored.columns)
                if same is not False:
                    label = candidate
                elif not self.lenient:
                    raise SampleError(
                        f"{candidate.where}: the label with the id {scored.id!r} is about another "
                        f"{_difference(candidate.data, scored.data, scored.where, scored.columns)}; a label is of one "
                        "text."
                    )
                if same is None:
                    warn_of_no_text(scored, "id" if have_ids else "row number", f"the labels of {path}")
            found.append(label)
        names = {row.id for row in rows}
        unused = [name for name in labels if name not in names]
        if unused and not self.lenient:
            logger.warning(
                "%s: %d of %d labels are not used, because no scored row has their id; the first is %r, the first id "
                "of the scored file %r.",
                path,
                len(unused),
                len(labels),
                unused[0],
                rows[0].id,
            )
        return found, len(labels) - sum(label is not None for label in found)


def _cell(source: ScoredText | Row, row: ScoredText, key: str) -> Any:
    """The cell with the labels of a row. Labels of another checklist than the scored one, such as an earlier version,
    are put into the order of the scored questions, with None for a question that was not labelled. Raises
    [`SampleError`] if it cannot be known which questions were labelled."""
    value = label_in(source.data, key, source.where)
    checklist = row.checklist if source is row else source.data.get(CHECKLIST)
    if checklist in (None, "") or row.score is None or not isinstance(value, list | Mapping):
        return value
    try:
        items = Checklist.parse(checklist, f"{source.where}, {CHECKLIST!r}").items
    except ChecklistError as error:
        why = str(error).rstrip(".")
        raise SampleError(f"{why}; repair it, or remove the column if {key!r} follows the scored items.") from None
    if isinstance(value, Mapping) and value.keys() <= {*(keys := item_keys(items))}:
        value = [value.get(key) for key in keys]
    asked, questions = ([worded(item.question) for item in of] for of in (items, row.score.items))
    if asked == questions or not isinstance(value, list) or len(asked) != len(value):
        return value
    given = dict(zip(asked, value, strict=True))
    return [given.get(question) for question in questions]


def _chance(source: ScoredText | Row | None, where: str) -> float | None:
    """The probability with which a row was chosen for labelling, in (0, 1]; None if it has none."""
    value = None if source is None else source.data.get(PROBABILITY)
    if value in (None, ""):
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number <= 1:
        raise SampleError(f"{where}: {PROBABILITY!r} must be above 0 and at most 1, got {value!r:.60}.")
    return number


def _answers(text: ScoredText, labels: Any) -> Any:
    """Labels of items as answers, None for a list without any; other labels unchanged."""
    if not isinstance(labels, list):
        return labels
    answers = [
        ItemAnswer(label, item.values[label], item.values[label]) if isinstance(label, str) else None
        for item, label in zip(text.items, labels, strict=True)
    ]
    return answers if any(answers) else None


def pairs_of(
    rows: Sequence[ScoredText], others: Sequence[ScoredText], where: tuple[str, str], *, same_texts: bool = True
) -> tuple[list[tuple[ScoredText, ScoredText]], int]:
    """Pair the rows of two files by id, and count the unpaired rows.

    Args:
        rows, others (sequences of [`ScoredText`]): The rows of each file.
        where (pair of `str`): The names of the files, for error messages.
        same_texts (`bool`, *optional*, defaults to `True`): Refuse rows with the same id and different texts or
            images. Two judges can only be compared on the same texts.

    Raises:
        SampleError: If the files have no id in common, if the texts or images of a pair differ, or if rows without ids
            have other prompts.
    """
    partners = {row.id: row for row in others}
    pairs = [(row, partners[row.id]) for row in rows if row.id in partners]
    if not pairs:
        raise SampleError(
            f"{where[0]} and {where[1]} have no row id in common: the first ids are {rows[0].id!r} and "
            f"{others[0].id!r} (set the id column with --id-key)."
        )
    if same_texts and (differing := other_texts(rows, others)) is not None:
        raise SampleError(
            f"{differing}. Judges are compared on the same texts; for the rate of wins of one file over the other, "
            "label rows of both (--label-key)."
        )
    for row, other in () if same_texts else pairs:
        _check_prompts(row, other)
    return pairs, len(rows) + len(others) - 2 * len(pairs)


def other_texts(rows: Sequence[ScoredText], others: Sequence[ScoredText]) -> str | None:
    """In what the first two rows of the same id differ whose texts or images differ, such as those of two policies;
    None without any. Warns of rows without texts."""
    partners = {row.id: row for row in others}
    for row in rows:
        if (other := partners.get(row.id)) is None:
            continue
        one, two = (known_text(side.data, side.columns) for side in (row, other))
        same = one is None or two is None or equal_answers(one, two)
        if one is None or two is None:
            _check_prompts(row, other)
            warn_of_no_text(row if one is None else other, "id" if row.has_id and other.has_id else "row number")
        if not same or _other_images(row.images, other.images):
            what = "images differ" if same else f"texts differ: {one!r:.60} and {two!r:.60}"
            return f"{row.where} and {other.where} have the same id {row.id!r}, but their {what}"
    return None


def _check_prompts(row: ScoredText, other: ScoredText) -> None:
    """Refuse two rows that have no ids, only the same number, and other prompts. Their texts do not show whether
    they belong together."""
    one, two = row.prompt, other.prompt
    if not (row.has_id and other.has_id) and one is not None and two is not None and _words(one) != _words(two):
        raise SampleError(
            f"{row.where} and {other.where} are matched by their row number, but their prompts differ: {one!r:.60} "
            f"and {two!r:.60}; give the rows of both files ids (column 'id', or --id-key)."
        )


def warn_of_no_text(row: ScoredText, by: str, others: str = "rows") -> None:
    """Warn that a text that was judged is compared with a row that may be about another one."""
    if row.score is not None and not row.score.no_answer:
        why = "because one of the two has no text in this column, or a gold answer"
        warn_once(row.where, row.columns.target, f"{others} are matched by {by} alone, {why}")


def same_text(one: Mapping[str, Any], other: Mapping[str, Any], columns: Columns | None = None) -> bool | None:
    """Whether two rows are about the same text, and about the same prompt if both have the same column of it; None if
    the text of a row is unknown. See [`known_text`]."""
    if known_text(one, columns) is None or known_text(other, columns) is None:
        return None
    return _difference(one, other, "", columns) is None


def _difference(one: Mapping[str, Any], other: Mapping[str, Any], where: str, columns: Columns | None) -> str | None:
    """In what two rows with texts differ, as the end of a sentence; None for equal ones."""
    first, second = known_text(one, columns) or "", known_text(other, columns) or ""
    if not equal_answers(first, second):
        return f"text than {where}: {first!r:.60} and {second!r:.60}"
    for name in INPUTS:
        before, after = shown_prompt(one.get(name)), shown_prompt(other.get(name))
        if before is not None and after is not None and _words(before) != _words(after):
            return f"prompt than {where}: {before!r:.60} and {after!r:.60}"
    if _other_images(*(ScoredText("", "", data=row, columns=Columns.of(row)).prompt_images for row in (one, other))):
        return f"image than {where}"
    return None


def _words(prompt: str) -> str:
    """A prompt without the places of its images: the app exports them in the text, other rows have a column."""
    return _lines(prompt.replace(PLACE, ""))


def _other_images(images: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two rows with images have different ones. Cells of two kinds, such as a path and bytes, are not
    compared. Paths begin in the folders of their files, so the end that both have must be the same."""
    if len(images) != len(others):
        return bool(images and others)
    return any(
        type(one) is type(other)
        and is_logged(one) == is_logged(other)
        and image_key(one) != image_key(other)
        and not _same_end(one, other)
        for one, other in zip(images, others, strict=True)
    )


def _same_end(image: Any, other: Any) -> bool:
    paths = (Path(os.path.normpath(path_in(value) or "")) for value in (image, other))
    one, two = ([part for part in path.parts if part != ".."] for path in paths)
    length = min(len(one), len(two))
    return length > 0 and one[-length:] == two[-length:]


def equal_answers(one: str, other: str) -> bool:
    """Whether two texts are equal, or their answers are: the app exports texts without their thoughts, and other
    programs change the ends of lines."""
    return one == other or _lines(completion_text(messages_in(one))) == _lines(completion_text(messages_in(other)))


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def known_text(data: Mapping[str, Any], columns: Columns | None = None) -> str | None:
    """The text of a row; equal for the cells of JSON Lines, CSV and Parquet. It is in the column of `columns`, or in a
    usual one if the row does not have that. None if it has none, or a number, or what may be the gold answer."""
    if columns is None or columns.target not in data:
        columns = Columns.of(data)
    value = None if columns.other_answer(data) else messages_in(data.get(columns.target))
    return text_of(value) if isinstance(value, str | list) else None


def text_of(value: Any) -> str:
    """A text to compare with others, equal for the cells of JSON Lines, CSV and Parquet: of messages, the answer, with
    "[image]" for an image."""
    value, _ = with_places(messages_in(value))
    return completion_text(value, images="ignore") if isinstance(value, list) else str(value)
