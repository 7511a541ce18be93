"""What a judge is distilled from: targets, questions, and how far the answer is yes.

One row per answer (**target**, **question**, **label** in [0, 1], and a **group** of what belongs together, such as
the document), or a file that `score` wrote, whose P(yes) are the labels: a large judge is distilled into a small one.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import Row, read_rows

SCORE = "checklist_score"


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """One answer."""

    target: str
    question: str
    label: float
    """How far the answer is yes, in [0, 1]: a share of votes, a probability, or 0 and 1."""
    group: str
    """What is held out together; the target itself unless said otherwise."""


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
        path (`str` or `Path`): rows with a label each, or rows with a `checklist_score`.
        target_key (`str`, *optional*): defaults to "target", else "completion".
        question_key, label_key (`str`, *optional*): of rows with a label each.
        group_key (`str`, *optional*): what is held out together; "group" where rows have it, else the target.

    Raises:
        SampleError: naming the row, for a key that is missing and a label outside [0, 1]; and if nothing is labelled.
    """
    pairs: list[LabelledPair] = []
    for row in read_rows(path):
        target = _text(row, target_key or ("target" if "target" in row.data else "completion"), "--target-key")
        key = group_key or ("group" if "group" in row.data else None)
        if key is not None and row.data.get(key) in (None, ""):
            raise SampleError(f"{row.where}: there is no group under {key!r} (--group-key).")
        group = target if key is None else str(row.data[key])
        if row.data.get(SCORE) is not None and label_key not in row.data:
            pairs += [LabelledPair(target, question, label, group) for question, label in _answers(row)]
        else:
            label = _label(row, label_key)
            pairs.append(LabelledPair(target, _text(row, question_key, "--question-key"), label, group))
    if not pairs:
        raise SampleError(f"{path} labels nothing: it has no rows, or scores without an answer to a yes/no item.")
    return pairs


def by_target(pairs: Iterable[LabelledPair]) -> dict[str, list[int]]:
    """The places of the pairs of each target, in order."""
    places: dict[str, list[int]] = {}
    for place, pair in enumerate(pairs):
        places.setdefault(pair.target, []).append(place)
    return places


def folds_of(pairs: Sequence[LabelledPair], folds: int, seed: int = 0) -> list[int]:
    """A fold from 0 up for every pair. A group is in one fold as a whole; the folds are about equally large.

    Raises [`SampleError`] if there are fewer groups than folds.
    """
    sizes: dict[str, int] = {}
    for pair in pairs:
        sizes[pair.group] = sizes.get(pair.group, 0) + 1
    if len(sizes) < folds:
        raise SampleError(f"there are {len(sizes)} groups for {folds} folds; give more labels or fewer folds.")
    groups = sorted(sizes)
    random.Random(seed).shuffle(groups)
    groups.sort(key=lambda group: -sizes[group])  # the largest first, so that the small ones even the folds out
    filled, fold = [0] * folds, {}
    for group in groups:
        fold[group] = filled.index(min(filled))
        filled[fold[group]] += sizes[group]
    return [fold[pair.group] for pair in pairs]


def _answers(row: Row) -> Iterator[tuple[str, float]]:
    score = row.data[SCORE]
    try:
        score = json.loads(score) if isinstance(score, str) else score
        for line in score["items"] if isinstance(score, Mapping) else ():
            probabilities = {label: p for label, p in (line.get("probabilities") or {}).items() if p is not None}
            if line.get("unanswered") is None and set(probabilities) == {YES, NO}:
                yield line["question"], float(probabilities[YES])
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise SampleError(f"{row.where}: {SCORE} is no score ({type(error).__name__}: {error}).") from None


def _text(row: Row, key: str, option: str) -> str:
    if key not in row.data:
        raise SampleError(f"{row.where}: there is no key {key!r}; it has {', '.join(map(repr, row.data))} ({option}).")
    value = row.data[key]
    if not isinstance(value, str):
        raise SampleError(f"{row.where}: {key!r} must be a string, got {type(value).__name__} {value!r:.60}.")
    return value


def _label(row: Row, key: str) -> float:
    value: Any = row.data.get(key)
    if key not in row.data:
        raise SampleError(f"{row.where}: there is no key {key!r}; it has {', '.join(map(repr, row.data))}.")
    try:
        label = float(value)
    except (TypeError, ValueError):
        label = math.nan
    if not 0 <= label <= 1:
        raise SampleError(f"{row.where}: {key!r} is {value!r:.60}; a label is a number from 0 (no) to 1 (yes).")
    return label
