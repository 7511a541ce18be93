"""The training data of a distilled judge: targets, questions and soft labels.

A file has one row per answer (**target**, **question**, **label**: yes, no or a number in [0, 1], and optionally a
**group**, such as the document), or one row per response with the labels of its checklist (**target**, **checklist**,
**labels**: one per item, or a mapping of item ids), or it was written by `checklist-rewards score`. In the last case
the P(yes) of the judge are the labels, which distills a large judge into a small one. A row may also have the
**input** that the target answers, and a **reference** answer. Of a target, the answer is read, as for `score`;
`judges/labels.py` reads the labels.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checklist_rewards.backends.base import ReadGroup
from checklist_rewards.backends.encoder_rows import context_texts
from checklist_rewards.chat import completion_text, prompt_text
from checklist_rewards.checklists import NO, YES, Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.files.cells import messages_in
from checklist_rewards.files.rows import Row, read_rows
from checklist_rewards.judges.labels import LabelCell, read_column
from checklist_rewards.rows import Columns
from checklist_rewards.scores.table import SCORE_COLUMN
from checklist_rewards.validation import string

CHECKLIST, LABELS = "checklist", "labels"


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """One labelled answer."""

    target: str
    question: str
    label: float
    """Soft label of yes, in [0, 1]: a fraction of votes, a probability, or 0 and 1."""
    group: str
    """Pairs of one group are held out together. Defaults to the target."""
    input: str | None = None
    """What the target answers."""
    reference: str | None = None
    """A reference answer."""


def read_labels(
    path: str | Path,
    *,
    target_key: str | None = None,
    question_key: str = "question",
    label_key: str = "label",
    group_key: str | None = None,
) -> list[LabelledPair]:
    """Read labelled pairs from a JSONL, CSV or Parquet file.

    Args:
        path (`str` or `Path`): rows with a label, rows with a `checklist` and its `labels`, or rows with a
            `checklist_score`.
        target_key (`str`, *optional*): key of the target, a text or chat messages. Defaults to "target", or
            "completion" if missing.
        question_key, label_key (`str`, *optional*, default to `"question"` and `"label"`): keys of rows with a label.
        group_key (`str`, *optional*): key of the group that is held out together. Defaults to "group" if rows have it,
            otherwise to the target.

    Returns:
        `list[LabelledPair]`: One pair per label.

    Raises:
        SampleError: If a key is missing or a label is outside [0, 1] (the message names the row), or if the file has
            no labels.
    """
    pairs: list[LabelledPair] = []
    rows = list(read_rows(path))
    for row, answers in zip(rows, _labels(rows, question_key, label_key), strict=True):
        given = [_optional(row, name) for name in ("input", "reference")]
        target = _target(row, target_key or ("target" if "target" in row.data else "completion"))
        key = group_key or ("group" if "group" in row.data else None)
        if key is not None and row.data.get(key) in (None, ""):
            raise SampleError(f"{row.where}: the group {key!r} is missing or empty (--group-key).")
        group = target if key is None else str(row.data[key])
        pairs += [LabelledPair(target, question, label, group, *given) for question, label in answers]
    if not pairs:
        raise SampleError(f"{path} has no labels: it has no rows, or its scores have no answered yes/no items.")
    return pairs


Context = tuple[str, str | None, str | None]
"""A target with its input and its reference."""


def by_target(pairs: Iterable[LabelledPair]) -> dict[Context, list[int]]:
    """The indices of the pairs of each target with its input and reference, in order."""
    places: dict[Context, list[int]] = {}
    for place, pair in enumerate(pairs):
        places.setdefault((pair.target, pair.input, pair.reference), []).append(place)
    return places


def read_group(pairs: Sequence[LabelledPair], places: Sequence[int]) -> ReadGroup:
    """The questions of some pairs with the same target, input and reference, as reads of an encoder."""
    first = pairs[places[0]]
    return ReadGroup(None, first.target, tuple(pairs[place].question for place in places), context_texts(first))


def folds_of(pairs: Sequence[LabelledPair], folds: int, seed: int = 0) -> list[int]:
    """The fold of every pair, from 0. A group is never split; folds are of similar size.

    Raises:
        SampleError: If there are fewer groups than folds.
    """
    sizes: dict[str, int] = {}
    for pair in pairs:
        sizes[pair.group] = sizes.get(pair.group, 0) + 1
    if len(sizes) < folds:
        raise SampleError(f"got {len(sizes)} groups for {folds} folds; use more labels or fewer folds.")
    # Not by scikit-learn, whose GroupKFold balances the sizes of folds only if it does not shuffle.
    groups = sorted(sizes)
    random.Random(seed).shuffle(groups)
    groups.sort(key=lambda group: -sizes[group])  # the largest groups first, so that small ones balance the folds
    filled, fold = [0] * folds, {}
    for group in groups:
        fold[group] = filled.index(min(filled))
        filled[fold[group]] += sizes[group]
    return [fold[pair.group] for pair in pairs]


def _labels(rows: Sequence[Row], question_key: str, label_key: str) -> list[list[tuple[str, float]]]:
    """The questions of every row with their labels. Items with options have no soft label."""
    found: list[list[tuple[str, float]]] = [[] for _ in rows]
    of_items: dict[int, LabelCell] = {}
    of_questions: dict[int, LabelCell] = {}
    for place, row in enumerate(rows):
        if row.data.get(SCORE_COLUMN) is not None and label_key not in row.data:
            found[place] = list(_answers(row))
        elif CHECKLIST in row.data and LABELS in row.data and label_key not in row.data:
            checklist = Checklist.parse(row.data[CHECKLIST], f"{row.where}, checklist")
            of_items[place] = LabelCell(row.where, row.data[LABELS], checklist.items)
        else:
            if label_key not in row.data:
                has = ", ".join(map(repr, row.data))
                raise SampleError(f"{row.where}: key {label_key!r} not found; the row has {has}.")
            of_questions[place] = LabelCell(row.where, row.data[label_key])
    columns = read_column(list(of_items.values()), LABELS, soft=True)
    for (place, cell), labels in zip(of_items.items(), columns, strict=True):
        if isinstance(labels, float):
            raise SampleError(
                f"{cell.where}: {LABELS!r} must be a list of {len(cell.items)} labels, one per item, or a mapping of "
                f"item ids to labels, got {cell.value!r:.60}."
            )
        for item, label in zip(cell.items, labels or (), strict=labels is not None):
            if label is not None and item.options is None:
                found[place].append((item.question, float(label == YES) if isinstance(label, str) else label))
    numbers = read_column(list(of_questions.values()), label_key)
    for (place, cell), number in zip(of_questions.items(), numbers, strict=True):
        if not isinstance(number, float) or not 0 <= number <= 1:
            raise SampleError(
                f"{cell.where}: {label_key!r} is {cell.value!r:.60}; a label must be yes, no, or a number from 0 (no) "
                "to 1 (yes)."
            )
        found[place].append((_text(rows[place], question_key, "--question-key"), number))
    return found


def _answers(row: Row) -> Iterator[tuple[str, float]]:
    score = row.data[SCORE_COLUMN]
    try:
        score = json.loads(score) if isinstance(score, str) else score
        for line in score["items"] if isinstance(score, Mapping) else ():
            probabilities = {label: p for label, p in (line.get("probabilities") or {}).items() if p is not None}
            if line.get("unanswered") is None and set(probabilities) == {YES, NO}:
                yield line["question"], float(probabilities[YES])
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise SampleError(
            f"{row.where}: {SCORE_COLUMN} is not a valid score ({type(error).__name__}: {error})."
        ) from None


def _target(row: Row, key: str) -> str:
    """The answer in a target, which is a text or chat messages."""
    if not isinstance(row.data.get(key), list):
        _text(row, key, "--target-key")
    return Columns.of(row.data, target=key).target_of(row.data, row.where).text


def _text(row: Row, key: str, option: str) -> str:
    if key not in row.data:
        raise SampleError(
            f"{row.where}: key {key!r} not found; the row has {', '.join(map(repr, row.data))} ({option})."
        )
    value = row.data[key]
    string(f"{row.where}: {key!r}", value)
    return value


def _optional(row: Row, key: str) -> str | None:
    value = messages_in(row.data.get(key))
    if isinstance(value, list):
        try:
            value = prompt_text(value)[0] if key == "input" else completion_text(value)
        except SampleError as error:
            raise SampleError(f"{row.where}: {key!r}: {error}") from None
    if value is not None:
        string(f"{row.where}: {key!r}", value)
    return value or None
