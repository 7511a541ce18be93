"""A budget: engines that stop asking when a sum of money is spent.

A [`Budget`] holds the limit, the prices and what was spent; every engine of a run gets a [`Budgeted`] in front of it
that shares it. Once the limit is reached nothing more is asked: what is still missing stays unanswered("budget: ..."),
is not kept in the store, and is listed at the end like everything that was not answered. What the store has costs
nothing and is always given. So a run that stopped goes on where it was, when it is started again with more money.

Costs are known when an engine has answered, so the limit may be passed by what one call costs: 256 reads, or 128
replies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from checklist_rewards.backends import LabelRead, Messages, ReadGroup, ReadResult, Reply, Sampling
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.base import Prices, Receipt
from checklist_rewards.replies import Engine

BUDGET = "budget"
_CHUNK_READS = 256


class Budget:
    """Money that may be spent.

    Args:
        dollars (`float`): the limit in US dollars, from 0 up.
        prices: US dollars per million prompt and completion tokens, by model.

    Raises:
        SampleError: for a limit that is no such number.
    """

    def __init__(self, dollars: float, prices: Prices):
        if isinstance(dollars, bool) or not math.isfinite(dollars) or dollars < 0:
            raise SampleError(f"a budget is a number of US dollars from 0 up, got {dollars!r}.")
        self.dollars = dollars
        self.prices = prices
        self.spent = 0.0

    @property
    def left(self) -> str | None:
        """Why nothing more may be asked; None while there is money."""
        if self.spent < self.dollars:
            return None
        return f"{BUDGET}: {self.spent:.4g} of {self.dollars:.4g} US dollars are spent"

    def pay(self, model: str, prompt_tokens: int, completion_tokens: int) -> None:
        """Count what a call has cost."""
        used = Receipt.of(model, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        self.spent += used.cost(self.prices) or 0.0


class Budgeted:
    """A backend that asks its engine while there is money.

    Args:
        engine ([`Engine`]): who answers; built at the first prompt.
        budget ([`Budget`]): shared by all engines of a run.

    Raises:
        SampleError: if the engine's model has no price.
    """

    chunk_reads = _CHUNK_READS

    def __init__(self, engine: Engine, budget: Budget):
        if engine.model not in budget.prices:
            raise SampleError(
                f"a budget needs the price of every model that is asked; there is none of {engine.model!r} "
                f"(--price {engine.model}=IN,OUT)."
            )
        self.engine, self.budget = engine, budget
        self.identity = engine.identity

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]."""
        if (over := self.budget.left) is not None:
            return ReadResult([(LabelRead(None, over),) * len(group.tails) for group in groups])
        result = self.engine.load().read(groups, labels)
        answered = sum(read.unanswered is None for reads in result.reads for read in reads)
        self.budget.pay(self.engine.model, result.prompt_tokens, answered)
        return result

    def generate(self, prompts: Sequence[Messages], sampling: Sampling) -> list[list[Reply]]:
        """See [`Backend`]."""
        if (over := self.budget.left) is not None:
            return [[Reply(None, unanswered=over)] * sampling.n for _ in prompts]
        replies = self.engine.load().generate(prompts, sampling)
        every = [reply for group in replies for reply in group]
        prompt_tokens = sum(reply.prompt_tokens for reply in every)
        self.budget.pay(self.engine.model, prompt_tokens, sum(reply.completion_tokens for reply in every))
        return replies
