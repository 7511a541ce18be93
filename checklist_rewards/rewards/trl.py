"""Checklists as the reward of TRL's trainers.

    >>> from checklist_rewards.rewards.trl import ChecklistReward
    >>> reward = ChecklistReward(model="pocket")
    >>> trainer = GRPOTrainer(model=..., reward_funcs=reward, train_dataset=dataset)  # doctest: +SKIP

The dataset has a `checklist` column beside `prompt`; TRL hands both to the reward with the completions, and the scorer
reads all questions about all of them in one plan (equal reads once, completions of one prompt side by side, wherever
the trainer put them). The reward of a completion is its `primary_score`, in [0, 1].

What a judge does not answer is no reward: a completion of which too little was answered (the scorer's
`min_answered`) gets None, which TRL leaves out of the group's mean and gives an advantage of 0. That holds while this
is the only reward; beside others use `multi_objective_aggregation="normalize_then_sum"`, because TRL's default sum
counts a None as 0. A row whose checklist is None gets None as well, so a dataset may mix prompts with and without one.
A checklist that cannot be used, or no checklist column at all, is an error.

`trl grpo --reward_funcs checklist_rewards.rewards.trl.reward` takes its settings from the YAML file that the
environment variable `CHECKLIST_REWARDS_CONFIG` names.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from checklist_rewards.chat import completion_text, opens_thinking, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import PRIMARY_METRICS, PrimaryMetric, Score, rescore

CONFIG_VARIABLE = "CHECKLIST_REWARDS_CONFIG"
_NOT_COLUMNS = ("prompts", "completions", "completion_ids", "log_extra", "log_metric", "trainer_state")
_TAKEN_NAMES = ("reward", "reward_std", "step", "prompt", "completion", "advantage")

LogExtra = Callable[[str, list[str]], None]
LogMetric = Callable[[str, float], None]


class ChecklistReward:
    """A reward function for `GRPOTrainer`, `RLOOTrainer` and whatever calls rewards as they do.

    Args:
        scorer ([`ChecklistScorer`], *optional*): answers the checklists. Instead of one, its keyword arguments may be
            given here.
        metric (`str`, *optional*): pass, weighted, expected or normalized: reward what a scorer with this
            `primary_metric` would give. Defaults to the scorer's own. Required items and `min_answered` hold for each.
        name (`str`, *optional*, defaults to `"checklist_reward"`): what trainers call this reward. Two rewards in one
            trainer need two names.
        column (`str`, *optional*, defaults to `"checklist"`): the dataset column that holds the checklists.
        keep_thinking (`bool`, *optional*, defaults to `False`): judge `<think>` blocks too.
        thinking_opened (`bool`, *optional*, defaults to `False`): the policy's chat template opens the thinking block
            itself, so a completion that was cut before `</think>` is all thinking. A prompt that ends in `<think>` is
            noticed without it.
        categories (sequence of `str`, *optional*): item categories whose pass rate is logged.
        **scorer_arguments: of [`ChecklistScorer`].

    Example:

    ```python
    >>> reward = ChecklistReward(model="pocket")
    >>> reward(prompts=["Say hello."], completions=["hello"], checklist=[["Is it in lower case?"]])  # doctest: +SKIP
    [0.98]
    ```
    """

    def __init__(
        self,
        scorer: ChecklistScorer | None = None,
        *,
        metric: PrimaryMetric | None = None,
        name: str = "checklist_reward",
        column: str = "checklist",
        keep_thinking: bool = False,
        thinking_opened: bool = False,
        categories: Sequence[str] = (),
        **scorer_arguments: Any,
    ):
        if scorer is None:
            scorer = ChecklistScorer(**scorer_arguments)
        elif not hasattr(scorer, "score_batch"):
            raise SampleError(f"scorer must be a ChecklistScorer, got {scorer!r:.60}; a model's name goes to model=.")
        elif scorer_arguments:
            raise SampleError(f"a scorer is given, so {', '.join(scorer_arguments)} must be set on it, not here.")
        if metric is not None and metric not in PRIMARY_METRICS:
            raise SampleError(f"metric={metric!r} is not known; allowed: {', '.join(PRIMARY_METRICS)}.")
        if not isinstance(name, str) or not name or name in _TAKEN_NAMES:
            raise SampleError(f"name={name!r} is not allowed; it is a string other than {', '.join(_TAKEN_NAMES)}.")
        if column in _NOT_COLUMNS:
            raise SampleError(f"column={column!r} is not allowed: trainers pass something else under this name.")
        if isinstance(categories, str) or not isinstance(categories, Sequence):
            raise SampleError(f"categories={categories!r} is not allowed; it is a list of strings.")
        self.scorer = scorer
        self.metric = metric
        self.__name__ = name
        self.column = column
        self.keep_thinking = keep_thinking
        self.thinking_opened = thinking_opened
        self.categories = tuple(categories)

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
        """Reward completions.

        Args:
            prompts, completions (lists of `str`, or of lists of messages).
            checklist (list, *optional*): one per completion: anything that [`Checklist.parse`] takes, or None.
            completion_ids, trainer_state: not used; trainers pass them.
            log_extra (callable, *optional*): gets the column `<name>/detail`: each completion's [`Score`] as JSON.
            log_metric (callable, *optional*): gets the numbers that [`metric_names`] lists.
            **kwargs: the other columns of the dataset; the checklists, if `column` names one of them.

        Returns:
            list of `float` in [0, 1] or None, one per completion.

        Raises:
            SampleError: if the column is not there, or something in it is no text.
            ChecklistError: naming the row and the item, for a checklist that cannot be used. Nothing is asked then.
        """
        column = checklist if self.column == "checklist" else kwargs.get(self.column)
        samples = self._samples(prompts, completions, column, kwargs)
        started = time.perf_counter()
        found = iter(self.scorer.score_batch([sample for sample in samples if sample is not None]))
        seconds = time.perf_counter() - started
        scores = [None if sample is None else self._rescored(sample.checklist, next(found)) for sample in samples]
        if log_extra is not None:
            log_extra(f"{self.__name__}/detail", ["null" if s is None else s.model_dump_json() for s in scores])
        if log_metric is not None:
            log_metric(f"{self.__name__}/judge_seconds", seconds)
            for sample, score in zip(samples, scores, strict=True):
                for name, value in self._metrics(sample, score).items():
                    # TRL averages over whatever was logged on any rank, so a number that does not exist is not logged.
                    if value is not None:
                        log_metric(f"{self.__name__}/{name}", value)
        return [None if score is None else score.primary_score for score in scores]

    @property
    def metric_names(self) -> list[str]:
        """Every name that `log_metric` may get; it depends on the settings only, never on the data.

        Means over completions: `score` (the reward), `pass_rate`, `unscored` (share with reward None), `unanswered`
        and `abstained` (share of the items), `mass` (of the judge's reads), `category/<c>` (share of its items
        passed). `judge_seconds` is a mean over calls.
        """
        return [f"{self.__name__}/{name}" for name in ("judge_seconds", *self._metrics(None, None))]

    def as_async(self) -> AsyncReward:
        """The same reward as a coroutine: trainers run several of these at once, each in its own thread."""
        return AsyncReward(self)

    def _samples(
        self, prompts: Sequence[Any], completions: Sequence[Any], column: Any, columns: Mapping[str, Any]
    ) -> list[Sample | None]:
        if column is None:
            raise SampleError(
                f"{self.__name__}: the trainer passed no column {self.column!r} (columns it passed: "
                f"{', '.join(columns) or 'none'}); the dataset needs one, in every row, and the trainer must keep it "
                "(remove_unused_columns=False)."
            )
        if isinstance(column, str | Mapping) or not len(prompts) == len(completions) == len(column):
            raise SampleError(
                f"{self.__name__}: expected one prompt and one checklist per completion, got {len(completions)} "
                f"completions, {len(prompts)} prompts and {len(column)} checklists ({type(column).__name__})."
            )
        rows = enumerate(zip(prompts, completions, column, strict=True), start=1)
        return [None if value is None else self._sample(i, prompt, text, value) for i, (prompt, text, value) in rows]

    def _sample(self, row: int, prompt: Any, completion: Any, value: Any) -> Sample:
        checklist = Checklist.parse(value, f"{self.__name__}, row {row} of the batch (prompt {prompt!r:.80})")
        input, history = prompt_text(prompt)
        opened = self.thinking_opened or opens_thinking(prompt)
        target = completion_text(completion, keep_thinking=self.keep_thinking, opened=opened)
        return Sample(checklist, target, input, history=history)

    def _rescored(self, checklist: Checklist, score: Score) -> Score:
        if self.metric is None or self.metric == score.primary_metric:
            return score
        scorer = self.scorer
        return rescore(
            checklist,
            score,
            primary_metric=self.metric,
            threshold=scorer.threshold,
            min_answered=scorer.min_answered,
            abstention=scorer.abstention,
        )

    def _metrics(self, sample: Sample | None, score: Score | None) -> dict[str, float | None]:
        reward = None if score is None else score.primary_score
        items = () if sample is None or score is None else tuple(zip(sample.checklist.items, score.items, strict=True))
        abstained = [line.answer is not None and item.values[line.answer] is None for item, line in items]
        numbers = {
            "score": reward,
            "pass_rate": None if score is None else score.pass_rate,
            "unscored": float(reward is None),
            "unanswered": _mean([line.unanswered is not None for _, line in items]),
            "abstained": _mean(abstained),
            "mass": _mean([line.mass for _, line in items if line.mass is not None]),
        }
        for category in self.categories:
            passed = [line.passed for item, line in items if item.category == category and line.passed is not None]
            numbers[f"category/{category}"] = _mean(passed)
        return numbers


class AsyncReward:
    """A [`ChecklistReward`] that trainers await; make it with [`ChecklistReward.as_async`].

    TRL names a `functools.partial` after the function inside it, which would give every reward the same name, so this
    is an object with an async `__call__`.
    """

    def __init__(self, reward: ChecklistReward):
        self.reward = reward
        self.__name__ = reward.__name__

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **kwargs: Any) -> list[float | None]:
        """Run the reward in a thread; see [`ChecklistReward.__call__`]."""
        return await asyncio.to_thread(self.reward, prompts, completions, **kwargs)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def __getattr__(name: str) -> Any:
    # `trl grpo --reward_funcs` takes an attribute of a module and has no way to pass arguments to it.
    if name == "reward":
        return configured_reward(os.environ.get(CONFIG_VARIABLE))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def configured_reward(path: str | None) -> ChecklistReward:
    """The reward that a YAML file describes; its judge is checked, not loaded.

    Args:
        path (`str`, *optional*): a mapping of keyword arguments of [`ChecklistReward`] and [`ChecklistScorer`].

    Raises:
        ChecklistRewardsError: naming the file and the key, for anything that cannot be used.
    """
    if not path:
        raise SampleError(f"{__name__}.reward needs {CONFIG_VARIABLE} in the environment: the path of a YAML file.")
    try:
        config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SampleError(f"{CONFIG_VARIABLE}: {path} cannot be read as YAML ({error}).") from error
    config = {} if config is None else config
    if not isinstance(config, Mapping):
        raise SampleError(f"{CONFIG_VARIABLE}: {path} must be a mapping of settings, got {type(config).__name__}.")
    allowed = config_keys()
    for key in config:
        if key not in allowed:
            raise SampleError(f"{CONFIG_VARIABLE}: {path}: unknown key {key!r}; allowed: {', '.join(allowed)}.")
    try:
        reward = ChecklistReward(**config)
        reward.scorer.check()
    except ChecklistRewardsError as error:
        raise type(error)(f"{CONFIG_VARIABLE}: {path}: {error}") from error
    return reward


def config_keys() -> list[str]:
    """Settings that a YAML file may have: the arguments of reward and scorer that are plain values."""
    signatures = (inspect.signature(ChecklistReward), inspect.signature(ChecklistScorer))
    names = [p.name for s in signatures for p in s.parameters.values() if p.kind is not p.VAR_KEYWORD]
    return [name for name in names if name not in ("scorer", "judge")]
