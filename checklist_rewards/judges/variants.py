"""The same question asked again: reworded, with its labels in another order, or sampled with another seed.

A judge that is asked twice in the same way answers from the store, so a repeat has to change something that should not
change the answer. [`variant_of`] rewords the question of an item by one of the packaged wordings
(`prompts/variants/`), which fit every question, and names the labels in another order in every second repeat.
[`repeated`] returns a judge that does so, or, for a judge that samples its replies, the same judge with another seed.

Both are deterministic. Repeat 0 is the ordinary read with its ordinary store key.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

from checklist_rewards.backends import Sampling
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.base import Judge, Progress, Read, Receipt, innermost, judges_of
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.scores import Verdict

Repeats = Literal["reworded", "resampled"]

WORDINGS = 7
MOST_REPEATS = WORDINGS + 1
"""Different variants of a question, including the question itself."""


def variant_of(item: ChecklistItem, number: int) -> ChecklistItem:
    """The item asked in another way.

    Args:
        item ([`ChecklistItem`]):
            Any item. An item with a code check is returned unchanged.
        number (`int`):
            From 0, the item itself, to 7. Odd numbers also change the order of the labels: no before yes, or the
            options in reverse order. (Options that are shown with letters are in a random order that depends on the
            question, so they change place with every wording.)

    Returns:
        [`ChecklistItem`]: The same `id`, weight, values and labels; another question.

    Raises:
        SampleError: For any other number.
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


class VariantJudge:
    """A judge that is asked a variant of every question.

    Verdicts are those of the original items: they have the same labels, in the order of the item.

    Args:
        judge ([`Judge`]):
            The judge that answers.
        number (`int`):
            The variant; see [`variant_of`].
    """

    def __init__(self, judge: Judge, number: int):
        self.inner, self.number = judge, number

    @property
    def name(self) -> str:
        """The name of the inner judge."""
        return self.inner.name

    @property
    def receipt(self) -> Receipt:
        """Total cost of the inner judge."""
        return self.inner.receipt

    def check(self) -> None:
        """Raise a [`ChecklistRewardsError`] if the inner judge cannot be used."""
        self.inner.check()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`] for an item that the inner judge cannot answer."""
        self.inner.check_item(variant_of(item, self.number), where)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order."""
        varied = [replace(read, item=variant_of(read.item, self.number)) for read in reads]
        verdicts = self.inner.judge(varied, progress)
        return [_in_order(verdict, read.item) for verdict, read in zip(verdicts, reads, strict=True)]


def how_repeated(judge: Judge) -> Repeats:
    """How [`repeated`] repeats a judge: "resampled" if it samples its replies at a temperature above 0, otherwise
    "reworded"."""
    sampling = getattr(innermost(judge), "sampling", None)
    return "resampled" if isinstance(sampling, Sampling) and sampling.temperature > 0 else "reworded"


def repeated(judge: Judge, number: int) -> Judge:
    """The judge for the repeat `number`, from 0 (the judge itself).

    The cost of a reworded judge is counted on the judge's own receipt. A resampled judge has a receipt of its own.

    Raises:
        SampleError: If the judge shows examples, which are chosen by the wording of a question.
    """
    if number == 0:
        return judge
    if hasattr(judge, "inner"):  # calibration and checks apply to every repeat
        again: Any = copy.copy(judge)
        again.inner = repeated(judge.inner, number)
        return again
    if how_repeated(judge) == "resampled":
        again = copy.copy(judge)
        again.sampling = replace(again.sampling, seed=again.sampling.seed + _SEEDS * number)
        again.receipt = Receipt()
        return again
    if any(getattr(each, "examples", None) is not None for each in judges_of(judge)):
        raise SampleError(
            "a judge with examples cannot be asked a reworded question: its examples belong to the wording of a "
            "question; omit `examples`, or set a temperature above 0 to repeat by sampling."
        )
    return VariantJudge(judge, number)


_SEEDS = 1000
"""Distance of the seeds of two repeats. A reply that cannot be parsed is requested again with the next seed."""


@cache
def _wording(name: str) -> PromptTemplate:
    return load_prompt(f"variants/{name}", "stage")


def _in_order(verdict: Verdict, item: ChecklistItem) -> Verdict:
    if item.options is None or verdict.probabilities is None:
        return verdict
    return replace(
        verdict,
        probabilities={label: verdict.probabilities[label] for label in item.values},
        votes=tuple(_in_order(vote, item) for vote in verdict.votes),
    )
