"""What a judge is: reads in, verdicts out.

A judge never raises for a read that failed; it says *unanswered* with the reason, and the scores take it from there.
It raises for what no retry can mend before the first read is asked (a model that is not there, a prompt without its
fields).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.scores import Verdict


@dataclass(frozen=True, slots=True)
class Read:
    """One item to be answered about one target."""

    item: ChecklistItem
    target: str
    input: str | None = None
    reference: str | None = None
    history: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What answering cost. Receipts add up; the difference of two is what happened in between."""

    reads: int = 0
    """Reads asked for."""
    deduplicated: int = 0
    """Of these, equal to another one of the same call."""
    stored: int = 0
    """Of these, answered by the store."""
    asked: int = 0
    """Of these, put to the engine: `reads - deduplicated - stored`."""
    unanswered: int = 0
    """Distinct reads that were left without an answer."""
    prompt_tokens: int = 0
    """Tokens of all prompts asked, each computed alone."""
    computed_tokens: int = 0
    """Tokens that the engine computed."""
    floor_tokens: int = 0
    """The least that could have been: each prefix once, each tail once."""
    engine_seconds: float = 0.0
    """Time spent inside the engine."""

    def __add__(self, other: Receipt) -> Receipt:
        return Receipt(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Receipt)))

    def __sub__(self, other: Receipt) -> Receipt:
        return Receipt(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Receipt)))

    def __str__(self) -> str:
        text = f"{self.reads} reads: {self.asked} asked, {self.stored} from the store, {self.deduplicated} duplicates"
        if self.floor_tokens:
            ratio = self.computed_tokens / self.floor_tokens
            text += f"; {self.computed_tokens} prompt tokens computed, {ratio:.2f} x the floor"
        return text


class Judge(Protocol):
    """Answers items about targets."""

    name: str
    """Shown in scores and logs."""
    receipt: Receipt
    """What all calls so far have cost."""

    def check(self) -> None:
        """Refuse what can be refused without an engine: raises a [`ChecklistRewardsError`]."""
        ...

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that this judge cannot answer: raises a [`ChecklistError`] that begins with `where`."""
        ...

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order."""
        ...
