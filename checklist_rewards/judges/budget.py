"""A budget: engines that stop asking before more than a sum of money is spent.

    >>> budget = Budget(5.0, {"org/judge": (0.15, 0.60)})  # US dollars per million prompt and completion tokens
    >>> scorer = ChecklistScorer("org/judge", base_url="http://localhost:8000/v1", budget=budget)  # doctest: +SKIP

A [`Budget`] holds the limit, the prices and what was spent; every engine of a run gets a [`Budgeted`] in front of it
that shares it. Before a call its cost is bounded (`backends/bounds.py`) and set aside. A call that does not fit into
what is left is cut into one that does, and what it cost less than its bound is free again for the next. Reads and
replies that no longer fit are unanswered("budget: ..."); they are not stored, and are listed at the end like all that
was not answered. Stored answers are free, so rerunning with a larger budget resumes where the run stopped.

A bound can be too low only where a server adds text of its own to the prompts. Then [`Budget.overshoot`] says by how
much the limit was passed, and the bounds of later calls are raised by as much. Where a server does not report its
tokens, the bound is what counts as spent.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import accumulate, chain, groupby
from typing import Any

from checklist_rewards.backends import Arrived, Engine, LabelRead, Messages, ReadGroup, ReadResult, Reply, Sampling
from checklist_rewards.backends.bounds import Bounds, Tokens
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.judges.base import Prices
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.replies import BACKEND_ERROR

BUDGET = "budget"
_ROUNDING = 1e-9
"""Sums of prices do not add up exactly."""


class Budget:
    """Money that may be spent, in this process.

    Args:
        dollars (`float`): the limit in US dollars, from 0 up.
        prices: US dollars per million prompt and completion tokens, by model.

    Raises:
        SampleError: for a limit that is no such number.
    """

    def __init__(self, dollars: float, prices: Prices):
        if isinstance(dollars, bool) or not isinstance(dollars, int | float) or not 0 <= dollars < math.inf:
            raise SampleError(f"a budget is a number of US dollars from 0 up, got {dollars!r}.")
        self.dollars = dollars
        self.prices = prices
        self.spent = 0.0
        self._reserved = 0.0
        self._lock = threading.Lock()

    @classmethod
    def of(cls, given: Any) -> Budget:
        """A budget, or the mapping of a config file: `{dollars: 5, prices: {org/judge: [0.15, 0.6]}}`."""
        if isinstance(given, Mapping) and given.keys() == {"dollars", "prices"}:
            given = cls(given["dollars"], {model: tuple(pair) for model, pair in given["prices"].items()})
        if not isinstance(given, Budget):
            raise SampleError(f"budget={given!r:.80} is not allowed; it is a Budget, or its dollars and prices.")
        return given

    def __repr__(self) -> str:
        return f"Budget({self.dollars:g}, {dict(self.prices)})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def overshoot(self) -> float:
        """US dollars that were spent beyond the limit."""
        return self.spent - self.dollars if self.spent > self.dollars + _ROUNDING else 0.0

    def limited(self, engine: Engine) -> Engine:
        """The engine, held to this budget. Raises [`SampleError`] for one that cannot be."""
        if engine.backend == REMOTE:
            raise SampleError(f"a budget cannot hold the reward server at {engine.base_url}, which does the spending.")
        return Engine(engine.model, Budgeted(engine, self), engine.base_url)

    def cost(self, model: str, prompt_tokens: int, completion_tokens: int) -> float:
        """Of so many tokens, in US dollars."""
        per_prompt, per_completion = self.prices[model]
        return (prompt_tokens * per_prompt + completion_tokens * per_completion) / 1e6

    def reserve(self, costs: Sequence[float]) -> int:
        """How many of these calls fit, from the first on. Their sum is set aside until it is settled."""
        with self._lock:
            room = self.dollars - self.spent - self._reserved + _ROUNDING
            fitting = sum(total <= room for total in accumulate(costs))
            self._reserved += math.fsum(costs[:fitting])
            return fitting

    def settle(self, reserved: float, spent: float) -> None:
        """Count what a call cost, and free what was set aside for it."""
        with self._lock:
            self._reserved -= reserved
            self.spent += spent

    def refusal(self, cost: float | None) -> str:
        """Why a call of this cost is not made."""
        spent = f"{BUDGET}: {self.spent:.4g} of {self.dollars:.4g} US dollars are spent"
        return spent if cost is None else f"{spent}, and the next call may cost {cost:.4g}"


class Budgeted:
    """A backend that asks its engine while there is money.

    Args:
        engine ([`Engine`]): who answers; built at the first prompt.
        budget ([`Budget`]): shared by all engines of a run.

    Raises:
        SampleError: if the engine's model has no price.
    """

    chunk_reads = 4096

    def __init__(self, engine: Engine, budget: Budget):
        if engine.model not in budget.prices:
            raise SampleError(
                f"a budget needs the price of every model that is asked; there is none of {engine.model!r} "
                f"(--price {engine.model}=IN,OUT)."
            )
        self.engine, self.budget = engine, budget
        self.identity = engine.identity
        self._raise = 1.0
        """The highest ratio of a bill to its bound."""

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]."""
        places = [(number, tail) for number, group in enumerate(groups) for tail in group.tails]
        bounds: list[Tokens] = [] if self._spent else list(chain(*self._bounds().reads(groups)))
        results: list[ReadResult] = []
        answers: list[LabelRead] = []
        while piece := self._piece(bounds[len(answers) :]):
            asked = places[len(answers) : len(answers) + len(piece.bounds)]
            with self._paid(piece):
                try:
                    result = self.engine.load().read(_grouped(groups, asked), labels)
                except BackendError as error:
                    if not answers:
                        raise
                    result = ReadResult([(LabelRead(None, f"{BACKEND_ERROR}: {error}"),) * len(asked)])
                fresh = list(chain(*result.reads))
                answered = sum(read.unanswered is None for read in fresh)
                piece.completion = answered if result.completion_tokens is None else result.completion_tokens
                piece.prompt = result.prompt_tokens or (sum(bound.prompt for bound in piece.bounds) * bool(answered))
            results.append(result)
            answers += fresh
        lost = LabelRead(None, self._refusal(bounds[len(answers) :]))
        found = iter(answers + [lost] * (len(places) - len(answers)))
        return _total(results, [tuple(next(found) for _ in group.tails) for group in groups])

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """See [`Backend`]."""
        bound = None if self._spent else self._bounds()
        bounds = [] if bound is None else [bound.reply(messages, sampling) for messages in prompts]
        replies: list[list[Reply]] = []
        while piece := self._piece(bounds[len(replies) :]):
            start, stop = len(replies), len(replies) + len(piece.bounds)
            came: dict[int, list[Reply]] = {}

            def note(place: int, found: list[Reply], start: int = start, came: dict[int, list[Reply]] = came) -> None:
                came[place] = found
                if arrived is not None:
                    arrived(start + place, found)

            with self._paid(piece):
                try:
                    fresh = self.engine.load().generate(prompts[start:stop], sampling, note)
                    for place, found in enumerate(fresh):
                        if place not in came:
                            note(place, found)
                finally:  # an engine that broke has been paid for what came
                    billed = [_billed(found, piece.bounds[place]) for place, found in came.items()]
                    piece.prompt, piece.completion = sum(p for p, _ in billed), sum(c for _, c in billed)
            replies += fresh
        lost = Reply(None, unanswered=self._refusal(bounds[len(replies) :]))
        return replies + [[lost] * sampling.n for _ in prompts[len(replies) :]]

    @property
    def _spent(self) -> bool:
        """Whether there is nothing left; then the engine is not even built."""
        return self.budget.spent >= self.budget.dollars

    def _bounds(self) -> Bounds:
        backend = self.engine.load()
        requests = getattr(backend, "requests_per_read", 1)
        return Bounds(self.engine.model, getattr(backend, "tokens", None), requests=requests)

    def _piece(self, bounds: Sequence[Tokens]) -> _Piece | None:
        """The calls, from the first on, that fit the budget, with their cost set aside; None if there is none."""
        costs = [self._cost(bound) for bound in bounds]
        fitting = self.budget.reserve(costs)
        return _Piece(bounds[:fitting], math.fsum(costs[:fitting])) if fitting else None

    @contextmanager
    def _paid(self, piece: _Piece) -> Iterator[None]:
        """Settles what was set aside for a piece when it is done, however it ends."""
        try:
            yield
        finally:
            spent = self.budget.cost(self.engine.model, piece.prompt, piece.completion)
            self.budget.settle(piece.reserved, spent)
            if spent > piece.reserved > 0:
                self._raise *= spent / piece.reserved

    def _cost(self, bound: Tokens) -> float:
        return self._raise * self.budget.cost(self.engine.model, bound.prompt, bound.completion)

    def _refusal(self, bounds: Sequence[Tokens]) -> str:
        return self.budget.refusal(self._cost(bounds[0]) if bounds else None)


@dataclass(slots=True)
class _Piece:
    """Calls that are made together."""

    bounds: Sequence[Tokens]
    reserved: float
    """US dollars that were set aside for them."""
    prompt: int = 0
    completion: int = 0
    """Tokens that were billed."""


def _billed(replies: Sequence[Reply], bound: Tokens) -> tuple[int, int]:
    """Prompt and completion tokens of the replies to a prompt; where the engine reports none, what they can be."""
    written = sum(len((reply.text or "").encode("utf-8", "replace")) for reply in replies)
    prompt, completion = sum(reply.prompt_tokens for reply in replies), sum(r.completion_tokens for r in replies)
    return (prompt or bound.prompt if written else prompt), completion or min(written, bound.completion)


def _grouped(groups: Sequence[ReadGroup], places: Sequence[tuple[int, str]]) -> list[ReadGroup]:
    """Some of the reads of `groups`, those of a prefix together; `places` are numbers of groups, with tails."""
    return [
        ReadGroup(groups[number].system, groups[number].prefix, tuple(tail for _, tail in some))
        for number, some in groupby(places, key=lambda place: place[0])
    ]


def _total(results: Sequence[ReadResult], reads: list[tuple[LabelRead, ...]]) -> ReadResult:
    """One result of several; a count that one of them does not know is not known."""
    counts: dict[str, int | None] = {}
    for field in fields(ReadResult):
        if field.name != "reads":
            values = [getattr(result, field.name) for result in results]
            counts[field.name] = None if None in values else sum(values)
    return ReadResult(reads, **counts)  # type: ignore[arg-type]
