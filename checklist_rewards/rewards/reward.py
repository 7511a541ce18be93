"""The reward: the completions of a trainer in, one float or None per completion out.

All questions about all completions are read in one plan: identical reads are computed once, and completions of one
prompt share its prefix wherever they are in the batch. The reward of a completion is its `primary_score`, in [0, 1].

A judge failure is never a reward. A completion of which too little was answered (`min_answered`) gets None. What a
trainer makes of None is described in `failures.py`; if it sums several rewards, all completions of the prompt get
None. A row whose checklist is None gets None too, so datasets may mix prompts with and without a checklist. A
checklist that cannot be used and a missing checklist column are errors.

This module imports neither TRL nor torch. `trl.py` is its entry point for TRL's trainers.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from checklist_rewards.chat import completion_text, opens_thinking, prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import BackendError, SampleError
from checklist_rewards.rewards.call import Call, LogExtra, LogMetric, Rewards, Samples, Scores, StagedReward
from checklist_rewards.rewards.content import content_key
from checklist_rewards.rewards.failures import (
    ON_FAILURE,
    OnFailure,
    abstained,
    adds_up,
    are_pairs,
    failed_on_any_rank,
)
from checklist_rewards.rewards.log import RewardLog, completion_metrics, log_records, metrics_of
from checklist_rewards.rewards.placement import check_child, within
from checklist_rewards.rewards.scorer_of import ScoringPipeline, scorer_of
from checklist_rewards.rewards.split import By, Parts, RewardPart, split
from checklist_rewards.rewards.steps import Judged, Shaping
from checklist_rewards.rewards.trail import FAILED_GROUP, Trail
from checklist_rewards.rewards.transcript import transcript_text
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import PRIMARY_METRICS, PrimaryMetric, Score
from checklist_rewards.scores.scales import on_scale
from checklist_rewards.validation import finite, one_of, whole_number

Target = Literal["last", "transcript"]
TARGETS: tuple[str, ...] = get_args(Target)
_NOT_COLUMNS = ("prompts", "completions", "completion_ids", "log_extra", "log_metric", "trainer_state")
_TAKEN_NAMES = ("reward", "reward_std", "step", "prompt", "completion", "advantage")

logger = logging.getLogger(__name__)


class ChecklistReward(StagedReward):
    """A reward function for `GRPOTrainer`, `RLOOTrainer` and other trainers with the same reward interface.

    Args:
        scorer ([`ChecklistScorer`] or [`Pipeline`], *optional*):
            Answers the checklists. A pipeline contributes its scorer and its scale. Alternatively, pass the keyword
            arguments of a [`ChecklistScorer`] here.
        metric (`str`, *optional*):
            Metric to use as the reward: `pass`, `weighted`, `expected`, `normalized`, or `quality` if the scorer
            grades. Defaults to the scorer's `primary_metric`. Required items and `min_answered` apply to all metrics.
        name (`str`, *optional*, defaults to `"checklist_reward"`):
            Name of the reward in the trainer's logs. Two rewards of one trainer need different names.
        column (`str`, *optional*, defaults to `"checklist"`):
            Dataset column with the checklists.
        reference (`str`, *optional*):
            Dataset column with reference answers, for judge prompts that contain `{reference}` and for encoders that
            were trained with references. Rows may be None.
        target (`str`, *optional*, defaults to `"last"`):
            What is judged of a completion with several messages (tools, turns): `"last"`, the last text of the
            assistant, or `"transcript"`, all messages.
        shaping (list of mappings, *optional*):
            Steps applied to the metric, such as `{"name": "length_penalty", "free": 200, "cap": 400}`. Unless the last
            step is "clipped", rewards may leave [0, 1].
        retries (`int`, *optional*, defaults to `1`):
            How often to repeat reads that failed for a transient reason.
        deadline (`float`, *optional*):
            Seconds for all reads of a call, after the judge is loaded and awake. Requests to a server that are not
            answered by then are cancelled, and their reads are unanswered. An engine in the process finishes its chunk
            of reads first. By default, only the timeouts of the engine apply.
        on_failure (`str`, *optional*, defaults to `"row"`):
            What to do with a completion without a score. `"row"`: its reward is None; if the trainer is known to count
            None as 0, its whole group gets None. `"group"`: all completions of its prompt get None. `"raise"`:
            training stops with a [`BackendError`].
        log (`str` or `Path`, *optional*):
            JSONL file with a line per completion: step, prompt, completion, reward, [`Score`], and how shaping made
            the reward from it.
        keep_thinking (`bool`, *optional*, defaults to `False`):
            Judge `<think>` blocks too.
        thinking_opened (`bool`, *optional*, defaults to `False`):
            Set this if the policy's chat template opens the thinking block itself: a completion that was cut before
            `</think>` is then all thinking. Prompts that end in `<think>` are detected without it.
        categories (sequence of `str`, *optional*):
            Item categories whose pass rate is logged.
        **scorer_arguments:
            Arguments of [`ChecklistScorer`].

    Example:

    ```python
    >>> reward = ChecklistReward(model="pocket")
    >>> reward(prompts=["Say hello."], completions=["hello"], checklist=[["Is it in lower case?"]])  # doctest: +SKIP
    [0.98]
    ```
    """

    def __init__(
        self,
        scorer: ChecklistScorer | ScoringPipeline | None = None,
        *,
        metric: PrimaryMetric | None = None,
        name: str = "checklist_reward",
        column: str = "checklist",
        reference: str | None = None,
        target: Target = "last",
        shaping: Sequence[Mapping[str, Any] | str] | None = None,
        retries: int = 1,
        deadline: float | None = None,
        on_failure: OnFailure = "row",
        log: str | Path | None = None,
        keep_thinking: bool = False,
        thinking_opened: bool = False,
        categories: Sequence[str] = (),
        **scorer_arguments: Any,
    ):
        scorer, scale = scorer_of(scorer, scorer_arguments)
        if metric is not None:
            one_of("metric", metric, PRIMARY_METRICS)
        if metric == "quality" and "quality" not in (scorer.mode, scorer.aggregation.primary_metric):
            raise SampleError(f"metric='quality' requires a scorer with mode='quality'; its mode is {scorer.mode!r}.")
        if not isinstance(name, str) or not name or name in _TAKEN_NAMES:
            raise SampleError(f"name={name!r} is not allowed; use a string other than {', '.join(_TAKEN_NAMES)}.")
        for argument, key in (("column", column), ("reference", reference)):
            if key in _NOT_COLUMNS:
                raise SampleError(f"{argument}={key!r} is not allowed: trainers use this name for another argument.")
        for argument, value, allowed in (("target", target, TARGETS), ("on_failure", on_failure, ON_FAILURE)):
            one_of(argument, value, allowed)
        whole_number("retries", retries, at_least=0)
        if deadline is not None:
            finite("deadline", deadline, above=0)
        for argument, switch in (("keep_thinking", keep_thinking), ("thinking_opened", thinking_opened)):
            if not isinstance(switch, bool):
                raise SampleError(f"{argument}={switch!r} is not allowed; it must be True or False.")
        if isinstance(categories, str) or not isinstance(categories, Sequence):
            raise SampleError(f"categories={categories!r} is not allowed; it must be a list of strings.")
        self.scorer = scorer
        self.scale = scale
        self.metric = metric
        self.__name__ = name
        self.column = column
        self.reference = reference
        self.target: Target = target
        self.shaping = Shaping(shaping or ())
        self.retries = retries
        self.deadline = deadline
        self.on_failure: OnFailure = on_failure
        self.log = RewardLog(log)
        self.keep_thinking = keep_thinking
        self.thinking_opened = thinking_opened
        self.categories = tuple(categories)
        self.ties_are_left_out = False  # set by ChecklistOnlineDPOTrainer
        self._warned = False

    def split(
        self,
        by: By = "category",
        *,
        names: Sequence[str] | None = None,
        dataset: Iterable[Mapping[str, Any]] | None = None,
    ) -> list[RewardPart]:
        """Several reward functions, one per part of the checklists, that share one scoring; see [`split`].

        Use `multi_objective_aggregation="normalize_then_sum"` to normalize each part by itself.
        """
        return split(self, self, by, names=names, dataset=dataset)

    def judged(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        columns: Mapping[str, Any],
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
        trainer_state: Any = None,
    ) -> Call:
        """Score the completions of one call; the first step of [`rewarded`], with the arguments of [`__call__`]."""
        samples = self._samples(prompts, completions, columns)
        started = time.perf_counter()
        scores = self._scores(samples)
        seconds = time.perf_counter() - started
        pairs = are_pairs(prompts, log_extra is not None or log_metric is not None, trainer_state)
        return Call(prompts, samples, scores, seconds, pairs, log_extra, log_metric, trainer_state)

    def rewards_of(
        self, call: Call, samples: Samples, scores: Scores, parts: Parts | None = None
    ) -> tuple[Rewards, Trail]:
        """The rewards of a call and how they were made, from its samples and scores or from some of their items; the
        second step."""
        by_group = self.fails_by_group(call.log_metric)
        rewards_of = functools.partial(self._rewards, call.prompts, call.pairs, by_group)
        rewards, trail = rewards_of(samples, scores)
        return rewards, trail if parts is None else parts.added(trail, samples, scores, rewards_of)

    def record(
        self,
        call: Call,
        rewards: Sequence[float | None],
        trail: Trail,
        more: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Log the scores and rewards of a call; the third step. `more` has one mapping of further log fields per
        completion."""
        name, samples, scores = self.__name__, call.samples, call.scores
        if call.log_extra is not None:
            call.log_extra(f"{name}/detail", ["null" if s is None else s.model_dump_json() for s in scores])
        numbers = [*metrics_of(samples, scores, rewards, self.categories), *trail.metrics]
        numbers.append(("judge_seconds", call.seconds))
        metrics = [(f"{name}/{key}", value) for key, value in numbers]
        if call.log_metric is not None:
            for key, value in metrics:
                call.log_metric(key, value)
        self.log.add(metrics)
        if self.log.path is not None:
            records = log_records(call.step, call.prompts, samples, rewards, scores, trail)
            if not call.training:
                records = ({**record, "evaluation": True} for record in records)
            self.log.write(records if more is None else map(dict.__or__, records, map(dict, more)))

    def pop_stats(self) -> dict[str, float]:
        """Mean of each metric of [`metric_names`] since the last call of this method."""
        return self.log.pop()

    @property
    def metric_names(self) -> list[str]:
        """All metric names that may be passed to `log_metric`. They depend on the settings, not on the data.

        Means over completions: `score` (the reward), `pass_rate`, `unscored` (share of rewards that are None),
        `unanswered` and `abstained` (shares of the items), `mass` (of the judge's reads), `category/<c>` (pass rate of
        its items). `judge_seconds` is a mean over calls, `items_without_variance` one over the items of groups.
        """
        names = completion_metrics(None, None, None, self.categories)
        return [f"{self.__name__}/{name}" for name in ("judge_seconds", *names, *self.shaping.metric_names)]

    def exchanges(self, hook: Any) -> bool:
        """Whether a call communicates between ranks, in the trainer that passed this hook."""
        return self.fails_by_group(hook) or self.shaping.by_group

    def fails_by_group(self, hook: Any) -> bool:
        """Whether all completions of a group get None if one has no score, in the trainer that passed this hook."""
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
                f"{self.__name__}: the trainer passed no column {name!r} (columns: {', '.join(columns) or 'none'}). "
                "Add it to every row of the dataset and set remove_unused_columns=False."
            )
        if isinstance(column, str | Mapping) or not prompts == completions == len(column):
            raise SampleError(
                f"{self.__name__}: expected one prompt and one {name} per completion, got {completions} "
                f"completions, {prompts} prompts and {len(column)} of {name!r} ({type(column).__name__})."
            )
        return column

    def _sample(self, row: int, prompt: Any, completion: Any, value: Any, reference: Any) -> Sample:
        input, history = prompt_text(prompt)
        checklist = Checklist.parse(
            value, f"{self.__name__}, row {row} of the batch (prompt {input or history or ''!r:.80})"
        )
        if self.scale is not None:
            checklist = on_scale(checklist, self.scale)
        opened = self.thinking_opened or opens_thinking(prompt)
        text = completion_text if self.target == "last" else transcript_text
        target = text(completion, keep_thinking=self.keep_thinking, opened=opened)
        answer = None if reference is None else completion_text(reference)
        return Sample(checklist, target, input, answer, history)

    def _scores(self, samples: Sequence[Sample | None]) -> list[Score | None]:
        with within(self.scorer.judge, self.deadline):
            scores = self.scorer.score_batch([s for s in samples if s is not None], retries=self.retries)
        if self.metric is not None:
            scores = [score.under(self.metric) for score in scores]
        in_order = iter(scores)
        return [None if sample is None else next(in_order) for sample in samples]

    def _rewards(
        self, prompts: Sequence[Any], pairs: bool, by_group: bool, samples: Samples, scores: Scores
    ) -> tuple[Rewards, Trail]:
        rewards = [None if score is None else score.primary_score for score in scores]
        failed = [score for score, reward in zip(scores, rewards, strict=True) if score is not None and reward is None]
        if failed:
            self._report_failures(failed, len(rewards), pairs, by_group)
        if not (pairs or by_group or self.shaping.steps):
            return rewards, Trail()
        # A group is the completions of one dataset row. Equal rows count as one group.
        rows = list(zip(prompts, samples, scores, strict=True))
        groups = [content_key([prompt, s and repr(s.checklist), s and s.reference]) for prompt, s, _ in rows]
        judged = [None if s is None or score is None else Judged(s.checklist, score, s.target) for _, s, score in rows]
        metric = self.metric or self.scorer.aggregation.primary_metric
        shaped = self.shaping.stages(rewards, judged, groups)
        stages = [(metric, rewards), *((stage.name, stage.values) for stage in shaped)]
        rewards = stages[-1][1]
        if pairs or by_group:
            missing = {group for reward, group in zip(rewards, groups, strict=True) if reward is None}
            missing = failed_on_any_rank(missing) if by_group else missing
            rewards = abstained(rewards, groups, missing)
            stages += [(FAILED_GROUP, rewards)] if missing else []
        return rewards, Trail(stages, groups, [number for stage in shaped for number in stage.metrics])

    def _report_failures(self, failed: Sequence[Score], total: int, pairs: bool, by_group: bool) -> None:
        """Raise, or warn once how this trainer treats completions without a score."""
        if self.on_failure == "raise":
            reasons = sum((score.unanswered for score in failed), Counter())
            why = ", ".join(f"{reason} ({count} reads)" for reason, count in reasons.most_common())
            raise BackendError(f"{self.__name__}: {len(failed)} of {total} completions could not be scored: {why}.")
        trains_on_ties = pairs and not self.ties_are_left_out
        if self._warned or not (trains_on_ties or (by_group and self.on_failure == "row")):
            return
        self._warned = True
        logger.warning(
            "%s: some completions could not be scored. %s",
            self.__name__,
            "OnlineDPOTrainer still trains on their pairs, with the first completion as the chosen one. Use "
            "checklist_rewards.rewards.online_dpo.ChecklistOnlineDPOTrainer, or set on_failure='raise'."
            if trains_on_ties
            else "This trainer sums several rewards and counts None as 0, so all completions of their prompts get "
            "None. With GRPO, multi_objective_aggregation='normalize_then_sum' avoids this.",
        )
