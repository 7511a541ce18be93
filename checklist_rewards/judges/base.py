"""What a judge is: reads in, verdicts out.

A judge never raises for a read that failed; it says *unanswered* with the reason, and the scores take it from there.
It raises for what no retry can mend before the first read is asked (a model that is not there, a prompt without its
fields).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

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
    sample: int = 0
    """Reads with the same number belong to one checklist: a judge that puts all questions of a target into one call
    puts these together and no others."""


Prices = Mapping[str, tuple[float, float]]
"""Model to US dollars per million prompt tokens and per million completion tokens."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What answering cost. Receipts add up; the difference of two is what happened in between.

    Only what reached an engine is counted: an answer from the store costs nothing.
    """

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
    calls: int = 0
    """Prompts put to the engine, for a label or for a reply; asking again counts again."""
    prompt_tokens: int = 0
    """Tokens of all prompts asked, each computed alone."""
    completion_tokens: int = 0
    """Tokens of all replies; a label that is read is one."""
    computed_tokens: int | None = 0
    """Prompt tokens that the engine computed; None if a server that answered one of the calls does not report what it
    took from its cache."""
    floor_tokens: int = 0
    """The least that could have been: each prefix once, each tail once."""
    separate: int = 0
    """Reads whose prompt was computed by itself, because the model cannot share a prefix exactly."""
    engine_seconds: float = 0.0
    """Time spent inside the engine."""
    tokens: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of each model, its share of `prompt_tokens` and `completion_tokens`."""

    @classmethod
    def of(cls, model: str, **counts: Any) -> Receipt:
        """A receipt whose tokens are all one model's."""
        return cls(**counts, tokens={model: (counts.get("prompt_tokens", 0), counts.get("completion_tokens", 0))})

    def cost(self, prices: Prices) -> float | None:
        """What all tokens cost in US dollars; None if `prices` lacks a model that used any."""
        total = 0.0
        for model, used in self.tokens.items():
            if not any(used):
                continue
            if model not in prices:
                return None
            total += sum(count * price for count, price in zip(used, prices[model], strict=True)) / 1e6
        return total

    def __add__(self, other: Receipt) -> Receipt:
        return self._combined(other, 1)

    def __sub__(self, other: Receipt) -> Receipt:
        return self._combined(other, -1)

    def _combined(self, other: Receipt, sign: int) -> Receipt:
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)[:-1]}
        counts = {name: None if None in pair else pair[0] + sign * pair[1] for name, pair in pairs.items()}
        tokens = {
            model: (mine[0] + sign * others[0], mine[1] + sign * others[1])
            for model in dict.fromkeys([*self.tokens, *other.tokens])
            for mine, others in [(self.tokens.get(model, (0, 0)), other.tokens.get(model, (0, 0)))]
        }
        return Receipt(**counts, tokens=tokens)  # type: ignore[arg-type]

    def __str__(self) -> str:
        text = f"{self.reads} reads: {self.asked} asked, {self.stored} from the store, {self.deduplicated} duplicates"
        if self.unanswered:
            text += f", {self.unanswered} unanswered"
        if self.floor_tokens and self.computed_tokens is not None:
            ratio = self.computed_tokens / self.floor_tokens
            text += f"; {self.computed_tokens} prompt tokens computed, {ratio:.2f} x the floor"
            if self.separate:
                text += f" ({self.separate} reads as separate prompts: this model cannot share a prefix exactly)"
        elif self.prompt_tokens:
            text += f"; {self.calls} calls, {self.prompt_tokens} prompt and {self.completion_tokens} completion tokens"
        if self.computed_tokens is None:
            text += "; computed tokens not reported by the server"
        return text


_PAYING = threading.Lock()


class Paid:
    """A judge that adds up what its calls cost, also where several threads call it at once."""

    receipt: Receipt = Receipt()

    def _pay(self, *spent: Receipt) -> None:
        with _PAYING:
            self.receipt = sum(spent, self.receipt)


class Judge(Protocol):
    """Answers items about targets."""

    name: str
    """Shown in scores and logs."""

    @property
    def receipt(self) -> Receipt:
        """What all calls so far have cost."""
        ...

    def check(self) -> None:
        """Refuse what can be refused without an engine: raises a [`ChecklistRewardsError`]."""
        ...

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that this judge cannot answer: raises a [`ChecklistError`] that begins with `where`."""
        ...

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order."""
        ...
