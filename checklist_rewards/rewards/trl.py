"""Checklists as the reward of TRL's trainers.

    >>> from checklist_rewards.rewards.trl import ChecklistReward
    >>> reward = ChecklistReward(model="pocket")
    >>> trainer = GRPOTrainer(model=..., reward_funcs=reward, train_dataset=dataset)  # doctest: +SKIP

The dataset has a `checklist` column beside `prompt`; TRL hands both to the reward with the completions, and the scorer
reads all questions about all of them in one plan (equal reads once, completions of one prompt side by side, wherever
the trainer put them). The reward of a completion is its `primary_score`, in [0, 1].

What a judge does not answer is no reward: a completion of which too little was answered (the scorer's
`min_answered`) gets None, which TRL leaves out of the group's mean and gives an advantage of 0. Beside other rewards
that holds with `multi_objective_aggregation="normalize_then_sum"`; TRL's default sum counts a None as 0, so there all
completions of the prompt abstain together, which leaves it to the other rewards to decide (`failures.py`). A row whose
checklist is None gets None as well, so a dataset may mix prompts with and without one. A checklist that cannot be
used, or no checklist column at all, is an error.

`OnlineDPOTrainer` takes the reward too (its completions come as `[A, B, A, B]`; nothing here depends on places), but
trains on pairs without a score; `online_dpo.py` has one that does not. `AsyncGRPOTrainer` sends the reward to a
process without a GPU, so there the judge must be a server; beside other rewards it needs `on_failure="group"`, for it
does not show that it adds them up. Neither has hooks to log through: give `log`, a file, or ask `pop_stats()`.

`trl grpo --reward_funcs checklist_rewards.rewards.trl.reward` takes its settings from the YAML file that the
environment variable `CHECKLIST_REWARDS_CONFIG` names (`configured.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from checklist_rewards.chat import completion_text, opens_thinking, prompt_text
from checklist_rewards.checklists import Checklist, Option
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.pipelines.pipeline import Pipeline
from checklist_rewards.rewards.content import content_key, described
from checklist_rewards.rewards.failures import (
    ON_FAILURE,
    OnFailure,
    abstained,
    adds_up,
    are_pairs,
    failed_on_any_rank,
    ranks,
)
from checklist_rewards.rewards.log import RewardLog, numbers_of
from checklist_rewards.rewards.placement import awake, check_child
from checklist_rewards.rewards.steps import Judged, Shaping
from checklist_rewards.rewards.transcript import transcript_text
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import PRIMARY_METRICS, PrimaryMetric, Score
from checklist_rewards.scores.scales import on_scale, ordinal_scale
from checklist_rewards.validation import one_of, whole_number

Target = Literal["last", "transcript"]
TARGETS: tuple[str, ...] = get_args(Target)
_NOT_COLUMNS = ("prompts", "completions", "completion_ids", "log_extra", "log_metric", "trainer_state")
_TAKEN_NAMES = ("reward", "reward_std", "step", "prompt", "completion", "advantage")

logger = logging.getLogger(__name__)

LogExtra = Callable[[str, list[str]], None]
LogMetric = Callable[[str, float], None]


class ChecklistReward:
    """A reward function for `GRPOTrainer`, `RLOOTrainer` and whatever calls rewards as they do.

    Args:
        scorer ([`ChecklistScorer`] or [`Pipeline`], *optional*): answers the checklists; a pipeline's scorer does so
            on the pipeline's scale. Instead of one, the keyword arguments of a [`ChecklistScorer`] may be given here.
        metric (`str`, *optional*): pass, weighted, expected, normalized, or of a scorer that grades, quality: reward
            what a scorer with this `primary_metric` would give. Defaults to the scorer's own. Required items and
            `min_answered` hold for each.
        name (`str`, *optional*, defaults to `"checklist_reward"`): what trainers call this reward. Two rewards in one
            trainer need two names.
        column (`str`, *optional*, defaults to `"checklist"`): the dataset column that holds the checklists.
        reference (`str`, *optional*): the dataset column of known good answers, shown to a judge whose prompt has a
            place for one. A row may have None.
        target (`str`, *optional*, defaults to `"last"`): what of a completion of several messages (tools, turns) is
            judged: the last text of the assistant, or the transcript of all of it.
        shaping (list of mappings, *optional*): what becomes of the metric before the trainer gets it: steps such as
            `{"name": "length_penalty", "free": 200, "cap": 400}`; see `steps.py`. Without "clipped" at their end a
            reward may leave [0, 1].
        retries (`int`, *optional*, defaults to `1`): how often reads are asked again that the engine lost on the way.
        on_failure (`str`, *optional*, defaults to `"row"`): what a completion without a score does. row: it gets None,
            with its group where a trainer is seen to count None as 0. group: all completions of its prompt get None,
            always. raise: training stops with a [`BackendError`].
        log (`str` or `Path`, *optional*): a JSONL file that gets a line per completion: step, prompt, completion,
            reward and [`Score`].
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
        scorer: ChecklistScorer | Pipeline | None = None,
        *,
        metric: PrimaryMetric | None = None,
        name: str = "checklist_reward",
        column: str = "checklist",
        reference: str | None = None,
        target: Target = "last",
        shaping: Sequence[Mapping[str, Any] | str] | None = None,
        retries: int = 1,
        on_failure: OnFailure = "row",
        log: str | Path | None = None,
        keep_thinking: bool = False,
        thinking_opened: bool = False,
        categories: Sequence[str] = (),
        **scorer_arguments: Any,
    ):
        scorer, scale = _scorer_of(scorer, scorer_arguments)
        if metric is not None:
            one_of("metric", metric, PRIMARY_METRICS)
        if metric == "quality" and "quality" not in (scorer.mode, scorer.aggregation.primary_metric):
            raise SampleError(f"metric='quality' needs a scorer of mode='quality', which grades; got {scorer.mode!r}.")
        if not isinstance(name, str) or not name or name in _TAKEN_NAMES:
            raise SampleError(f"name={name!r} is not allowed; it is a string other than {', '.join(_TAKEN_NAMES)}.")
        for argument, key in (("column", column), ("reference", reference)):
            if key in _NOT_COLUMNS:
                raise SampleError(f"{argument}={key!r} is not allowed: trainers pass something else under this name.")
        for argument, value, allowed in (("target", target, TARGETS), ("on_failure", on_failure, ON_FAILURE)):
            one_of(argument, value, allowed)
        whole_number("retries", retries, at_least=0)
        for argument, switch in (("keep_thinking", keep_thinking), ("thinking_opened", thinking_opened)):
            if not isinstance(switch, bool):
                raise SampleError(f"{argument}={switch!r} is not allowed; it is True or False.")
        if isinstance(categories, str) or not isinstance(categories, Sequence):
            raise SampleError(f"categories={categories!r} is not allowed; it is a list of strings.")
        self.scorer = scorer
        self.scale = scale
        self.metric = metric
        self.__name__ = name
        self.column = column
        self.reference = reference
        self.target: Target = target
        self.shaping = Shaping(shaping or ())
        self.retries = retries
        self.on_failure: OnFailure = on_failure
        self.log = RewardLog(log)
        self.keep_thinking = keep_thinking
        self.thinking_opened = thinking_opened
        self.categories = tuple(categories)
        self.ties_are_left_out = False  # by OnlineDPO, where our own trainer does it
        self._warned = False

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
            completion_ids: not used; trainers pass it.
            trainer_state (*optional*): where the step of a logged line comes from.
            log_extra (callable, *optional*): gets the column `<name>/detail`: each completion's [`Score`] as JSON.
            log_metric (callable, *optional*): gets the numbers that [`metric_names`] lists.
            **kwargs: the other columns of the dataset; the checklists, if `column` names one of them.

        Returns:
            list of `float` or None, one per completion; in [0, 1] unless `shaping` leads out of it.

        Raises:
            SampleError: if the column is not there, or something in it is no text.
            ChecklistError: naming the row and the item, for a checklist that cannot be used. Nothing is asked then.
            BackendError: if a completion has no score and `on_failure` is "raise".
        """
        columns = kwargs if checklist is None else {"checklist": checklist, **kwargs}
        samples = self._samples(prompts, completions, columns)
        started = time.perf_counter()
        known = [sample for sample in samples if sample is not None]
        with awake(self.scorer.judge):
            found = self.scorer.score_batch(known, retries=self.retries)
        seconds = time.perf_counter() - started
        order = iter(found)
        scores = [None if sample is None else self._under_metric(next(order)) for sample in samples]
        pairs = are_pairs(prompts, log_extra is not None or log_metric is not None, trainer_state)
        rewards = self._rewards(prompts, samples, scores, pairs, self.fails_by_group(log_metric))
        if log_extra is not None:
            log_extra(f"{self.__name__}/detail", ["null" if s is None else s.model_dump_json() for s in scores])
        numbers = [("judge_seconds", seconds)]
        for row in zip(samples, scores, rewards, strict=True):
            # TRL averages over whatever was logged on any rank, so a number that does not exist is not logged.
            numbers += [
                (name, value) for name, value in numbers_of(*row, self.categories).items() if value is not None
            ]
        numbers = [(f"{self.__name__}/{name}", value) for name, value in numbers]
        if log_metric is not None:
            for name, value in numbers:
                log_metric(name, value)
        self.log.add(numbers)
        if self.log.path is not None:
            step = getattr(trainer_state, "global_step", None)
            rows = zip(prompts, samples, rewards, scores, strict=True)
            self.log.write(self._line(step, *row) for row in rows)
        return rewards

    def pop_stats(self) -> dict[str, float]:
        """The numbers of [`metric_names`], each as its mean over everything since the last call of this."""
        return self.log.pop()

    @property
    def metric_names(self) -> list[str]:
        """Every name that `log_metric` may get; it depends on the settings only, never on the data.

        Means over completions: `score` (the reward), `pass_rate`, `unscored` (share with reward None), `unanswered`
        and `abstained` (share of the items), `mass` (of the judge's reads), `category/<c>` (share of its items
        passed). `judge_seconds` is a mean over calls.
        """
        return [
            f"{self.__name__}/{name}" for name in ("judge_seconds", *numbers_of(None, None, None, self.categories))
        ]

    def as_async(self) -> AsyncReward:
        """The same reward as a coroutine: trainers run several of these at once, each in its own thread."""
        return AsyncReward(self)

    def fails_by_group(self, hook: Any) -> bool:
        """Whether a completion without a score takes its group with it, in the trainer that gave this hook."""
        return self.on_failure == "group" or (self.on_failure == "row" and adds_up(hook))

    def __getstate__(self) -> dict[str, Any]:
        check_child(self.__name__, self.scorer.judge)
        return self.__dict__.copy()

    def _samples(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> list[Sample | None]:
        checklists = self._column(self.column, columns, len(prompts), len(completions))
        references = [None] * len(completions)
        if self.reference is not None:
            references = self._column(self.reference, columns, len(prompts), len(completions))
        rows = enumerate(zip(prompts, completions, checklists, references, strict=True), start=1)
        return [None if row[2] is None else self._sample(number, *row) for number, row in rows]

    def _column(self, name: str, columns: Mapping[str, Any], prompts: int, completions: int) -> Any:
        column = columns.get(name)
        if column is None:
            raise SampleError(
                f"{self.__name__}: the trainer passed no column {name!r} (columns it passed: "
                f"{', '.join(columns) or 'none'}); the dataset needs one, in every row, and the trainer must keep it "
                "(remove_unused_columns=False)."
            )
        if isinstance(column, str | Mapping) or not prompts == completions == len(column):
            raise SampleError(
                f"{self.__name__}: expected one prompt and one {name} per completion, got {completions} "
                f"completions, {prompts} prompts and {len(column)} of {name!r} ({type(column).__name__})."
            )
        return column

    def _sample(self, row: int, prompt: Any, completion: Any, value: Any, reference: Any) -> Sample:
        input, history = prompt_text(prompt)
        shown = input or history or ""
        checklist = Checklist.parse(value, f"{self.__name__}, row {row} of the batch (prompt {shown!r:.80})")
        if self.scale is not None:
            checklist = on_scale(checklist, self.scale)
        opened = self.thinking_opened or opens_thinking(prompt)
        text = completion_text if self.target == "last" else transcript_text
        target = text(completion, keep_thinking=self.keep_thinking, opened=opened)
        known = None if reference is None else completion_text(reference)
        return Sample(checklist, target, input, known, history)

    def _rewards(
        self,
        prompts: Sequence[Any],
        samples: Sequence[Sample | None],
        scores: Sequence[Score | None],
        pairs: bool,
        by_group: bool,
    ) -> list[float | None]:
        rewards = [None if score is None else score.primary_score for score in scores]
        failed = [score for score, reward in zip(scores, rewards, strict=True) if score is not None and reward is None]
        if failed:
            self._tell(failed, len(rewards), pairs, by_group)
        if not (pairs or by_group or self.shaping.steps):
            return rewards
        # A trainer's group is the completions of one row of the dataset; equal rows abstain together.
        rows = list(zip(prompts, samples, scores, strict=True))
        groups = [content_key([prompt, s and repr(s.checklist), s and s.reference]) for prompt, s, _ in rows]
        judged = [None if s is None or score is None else Judged(s.checklist, score, s.target) for _, s, score in rows]
        rewards = self.shaping(rewards, judged, groups)
        if not (pairs or by_group):
            return rewards
        missing = {group for reward, group in zip(rewards, groups, strict=True) if reward is None}
        return abstained(rewards, groups, failed_on_any_rank(missing) if by_group else missing)

    def _tell(self, failed: Sequence[Score], total: int, pairs: bool, by_group: bool) -> None:
        """Stop, or say once what failures do in a trainer that has no place for them."""
        if self.on_failure == "raise":
            reasons = sum((score.unanswered for score in failed), Counter())
            why = ", ".join(f"{reason} ({count} reads)" for reason, count in reasons.most_common())
            raise BackendError(f"{self.__name__}: {len(failed)} of {total} completions have no score: {why}.")
        trained_on = pairs and not self.ties_are_left_out
        if self._warned or not (trained_on or (by_group and self.on_failure == "row")):
            return
        self._warned = True
        logger.warning(
            "%s: the judge left completions without a score; %s",
            self.__name__,
            "OnlineDPOTrainer trains on their pair all the same, as if the first one had won: take "
            "checklist_rewards.rewards.online_dpo.ChecklistOnlineDPOTrainer, or on_failure='raise'."
            if trained_on
            else "as this trainer adds up several rewards and counts a missing one as 0, all completions of their "
            "prompts abstain; GRPO's multi_objective_aggregation='normalize_then_sum' would spare the others.",
        )

    def _line(
        self, step: int | None, prompt: Any, sample: Sample | None, reward: float | None, score: Score | None
    ) -> dict[str, Any]:
        return {
            "step": step,
            "prompt": described(prompt),
            "completion": None if sample is None else sample.target,
            "reward": reward,
            "score": None if score is None else score.model_dump(),
        }

    def _under_metric(self, score: Score) -> Score:
        return score if self.metric is None else score.under(self.metric)


class AsyncReward:
    """A [`ChecklistReward`] that trainers await; make it with [`ChecklistReward.as_async`].

    TRL names a `functools.partial` after the function inside it, which would give every reward the same name, so this
    is an object with an async `__call__`.
    """

    def __init__(self, reward: ChecklistReward):
        self.reward = reward
        self.__name__ = reward.__name__

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **kwargs: Any) -> list[float | None]:
        """Run the reward in a thread; see [`ChecklistReward.__call__`].

        Raises [`SampleError`] where several ranks would have to agree on groups: threads of several rewards cannot do
        so in the same order everywhere.
        """
        reward = self.reward
        if ranks() > 1 and (reward.fails_by_group(kwargs.get("log_metric")) or reward.shaping.by_group):
            raise SampleError(
                f"{self.__name__}: groups on {ranks()} ranks (on_failure='group', the shaping step 'centred', or "
                "several rewards that the trainer adds up) need the reward itself, not as_async()."
            )
        return await asyncio.to_thread(self.reward, prompts, completions, **kwargs)


def _scorer_of(given: Any, arguments: Mapping[str, Any]) -> tuple[ChecklistScorer, tuple[Option, ...] | None]:
    """The scorer, and the scale that a pipeline puts on checklists."""
    if given is None:
        return ChecklistScorer(**arguments), None
    steps = given.config.scorer.scale if isinstance(given, Pipeline) else None
    scorer = given.scorer if isinstance(given, Pipeline) else given
    if not isinstance(scorer, ChecklistScorer):
        raise SampleError(
            f"scorer must be a ChecklistScorer or a Pipeline that has one, got {scorer!r:.60}; pass the name of a "
            "model as model=."
        )
    if arguments:
        raise SampleError(f"a scorer is given, so {', '.join(arguments)} must be set on it, not here.")
    return scorer, None if steps is None else ordinal_scale(steps)


def __getattr__(name: str) -> Any:
    # `trl grpo --reward_funcs` takes an attribute of a module and has no way to pass arguments to it.
    if name == "reward":
        from checklist_rewards.rewards.configured import reward_from_environment  # which imports this module

        return reward_from_environment()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
