"""The training data of a distilled judge: targets, questions and soft labels.

A file has one row per answer (**target**, **question**, **label**: yes, no or a number in [0, 1], and optionally a
**group**, such as the document), or one row per response with the labels of its checklist (**target**, **checklist**,
**labels**: one per item, or a mapping of item ids), or it was written by `checklist-rewards score`. In the last case
the P(yes) of the judge are the labels, which distills a large judge into a small one. A row may also have the
**input** that the target answers, and a **reference** answer. Of a target, the answer is read, as for `score`;
`judges/labels.py` reads the labels.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from checklist_rewards.backends.base import ReadGroup
from checklist_rewards.backends.encoder_rows import context_texts
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.labels import GROUP, Labelled, read_labelled


def read_labels(
    path: str | Path,
    *,
    target_key: str | None = None,
    question_key: str = "question",
    label_key: str = "label",
    group_key: str | None = None,
) -> list[Labelled]:
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
        `list[Labelled]`: One pair per label.

    Raises:
        SampleError: If a key is missing or a label is outside [0, 1] (the message names the row), or if the file has
            no labels.
    """
    pairs = read_labelled(
        path,
        target_key=target_key,
        question_key=question_key,
        label_key=label_key,
        group_key=group_key,
        soft=True,
    )
    for pair in pairs:
        if pair.group == "":
            raise SampleError(f"{pair.where}: the group {group_key or GROUP!r} is missing or empty (--group-key).")
    pairs = [replace(pair, group=pair.target) if pair.group is None else pair for pair in pairs]
    if not pairs:
        raise SampleError(f"{path} has no labels: it has no rows, or its scores have no answered yes/no items.")
    return pairs


Context = tuple[str, str | None, str | None]
"""A target with its input and its reference."""


def by_target(pairs: Iterable[Labelled]) -> dict[Context, list[int]]:
    """The indices of the pairs of each target with its input and reference, in order."""
    places: dict[Context, list[int]] = {}
    for place, pair in enumerate(pairs):
        places.setdefault((pair.target, pair.input, pair.reference), []).append(place)
    return places


def read_group(pairs: Sequence[Labelled], places: Sequence[int]) -> ReadGroup:
    """The questions of some pairs with the same target, input and reference, as reads of an encoder."""
    first = pairs[places[0]]
    return ReadGroup(None, first.target, tuple(pairs[place].question for place in places), context_texts(first))


def folds_of(pairs: Sequence[Labelled], folds: int, seed: int = 0) -> list[int]:
    """The fold of every pair, from 0. A group is never split; folds are of similar size.

    Raises:
        SampleError: If there are fewer groups than folds.
    """
    groups_of = [pair.group or pair.target for pair in pairs]
    sizes = Counter(groups_of)
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
    return [fold[group] for group in groups_of]
