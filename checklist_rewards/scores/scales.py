"""Scales: questions that are answered by degree instead of by yes or no.

An *ordinal scale* is a list of options whose values rise evenly from 0 to 1. Put on a scale, a checklist's questions
are read like any others, in one token where the labels allow it, and the probabilities over the labels give the soft
value: the expected point on the scale. RLCF (arXiv:2507.18624) has its judge give 0 to 100 and averages over samples;
read off the probabilities, that mean takes one read.

    >>> [option.label for option in ordinal_scale(5)]
    ['0', '1', '2', '3', '4']
    >>> on_scale(["Is it polite?"], ordinal_scale(3)).items[0].values
    {'0': 0.0, '1': 0.5, '2': 1.0}

An item may *abstain* where one of its options says so (`na`). A plain question becomes one that may by having its yes
and no written out beside such an option.

    >>> with_abstention(["Is the source right?"]).items[0].values
    {'yes': 1.0, 'no': 0.0, 'cannot_assess': None}
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from checklist_rewards.checklists import CANNOT_ASSESS, NO, YES, Checklist, ChecklistItem, Option
from checklist_rewards.errors import ChecklistError

ONE_TOKEN_STEPS = 20
"""Longest scale whose labels are single characters, which every tokenizer has as single tokens."""
_DIGITS = 10
_YES_NO = (Option(label=YES, value=1), Option(label=NO, value=0))


def ordinal_scale(steps: int) -> tuple[Option, ...]:
    """Options with values rising evenly from 0 to 1.

    Args:
        steps (`int`): how many, from 2 up. Up to 10 are labelled by digits from "0", up to 20 by letters from "A";
            more by numbers from "0" ("0" to "100" for 101), which no engine reads in one token: those are for sampled
            answers.

    Raises:
        ChecklistError: for fewer than 2.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 2:
        raise ChecklistError(f"an ordinal scale has at least 2 steps, got {steps!r}.")
    lettered = _DIGITS < steps <= ONE_TOKEN_STEPS
    labels = ascii_uppercase[:steps] if lettered else [str(step) for step in range(steps)]
    return tuple(Option(label=label, value=step / (steps - 1)) for step, label in enumerate(labels))


def on_scale(checklist: Any, scale: Sequence[Option]) -> Checklist:
    """`checklist` with every plain question answered on `scale`.

    Items that have options of their own, or a code check, stay as they are. The others get a new id, since what may be
    answered is part of it; weights, categories and gates stay.

    Args:
        checklist: a [`Checklist`], or anything that [`Checklist.parse`] takes.
        scale (sequence of [`Option`]): such as `ordinal_scale(10)`.
    """
    checklist = Checklist.parse(checklist)
    items = tuple(
        item
        if item.options is not None or item.check is not None
        else ChecklistItem(**item.model_dump(exclude={"id", "options"}), options=tuple(scale))
        for item in checklist.items
    )
    return Checklist(items=items, source=checklist.source, model=checklist.model)


def with_abstention(checklist: Any) -> Checklist:
    """`checklist` with "cannot_assess" among the answers to every question that has no abstention yet.

    A yes/no question stays one: it is still answered yes from the scorer's threshold up, unless abstaining is the most
    probable answer. Items with a code check stay as they are. Changed items get a new id, as in [`on_scale`].

    Args:
        checklist: a [`Checklist`], or anything that [`Checklist.parse`] takes.
    """
    checklist = Checklist.parse(checklist)
    items = tuple(
        item
        if item.check is not None or None in item.values.values()
        else ChecklistItem(
            **item.model_dump(exclude={"id", "options"}),
            options=(*(item.options or _YES_NO), Option(label=CANNOT_ASSESS, na=True)),
        )
        for item in checklist.items
    )
    return Checklist(items=items, source=checklist.source, model=checklist.model)
