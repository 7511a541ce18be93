"""What a run may spend and what it did spend: engines that count or limit the calls of another.

Replies may come from the store, so the number of requested replies is not the number of paid ones. A [`Meter`] wraps
the engine and counts the prompts that reach it.

A [`Budget`] is a spending limit in US dollars, shared by all engines of a run.

    >>> budget = Budget(5.0, {"org/judge": (0.15, 0.60)})  # US dollars per million prompt and completion tokens
    >>> scorer = ChecklistScorer("org/judge", base_url="http://localhost:8000/v1", budget=budget)  # doctest: +SKIP

It holds the limit, the prices and the amount spent. Each engine is wrapped in a [`Budgeted`] backend. Before
a call, an upper bound of its cost ([`Bounds`]) is reserved. A batch that exceeds the remaining budget is cut
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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import accumulate, chain, groupby
from typing import Any

from typing_extensions import override

from checklist_rewards.backends import Arrived, Engine, LabelRead, Messages, ReadGroup, ReadResult, Reply, Sampling
from checklist_rewards.backends.models import NO_MODEL, UNNAMED
from checklist_rewards.backends.tokens import Bounds, Tokens
from checklist_rewards.checklists import Key, key_of
from checklist_rewards.errors import BackendError, ModelError, SampleError
from checklist_rewards.judges.base import Prices, Receipt
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.scores.reasons import Reason, Unanswered


class Wrapper:
    """A [`Backend`] that passes every call to an engine. Subclasses override what differs.

    Creating one loads nothing and does not look up the model.

    Args:
        engine ([`Engine`]):
            Engine to wrap. It is loaded at the first call.
    """

    chunk_reads = 4096

    def __init__(self, engine: Engine):
        self.engine = engine

    @property
    def identity(self) -> str:
        """The identity of the engine. Raises [`ModelError`] if its model does not exist."""
        return self.engine.identity

    @property
    def wrapped(self) -> Engine:
        """This backend as an engine, under the model name of the engine that it wraps."""
        return Engine(self.engine.model, self, self.engine.base_url)

    @property
    def continues(self) -> bool:
        """Whether the engine reads labels after a text that the assistant has written."""
        return getattr(self.engine.load(), "continues", False)

    @property
    def limit(self) -> int | None:
        """The engine's context in tokens; None if it reports none."""
        return getattr(self.engine.load(), "limit", None)

    @property
    def tokens(self) -> Any:
        """The engine's tokenizer; None if it has none here."""
        return getattr(self.engine.load(), "tokens", None)

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """Read with the engine."""
        return self.engine.load().read(groups, labels)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Generate with the engine."""
        return self.engine.load().generate(prompts, sampling, arrived)


class Meter(Wrapper):
    """A backend that counts the prompts that its engine replies to. Label reads are not counted here.

    Args:
        engine ([`Engine`]):
            Engine to wrap. It is loaded at the first prompt.
    """

    def __init__(self, engine: Engine):
        super().__init__(engine)
        self.spent = Receipt()
        self._asked: set[Key] = set()

    def asked(self, messages: Messages) -> bool:
        """Whether this prompt reached the engine."""
        return prompt_key(messages) in self._asked

    @override
    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        self._asked.update(map(prompt_key, prompts))
        backend = self.engine.load()  # before the timer starts, so that loading does not count
        started = time.perf_counter()
        received: dict[int, list[Reply]] = {}

        def note(place: int, replies: list[Reply]) -> None:
            received[place] = replies
            if arrived is not None:
                arrived(place, replies)

        try:
            replies = backend.generate(prompts, sampling, note)
            received.update(enumerate(replies))
            return replies
        finally:  # replies received before an engine failure are counted too
            counted = [reply for replies in received.values() for reply in replies]
            self.spent += Receipt.of(
                self.engine.model,
                calls=len(prompts),
                prompt_tokens=sum(reply.prompt_tokens for reply in counted),
                completion_tokens=sum(reply.completion_tokens for reply in counted),
                engine_seconds=time.perf_counter() - started,
            )


def prompt_key(messages: Messages) -> Key:
    """Hash of a prompt, equal for equal prompts."""
    return key_of(*(part for message in messages for part in (message["role"], message["content"])))


_ROUNDING = 1e-9
"""Tolerance for floating-point sums of prices."""


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
        self.prices = prices
        self.spent = 0.0
        self._reserved = 0.0
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

    def limited(self, engine: Engine) -> Engine:
        """The engine limited by this budget. Raises [`SampleError`] for a reward server or a model without a price."""
        if engine.backend == REMOTE:
            raise SampleError(
                f"a budget cannot limit the reward server at {engine.base_url}, which calls its judge itself; set the "
                "budget there."
            )
        if engine.model == UNNAMED:
            raise ModelError(NO_MODEL)
        return Budgeted(engine, self).wrapped

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

    def refusal(self, cost: float | None) -> Unanswered:
        """Why a call of this cost is unanswered."""
        spent = f"{self.spent:.4g} of {self.dollars:.4g} US dollars are spent"
        more = "" if cost is None else f", and the next call may cost {cost:.4g}"
        return Unanswered(Reason.BUDGET, spent + more)


class Budgeted(Wrapper):
    """A backend that calls its engine as long as the budget allows.

    Args:
        engine ([`Engine`]):
            Engine to call. It is loaded at the first prompt.
        budget ([`Budget`]):
            Budget shared by all engines of a run.

    Raises:
        SampleError: If the engine's model has no price.
    """

    def __init__(self, engine: Engine, budget: Budget):
        super().__init__(engine)
        if engine.model not in budget.prices:
            raise SampleError(
                f"a budget requires the price of every model; {engine.model!r} has none "
                f"(--price {engine.model}=IN,OUT)."
            )
        self.budget = budget
        self._raise = 1.0
        """Factor on the bounds: the highest ratio of a bill to its bound so far."""

    @override
    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """Answer the reads that fit the budget; the others are unanswered."""
        places = [(number, index) for number, group in enumerate(groups) for index in range(len(group.tails))]
        bounds: list[Tokens] = [] if self._spent else list(chain(*self._bounds().reads(groups)))
        results: list[ReadResult] = []
        answers: list[LabelRead] = []
        while piece := self._piece(bounds[len(answers) :]):
            batch = places[len(answers) : len(answers) + len(piece.bounds)]
            with self._paid(piece):
                try:
                    # The engine has the tokens of the same object from the bounds.
                    part = groups if len(batch) == len(places) else _grouped(groups, batch)
                    result = self.engine.load().read(part, labels)
                except BackendError as error:
                    if not answers:
                        raise
                    result = ReadResult(
                        [(LabelRead(None, Unanswered(Reason.BACKEND_ERROR, str(error))),) * len(batch)]
                    )
                fresh = list(chain(*result.reads))
                answered = sum(read.unanswered is None for read in fresh)
                piece.completion = answered if result.completion_tokens is None else result.completion_tokens
                piece.prompt = result.prompt_tokens or (sum(bound.prompt for bound in piece.bounds) * bool(answered))
            results.append(result)
            answers += fresh
        refused = LabelRead(None, self._refusal(bounds[len(answers) :]))
        all_reads = iter(answers + [refused] * (len(places) - len(answers)))
        return _total(results, [tuple(next(all_reads) for _ in group.tails) for group in groups])

    @override
    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Reply to the prompts that fit the budget; the others are unanswered."""
        bound = None if self._spent else self._bounds()
        bounds = [] if bound is None else [bound.reply(messages, sampling) for messages in prompts]
        replies: list[list[Reply]] = []
        while piece := self._piece(bounds[len(replies) :]):
            start, stop = len(replies), len(replies) + len(piece.bounds)
            received: dict[int, list[Reply]] = {}

            def note(
                place: int, group: list[Reply], start: int = start, received: dict[int, list[Reply]] = received
            ) -> None:
                received[place] = group
                if arrived is not None:
                    arrived(start + place, group)

            with self._paid(piece):
                try:
                    fresh = self.engine.load().generate(prompts[start:stop], sampling, note)
                    for place, group in enumerate(fresh):
                        if place not in received:
                            note(place, group)
                finally:  # replies received before an engine failure are billed too
                    billed = [_billed(group, piece.bounds[place]) for place, group in received.items()]
                    piece.prompt, piece.completion = sum(p for p, _ in billed), sum(c for _, c in billed)
            replies += fresh
        refused = Reply(None, unanswered=self._refusal(bounds[len(replies) :]))
        return replies + [[refused] * sampling.n for _ in prompts[len(replies) :]]

    @property
    def _spent(self) -> bool:
        """Whether the budget is used up. In this case the engine is not loaded."""
        return self.budget.spent >= self.budget.dollars

    def _bounds(self) -> Bounds:
        backend = self.engine.load()
        requests = getattr(backend, "requests_per_read", 1)
        return Bounds(self.engine.model, getattr(backend, "tokens", None), requests=requests)

    def _piece(self, bounds: Sequence[Tokens]) -> _Piece | None:
        """The calls, from the first, that fit the budget, with their cost reserved; None if the first does not fit."""
        costs = [self._cost(bound) for bound in bounds]
        fitting = self.budget.reserve(costs)
        return _Piece(bounds[:fitting], math.fsum(costs[:fitting])) if fitting else None

    @contextmanager
    def _paid(self, piece: _Piece) -> Iterator[None]:
        """Settle the reservation of a piece when its call ends, also after an error."""
        try:
            yield
        finally:
            spent = self.budget.cost(self.engine.model, piece.prompt, piece.completion)
            self.budget.settle(piece.reserved, spent)
            if spent > piece.reserved > 0:
                self._raise *= spent / piece.reserved

    def _cost(self, bound: Tokens) -> float:
        return self._raise * self.budget.cost(self.engine.model, bound.prompt, bound.completion)

    def _refusal(self, bounds: Sequence[Tokens]) -> Unanswered:
        return self.budget.refusal(self._cost(bounds[0]) if bounds else None)


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


def _grouped(groups: Sequence[ReadGroup], places: Sequence[tuple[int, int]]) -> list[ReadGroup]:
    """A part of the reads of `groups`, grouped by prefix. `places` has pairs of group number and index of the tail."""
    parts = []
    for number, some in groupby(places, key=lambda place: place[0]):
        group, indices = groups[number], [index for _, index in some]
        written = tuple(group.written[index] for index in indices) if group.written else ()
        parts.append(replace(group, tails=tuple(group.tails[index] for index in indices), written=written))
    return parts


def _total(results: Sequence[ReadResult], reads: list[tuple[LabelRead, ...]]) -> ReadResult:
    """The sum of several results; a count that is None in one of them is None."""
    counts: dict[str, int | None] = {}
    for field in fields(ReadResult):
        if field.name != "reads":
            values = [getattr(result, field.name) for result in results]
            counts[field.name] = None if None in values else sum(values)
    return ReadResult(reads, **counts)  # type: ignore[arg-type]
