"""Scales: questions answered with a degree instead of yes or no.

An *ordinal scale* is a list of options whose values increase evenly from 0 to 1. Questions on a scale are read like
all others, in one token if the labels allow it. The probabilities over the labels give the soft value: the expected
point on the scale. In RLCF (arXiv:2507.18624), the judge samples grades from 0 to 100, which are averaged; computed
from the probabilities, that mean takes one read.

    >>> [option.label for option in ordinal_scale(5)]
    ['0', '1', '2', '3', '4']
    >>> on_scale(["Is it polite?"], ordinal_scale(3)).items[0].values
    {'0': 0.0, '1': 0.5, '2': 1.0}

An item allows the judge to *abstain* if one of its options has `na` set. [`with_abstention`] adds this option to plain
questions too, next to explicit options for yes and no.

    >>> with_abstention(["Is the source right?"]).items[0].values
    {'yes': 1.0, 'no': 0.0, 'cannot_assess': None}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_uppercase
from typing import Any

from checklist_rewards.checklists import CANNOT_ASSESS, NO, YES, Checklist, ChecklistItem, Option
from checklist_rewards.errors import ChecklistError

ONE_TOKEN_STEPS = 20
"""Length of the longest scale whose labels are single characters; every tokenizer has them as single tokens."""
_DIGITS = 10
_YES_NO = (Option(label=YES, value=1), Option(label=NO, value=0))


def ordinal_scale(steps: int) -> tuple[Option, ...]:
    """Options whose values increase evenly from 0 to 1.

    Args:
        steps (`int`): Number of options, at least 2. Up to 10 options are labelled with digits from "0", up to 20 with
            letters from "A". More are labelled with numbers from "0" ("0" to "100" for 101). No engine reads these in
            one token, so they are for sampled answers.

    Returns:
        `tuple[Option, ...]`: The options, from the lowest value to the highest.

    Raises:
        ChecklistError: If `steps` is less than 2.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 2:
        raise ChecklistError(f"an ordinal scale needs at least 2 steps, got {steps!r}.")
    lettered = _DIGITS < steps <= ONE_TOKEN_STEPS
    labels = ascii_uppercase[:steps] if lettered else [str(step) for step in range(steps)]
    return tuple(Option(label=label, value=step / (steps - 1)) for step, label in enumerate(labels))


def on_scale(checklist: Any, scale: Sequence[Option]) -> Checklist:
    """Put all plain questions of a checklist, or of any value that [`Checklist.parse`] accepts, on a scale.

    Items with options of their own, a code check or a scope are left unchanged. The others get a new id, because the
    id depends on the possible answers. They keep their weights, categories and gates.
    """
    return _with_options(checklist, lambda item: tuple(scale) if item.options is None else None)


def with_abstention(checklist: Any) -> Checklist:
    """Add the answer "cannot_assess" to every question of a checklist, or of any value that [`Checklist.parse`]
    accepts, that has no abstention yet.

    The scorer's threshold still applies to a yes/no question, unless abstaining is the most probable answer. Items
    with a code check or a scope are left unchanged. Changed items get a new id, as in [`on_scale`].
    """
    abstention = Option(label=CANNOT_ASSESS, na=True)
    return _with_options(
        checklist,
        lambda item: None if None in item.values.values() else (*(item.options or _YES_NO), abstention),
    )


def _with_options(checklist: Any, options_of: Callable[[ChecklistItem], tuple[Option, ...] | None]) -> Checklist:
    """The checklist with other options for the items that a judge answers as a whole, where there are others."""
    checklist = Checklist.parse(checklist)
    items = []
    for item in checklist.items:
        options = options_of(item) if item.check is None and item.scope is None else None
        others = item.model_dump(exclude={"id", "options"})
        items.append(item if options is None else ChecklistItem(**others, options=options))
    return Checklist(items=tuple(items), source=checklist.source, model=checklist.model)
