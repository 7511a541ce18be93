"""The same question asked again: reworded, with its labels in another order, or sampled with another seed.

A judge that is asked twice in the same way answers from the store, so a repeat has to change something that should not
change the answer. [`variant_of`] rewords the question of an item by one of the packaged wordings
(`prompts/variants/`), which fit every question, and names the labels in another order in every second repeat.
[`ChecklistScorer.repeated`] asks these variants, or, if its judge samples its replies, the same question with another
seed.

Both are deterministic. Repeat 0 is the ordinary read with its ordinary store key.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Literal

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.base import Judge
from checklist_rewards.prompts import PromptTemplate, load_prompt

Repeats = Literal["reworded", "resampled"]

WORDINGS = 7
MOST_REPEATS = WORDINGS + 1
"""Different variants of a question, including the question itself."""


def variant_of(item: ChecklistItem, number: int) -> ChecklistItem:
    """The item asked in another way: the same `id`, weight, values and labels, and another question. An item with a
    code check is returned unchanged.

    `number` is from 0, the item itself, to 7; any other raises [`SampleError`]. Odd numbers also change the order of
    the labels: no before yes, or the options in reverse order. (Options that are shown with letters are in a random
    order that depends on the question, so they change place with every wording.)
    """
    if number not in range(MOST_REPEATS):
        raise SampleError(f"variant {number!r} of a question does not exist; allowed: 0 to {MOST_REPEATS - 1}.")
    if number == 0 or item.check is not None:
        return item
    question = _wording(f"wording_{number}").render(question=item.question)
    options = item.options
    if number % 2:
        if options is None:
            question = _wording("no_or_yes").render(question=question)
        else:
            options = options[::-1]
    return item.model_copy(update={"question": question, "options": options})


def how_repeated(judge: Judge) -> Repeats:
    """How questions are asked again: "resampled" of a judge that samples its replies at a temperature above 0,
    otherwise "reworded"."""
    return "resampled" if judge.sampling is not None and judge.sampling.temperature > 0 else "reworded"


def reseeded(judge: Judge, number: int) -> Judge:
    """A judge that samples its replies, for the repeat `number`."""
    assert judge.sampling is not None
    again = copy.copy(judge)
    again.sampling = replace(judge.sampling, seed=judge.sampling.seed + _SEEDS * number)
    return again


def check_rewordable(judge: Judge) -> None:
    """Raise [`SampleError`] for a judge that shows examples, which are chosen by the wording of a question."""
    if any(part.examples is not None for part in judge.parts()):
        raise SampleError(
            "a judge with examples cannot be asked a reworded question: its examples belong to the wording of a "
            "question; omit `examples`, or set a temperature above 0 to repeat by sampling."
        )


_SEEDS = 1000
"""Distance of the seeds of two repeats. A reply that cannot be parsed is requested again with the next seed."""


@cache
def _wording(name: str) -> PromptTemplate:
    return load_prompt(f"variants/{name}", "stage")
