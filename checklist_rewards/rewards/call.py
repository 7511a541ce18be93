"""One call of a reward, and rewards that trainers await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.failures import ranks
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score

LogExtra = Callable[[str, list[str]], None]
LogMetric = Callable[[str, float], None]
Samples = Sequence[Sample | None]
"""One per completion; None for a row without a checklist."""
Scores = Sequence[Score | None]
Rewards = list[float | None]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a reward: what was judged, and the trainer's hooks."""

    prompts: Sequence[Any]
    samples: Sequence[Sample | None]
    """None for a row without a checklist."""
    scores: Sequence[Score | None]
    seconds: float
    """Time that the judge took."""
    pairs: bool
    log_extra: LogExtra | None
    log_metric: LogMetric | None
    trainer_state: Any

    @property
    def step(self) -> int | None:
        """The trainer's step; None if it passes no state."""
        return getattr(self.trainer_state, "global_step", None)

    @property
    def trainer(self) -> Any:
        """The trainer that passed `log_metric`; None if it is not known."""
        return getattr(self.log_metric, "__self__", None)

    @property
    def training(self) -> bool:
        """Whether the call belongs to training: the trainer's model is in training mode, or the trainer is not
        known."""
        return getattr(getattr(self.trainer, "model", None), "training", True) is not False


class Exchanging(Protocol):
    """What [`AsyncReward`] uses of a reward."""

    __name__: str

    def exchanges(self, hook: Any) -> bool:
        """Whether a call communicates between ranks."""

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **kwargs: Any) -> list[float | None]:
        """Compute the rewards."""


@runtime_checkable
class StagedReward(Protocol):
    """A reward in three parts, with something to do between them: what a monitor uses of a [`ChecklistReward`], or of
    a reward around one."""

    __name__: str

    @property
    def scorer(self) -> Any:
        """The [`ChecklistScorer`]."""

    @property
    def metric(self) -> Any:
        """The metric, if it is not the scorer's."""

    @property
    def deadline(self) -> float | None:
        """Seconds for the reads of a call."""

    @property
    def log(self) -> Any:
        """The [`RewardLog`]."""

    @property
    def judged(self) -> Callable[..., Call]:
        """Scores the completions."""

    @property
    def rewards_of(self) -> Callable[..., Any]:
        """The rewards of a call, and how they were made."""

    @property
    def record(self) -> Callable[..., None]:
        """Logs scores and rewards."""

    def pop_stats(self) -> dict[str, float]:
        """Mean of each metric since the last call of this method."""


class AsyncReward:
    """A reward that trainers await; create it with `as_async()` of the reward.

    This is an object with an async `__call__`: TRL names a `functools.partial` after the wrapped function, so all
    partials would have the same name.
    """

    def __init__(self, reward: Exchanging):
        self.reward = reward
        self.__name__ = reward.__name__

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **kwargs: Any) -> list[float | None]:
        """Run the reward in a thread; see [`ChecklistReward.__call__`].

        Raises [`SampleError`] if ranks have to exchange groups: the threads of several rewards would do so in a
        different order on each rank.
        """
        reward = self.reward
        if ranks() > 1 and reward.exchanges(kwargs.get("log_metric")):
            raise SampleError(
                f"{self.__name__}: groups on {ranks()} ranks (on_failure='group', a shaping step across the "
                "group, a monitor, or several rewards that the trainer sums) require the reward itself instead of "
                "as_async()."
            )
        return await asyncio.to_thread(self.reward, prompts, completions, **kwargs)
