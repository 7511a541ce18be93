"""What calls have cost, and what a run may spend.

A [`Receipt`] is the cost of some calls. Replies may come from the store, so the number of requested replies is not the
number of paid ones: an engine with a [`Bill`] adds up the prompts that reach it ([`Engine.within`]).

A [`Budget`] is a spending limit in US dollars, shared by all engines of a run.

    >>> budget = Budget(5.0, {"org/judge": (0.15, 0.60)})  # US dollars per million prompt and completion tokens
    >>> scorer = ChecklistScorer("org/judge", base_url="http://localhost:8000/v1", budget=budget)  # doctest: +SKIP

It holds the limit, the prices and the amount spent. Each engine that shares it plans its calls here. Before a call, an
upper bound of its cost ([`Bounds`]) is reserved. A batch that exceeds the remaining budget is cut
to the part that fits, and the unused part of a reservation is released afterwards. Reads and replies that no longer
fit are unanswered("budget: ..."); they are not stored, and are listed with the other unanswered reads. Stored answers
are free, so rerunning with a larger budget resumes where the run stopped.

The bound is too low only if a server adds its own text to prompts. Then [`Budget.overshoot`] is the amount spent
beyond the limit, and the bounds of later calls are raised by the same factor. If a server does not report token usage,
the bound counts as spent.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, chain
from typing import Any, Protocol, Self, TypeVar

from checklist_rewards.backends.base import (
    Answer,
    Arrived,
    Backend,
    Messages,
    ReadGroup,
    Reply,
    Sampling,
    Usage,
)
from checklist_rewards.backends.models import NO_MODEL, UNNAMED
from checklist_rewards.backends.tokens import Bounds, Tokens
from checklist_rewards.checklists import Key, key_of
from checklist_rewards.errors import BackendError, ModelError, SampleError
from checklist_rewards.scores.reasons import Reason, Unanswered

REMOTE = "remote"
"""The name of a reward server in place of an engine."""


Prices = Mapping[str, tuple[float, float]]
"""Model to US dollars per million prompt tokens and per million completion tokens."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The cost of answering reads. Receipts can be added and subtracted.

    Only engine calls are counted: an answer from the store costs nothing.
    """

    reads: int = 0
    """Requested reads."""
    deduplicated: int = 0
    """Reads equal to another read of the same call."""
    stored: int = 0
    """Reads answered from the store."""
    asked: int = 0
    """Reads sent to the engine: `reads - deduplicated - stored`."""
    unanswered: int = 0
    """Distinct reads without an answer."""
    calls: int = 0
    """Prompts sent to the engine, for a label or for a reply, including repeated ones."""
    prompt_tokens: int = 0
    """Tokens of all prompts, counted without prefix sharing."""
    completion_tokens: int = 0
    """Tokens of all replies; a label read counts as one."""
    computed_tokens: int | None = 0
    """Prompt tokens computed by the engine; None if a server does not report its cached tokens."""
    floor_tokens: int = 0
    """Prompt tokens if those with which several prompts of a call of the engine start are computed once: rules and
    input of several targets, and a target of its questions. An engine with a cache of earlier calls computes fewer."""
    separate: int = 0
    """Reads computed as separate prompts because the model cannot share a prefix exactly."""
    cached: int = 0
    """Reads in rows below a prefix (rules, input) that was computed once and kept, where that costs less than longer
    rows (transformers engine)."""
    engine_seconds: float = 0.0
    """Time spent in the engine."""
    tokens: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """`prompt_tokens` and `completion_tokens` by model."""

    @classmethod
    def of(cls, model: str, **counts: Any) -> Receipt:
        """A receipt whose tokens all belong to one model."""
        return cls(**counts, tokens={model: (counts.get("prompt_tokens", 0), counts.get("completion_tokens", 0))})

    def cost(self, prices: Prices) -> float | None:
        """Cost of all tokens in US dollars; None if `prices` lacks a model that was used."""
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
            if self.cached:
                text += f" ({self.cached} reads below a kept prefix)"
            if self.separate:
                text += f" ({self.separate} reads as separate prompts: this model cannot share a prefix exactly)"
        elif self.prompt_tokens:
            text += f"; {self.calls} calls, {self.prompt_tokens} prompt and {self.completion_tokens} completion tokens"
        if self.computed_tokens is None:
            text += "; computed tokens not reported by the server"
        return text


class Bill:
    """What several calls have cost together. Thread-safe."""

    def __init__(self) -> None:
        self.receipt = Receipt()
        self._asked: set[Key] = set()

    def add(self, spent: Receipt) -> None:
        """Add the cost of a call."""
        with _ADDING:
            self.receipt += spent

    def add_replies(
        self, model: str, prompts: Sequence[Messages], replies: Iterable[Sequence[Reply]], seconds: float
    ) -> None:
        """Add the cost of prompts that were sent to an engine, and of the replies that it gave."""
        self._asked.update(map(prompt_key, prompts))
        received = list(chain.from_iterable(replies))
        self.add(
            Receipt.of(
                model,
                calls=len(prompts),
                prompt_tokens=sum(reply.prompt_tokens for reply in received),
                completion_tokens=sum(reply.completion_tokens for reply in received),
                engine_seconds=seconds,
            )
        )

    def asked(self, messages: Messages) -> bool:
        """Whether this prompt was sent to an engine."""
        return prompt_key(messages) in self._asked


_ADDING = threading.Lock()


def prompt_key(messages: Messages) -> Key:
    """Hash of a prompt, equal for equal prompts."""
    return key_of(*(part for message in messages for part in (message["role"], message["content"])))


_ROUNDING = 1e-9
"""Tolerance for floating-point sums of prices."""


class Payer(Protocol):
    """What a budget uses of an [`Engine`]."""

    @property
    def model(self) -> str:
        """The name of the model, which has a price."""

    @property
    def backend(self) -> str | Backend:
        """The name of an engine, or a backend."""

    @property
    def base_url(self) -> str | None:
        """The address of a server."""

    def load(self) -> Backend:
        """The backend, which is built at the first call."""

    def within(self, budget: Budget) -> Self:
        """The engine with a budget."""


_Payer = TypeVar("_Payer", bound=Payer)


class Budget:
    """A spending limit for this process.

    Args:
        dollars (`float`):
            Limit in US dollars, at least 0.
        prices (`Prices`):
            US dollars per million prompt and completion tokens of each model.

    Raises:
        SampleError: If the limit is not a finite number >= 0.
    """

    def __init__(self, dollars: float, prices: Prices):
        if isinstance(dollars, bool) or not isinstance(dollars, int | float) or not 0 <= dollars < math.inf:
            raise SampleError(f"a budget must be a finite number of US dollars >= 0, got {dollars!r}.")
        self.dollars = dollars
        self.prices = dict(prices)
        self.spent = 0.0
        self._reserved = 0.0
        self._raised: dict[tuple[str, str | None], float] = {}
        """Factor on the bounds of an engine: the highest ratio of a bill to its bound so far."""
        self._lock = threading.Lock()

    @classmethod
    def of(cls, value: Any) -> Budget:
        """A budget, or the mapping of a config file: `{dollars: 5, prices: {org/judge: [0.15, 0.6]}}`."""
        if isinstance(value, Mapping) and value.keys() == {"dollars", "prices"}:
            value = cls(value["dollars"], {model: tuple(pair) for model, pair in value["prices"].items()})
        if not isinstance(value, Budget):
            raise SampleError(
                f"budget={value!r:.80} is not allowed; pass a Budget or a mapping of dollars and prices."
            )
        return value

    def __repr__(self) -> str:
        return f"Budget({self.dollars:g}, {dict(self.prices)})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def overshoot(self) -> float:
        """US dollars spent beyond the limit."""
        return self.spent - self.dollars if self.spent > self.dollars + _ROUNDING else 0.0

    def limited(self, engine: _Payer) -> _Payer:
        """The engine, whose calls are limited by this budget. Raises [`SampleError`] for a reward server or a model
        without a price."""
        if engine.backend == REMOTE:
            raise SampleError(
                f"a budget cannot limit the reward server at {engine.base_url}, which calls its judge itself; set the "
                "budget there."
            )
        if engine.model == UNNAMED:
            raise ModelError(NO_MODEL)
        if engine.model not in self.prices:
            raise SampleError(
                f"a budget requires the price of every model; {engine.model!r} has none "
                f"(--price {engine.model}=IN,OUT)."
            )
        return engine.within(budget=self)

    def cost(self, model: str, prompt_tokens: int, completion_tokens: int) -> float:
        """Cost in US dollars of a number of tokens."""
        per_prompt, per_completion = self.prices[model]
        return (prompt_tokens * per_prompt + completion_tokens * per_completion) / 1e6

    def reserve(self, costs: Sequence[float]) -> int:
        """The number of calls, from the first, that fit the budget. Their cost is reserved until [`settle`]."""
        with self._lock:
            room = self.dollars - self.spent - self._reserved + _ROUNDING
            fitting = sum(total <= room for total in accumulate(costs))
            self._reserved += math.fsum(costs[:fitting])
            return fitting

    def settle(self, reserved: float, spent: float) -> None:
        """Record the cost of a call and release its reservation."""
        with self._lock:
            self._reserved -= reserved
            self.spent += spent

    def read(self, engine: Payer, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Answer the reads that fit the budget; the others are unanswered. Without any money left, the engine is not
        loaded."""
        count = sum(len(group.tails) for group in groups)
        bounds: list[Tokens] = [] if self.is_spent else _bounds(engine).reads(groups)
        usages: list[Usage] = []
        answers: list[Answer] = []
        while piece := self._piece(engine, bounds[len(answers) :]):
            size = len(piece.bounds)
            with self._paid(engine, piece):
                try:
                    # The engine has the tokens of the same object from the bounds.
                    part = groups if size == count else _part(groups, len(answers), len(answers) + size)
                    fresh, usage = engine.load().read(part, labels)
                except BackendError as error:
                    if not answers:
                        raise
                    fresh, usage = [Answer(None, Unanswered(Reason.BACKEND_ERROR, str(error)))] * size, Usage()
                answered = sum(read.unanswered is None for read in fresh)
                piece.completion = answered if usage.completion_tokens is None else usage.completion_tokens
                piece.prompt = usage.prompt_tokens or (sum(bound.prompt for bound in piece.bounds) * bool(answered))
            usages.append(usage)
            answers += fresh
        refused = Answer(None, self._refusal(engine, bounds[len(answers) :]))
        return answers + [refused] * (count - len(answers)), Usage.total(usages)

    def generate(
        self, engine: Payer, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Reply to the prompts that fit the budget; the others are unanswered."""
        bound = None if self.is_spent else _bounds(engine)
        bounds = [] if bound is None else [bound.reply(messages, sampling) for messages in prompts]
        replies: list[list[Reply]] = []
        while piece := self._piece(engine, bounds[len(replies) :]):
            start, stop = len(replies), len(replies) + len(piece.bounds)
            received: dict[int, list[Reply]] = {}

            def note(
                place: int, group: list[Reply], start: int = start, received: dict[int, list[Reply]] = received
            ) -> None:
                received[place] = group
                if arrived is not None:
                    arrived(start + place, group)

            with self._paid(engine, piece):
                try:
                    fresh = engine.load().generate(prompts[start:stop], sampling, note)
                    for place, group in enumerate(fresh):
                        if place not in received:
                            note(place, group)
                finally:  # replies received before an engine failure are billed too
                    billed = [_billed(group, piece.bounds[place]) for place, group in received.items()]
                    piece.prompt, piece.completion = sum(p for p, _ in billed), sum(c for _, c in billed)
            replies += fresh
        refused = Reply(None, unanswered=self._refusal(engine, bounds[len(replies) :]))
        return replies + [[refused] * sampling.n for _ in prompts[len(replies) :]]

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.dollars

    def _piece(self, engine: Payer, bounds: Sequence[Tokens]) -> _Piece | None:
        """The calls, from the first, that fit the budget, with their cost reserved; None if the first does not fit."""
        costs = [self._bound(engine, bound) for bound in bounds]
        fitting = self.reserve(costs)
        return _Piece(bounds[:fitting], math.fsum(costs[:fitting])) if fitting else None

    @contextmanager
    def _paid(self, engine: Payer, piece: _Piece) -> Iterator[None]:
        """Settle the reservation of a piece when its call ends, also after an error."""
        try:
            yield
        finally:
            spent = self.cost(engine.model, piece.prompt, piece.completion)
            self.settle(piece.reserved, spent)
            if spent > piece.reserved > 0:
                key = engine.model, engine.base_url
                self._raised[key] = self._raised.get(key, 1.0) * spent / piece.reserved

    def _bound(self, engine: Payer, bound: Tokens) -> float:
        """The most that a call may cost."""
        raised = self._raised.get((engine.model, engine.base_url), 1.0)
        return raised * self.cost(engine.model, bound.prompt, bound.completion)

    def _refusal(self, engine: Payer, bounds: Sequence[Tokens]) -> Unanswered:
        """Why the first of some calls is unanswered."""
        spent = f"{self.spent:.4g} of {self.dollars:.4g} US dollars are spent"
        more = f", and the next call may cost {self._bound(engine, bounds[0]):.4g}" if bounds else ""
        return Unanswered(Reason.BUDGET, spent + more)


def _bounds(engine: Payer) -> Bounds:
    backend = engine.load()
    return Bounds(engine.model, backend.tokens, requests=backend.requests_per_read)


@dataclass(slots=True)
class _Piece:
    """Calls made together."""

    bounds: Sequence[Tokens]
    reserved: float
    """US dollars reserved for them."""
    prompt: int = 0
    completion: int = 0
    """Billed tokens."""


def _billed(replies: Sequence[Reply], bound: Tokens) -> tuple[int, int]:
    """Prompt and completion tokens of the replies to a prompt; the bound if the engine reports none."""
    texts = ((reply.thought or "") + (reply.text or "") for reply in replies)
    reply_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    prompt, completion = sum(reply.prompt_tokens for reply in replies), sum(r.completion_tokens for r in replies)
    return (prompt or bound.prompt if reply_bytes else prompt), completion or min(reply_bytes, bound.completion)


def _part(groups: Sequence[ReadGroup], start: int, stop: int) -> list[ReadGroup]:
    """The reads of `groups` from number `start` to `stop`, which is left out."""
    parts, first = [], 0
    for group in groups:
        cut = slice(max(0, start - first), max(0, stop - first))
        if group.tails[cut]:
            parts.append(replace(group, tails=group.tails[cut], written=group.written[cut]))
        first += len(group.tails)
    return parts
