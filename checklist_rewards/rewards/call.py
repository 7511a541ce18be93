"""What trainers call: rewards, rewards that are awaited, and one call of a reward."""

from __future__ import annotations

import asyncio
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.failures import ranks
from checklist_rewards.rewards.trail import Trail
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score

LogExtra = Callable[[str, list[str]], None]
LogMetric = Callable[[str, float], None]
COMPLETION_IDS = "completion_ids"
"""Name under which the token ids of the completions stand among the columns of a call."""
Samples = Sequence[Sample | None]
"""One per completion; None for a row without a checklist."""
Scores = Sequence[Score | None]
Rewards = list[float | None]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a reward: what was judged, and the trainer's hooks."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
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


def trainer_of(log_metric: Any, trainer_state: Any) -> Any:
    """The trainer that called the reward, or None.

    `GRPOTrainer` and `RLOOTrainer` pass a bound method of their own. `OnlineDPOTrainer` passes its state only, so it
    is looked for among the callers.
    """
    owner = getattr(log_metric, "__self__", None)
    if owner is not None or trainer_state is None:
        return owner
    frame: Any = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if getattr(owner, "state", None) is trainer_state and hasattr(owner, "processing_class"):
            return owner
        frame = frame.f_back
    return None


class TrainerReward(ABC):
    """Base class of what trainers call: [`ChecklistReward`], its wrappers and its parts."""

    __name__: str

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        checklist: Sequence[Any] | None = None,
        completion_ids: Sequence[Sequence[int]] | None = None,
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
        trainer_state: Any = None,
        **kwargs: Any,
    ) -> list[float | None]:
        """Compute the rewards of completions.

        Args:
            prompts, completions (lists of `str`, or of lists of messages):
                One prompt per completion.
            checklist (list, *optional*):
                One per completion: anything that [`Checklist.parse`] accepts, or None.
            completion_ids (list of lists of `int`, *optional*):
                The completions as the policy wrote them. With the trainer's tokenizer they show which part is the
                answer, also where decoding has dropped the markers of a thought.
            trainer_state (*optional*):
                Provides the step for log lines.
            log_extra (callable, *optional*):
                Called with the column `<name>/detail`, each completion's [`Score`] as JSON.
            log_metric (callable, *optional*):
                Called with the metrics of [`metric_names`].
            **kwargs:
                The other columns of the dataset, including the checklists if `column` names one of them.

        Returns:
            `list[float | None]`: One per completion, in [0, 1] unless `shaping` changes the range.

        Raises:
            SampleError: If the checklist column is missing, or if a prompt or completion is not text.
            ChecklistError: If a checklist cannot be used; names the row and item. Nothing has been sent to the judge.
            BackendError: If a completion has no score and `on_failure="raise"`.
        """
        columns = kwargs if checklist is None else {"checklist": checklist, **kwargs}
        if completion_ids is not None:
            columns = {**columns, COMPLETION_IDS: completion_ids}
        return self.rewarded(prompts, completions, columns, log_extra, log_metric, trainer_state)[0]

    @abstractmethod
    def rewarded(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        columns: Mapping[str, Any],
        log_extra: LogExtra | None,
        log_metric: LogMetric | None,
        trainer_state: Any,
    ) -> tuple[Rewards, Trail]:
        """Judge and log a call. Returns the rewards and how they were made."""

    @abstractmethod
    def exchanges(self, hook: Any) -> bool:
        """Whether a call communicates between ranks, in the trainer that passed this hook."""

    def as_async(self) -> AsyncReward:
        """The same reward as a coroutine. Trainers await several of them concurrently, each in a thread. With more
        than one rank, a reward that exchanges completions between ranks is refused."""
        return AsyncReward(self)


class StagedReward(TrainerReward):
    """A reward that is computed in three steps (judge, compute, log), so that a wrapper can act between them."""

    def rewarded(self, *batch: Any, parts: Any = None) -> tuple[Rewards, Trail]:
        """Judge and log a call, with the arguments of [`judged`]. The trail has the rewards of `parts`."""
        call = self.judged(*batch)
        rewards, trail = self.rewards_of(call, call.samples, call.scores, parts)
        self.record(call, rewards, trail)
        return rewards, trail

    @abstractmethod
    def judged(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        columns: Mapping[str, Any],
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
        trainer_state: Any = None,
    ) -> Call:
        """Score the completions; the first step."""

    @abstractmethod
    def rewards_of(self, call: Call, samples: Samples, scores: Scores, parts: Any = None) -> tuple[Rewards, Trail]:
        """The rewards of a call and how they were made, from its samples and scores or from some of their items; the
        second step."""

    @abstractmethod
    def record(
        self,
        call: Call,
        rewards: Sequence[float | None],
        trail: Trail,
        more: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Log the scores and rewards of a call; the third step."""


class AsyncReward:
    """A reward that trainers await; create it with `as_async()` of the reward.

    An object with an async `__call__` can be pickled and has a name of its own: TRL names a `functools.partial` after
    the wrapped function. TRL up to 1.12 only awaits what `inspect.iscoroutinefunction` accepts, so the object also has
    the attributes by which `inspect` recognizes an `async def` function.
    """

    __defaults__ = __kwdefaults__ = None

    def __init__(self, reward: TrainerReward):
        self.reward = reward
        self.__name__ = reward.__name__

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **kwargs: Any) -> list[float | None]:
        """Run the reward in a thread; see [`TrainerReward.__call__`].

        Raises [`SampleError`] if ranks have to exchange groups: the threads of several rewards would do so in a
        different order on each rank.
        """
        reward = self.reward
        if ranks() > 1 and reward.exchanges(kwargs.get("log_metric")):
            raise SampleError(
                f"{self.__name__}: groups on {ranks()} ranks (on_failure='group', a shaping step across the "
                "group, a monitor, several rewards that the trainer sums, or TRL before 1.14) require the reward "
                "itself instead of as_async()."
            )
        return await asyncio.to_thread(self.reward, prompts, completions, **kwargs)

    __code__ = __call__.__code__

    @property
    def __signature__(self) -> inspect.Signature:
        """The arguments of a call; derived from `__code__`, they would include `self`."""
        return inspect.signature(self.__call__)
