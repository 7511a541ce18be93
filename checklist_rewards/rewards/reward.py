"""The reward: the completions of a trainer in, one float or None per completion out.

All questions about all completions are read in one plan: identical reads are computed once, and completions of one
prompt share its prefix wherever they are in the batch. The reward of a completion is its `primary_score`: in
[0, 1], or up to 1 with the metric `net`.

A judge failure is never a reward. A completion of which too little was answered (`min_answered`) gets None. What a
trainer makes of None is described in `ranks.py`; if it sums several rewards, all completions of the prompt get
None. A row whose checklist is None gets None too, so datasets may mix prompts with and without a checklist. A
checklist that cannot be used and a missing checklist column are errors.

A [`Call`] passes through stages, each of which returns it with more in it: read the completions, judge them, let the
checklists evolve, hold items out, shape, penalize, read some items again, log, watch. Those between *read* and *log*
run while the judge is awake, under one deadline. A reward has the stages of evolving checklists
(`evolving/evolve.py`) and of the monitor (`monitor/monitor.py`) if it has their settings. An error of the judge
reaches the caller; an error inside the monitor or the evolution changes no reward.

This module imports neither TRL nor torch. `trl.py` is its entry point for TRL's trainers.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Unpack

from checklist_rewards.backends import Engine
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.chat import completion_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.config import refuse_any
from checklist_rewards.errors import BackendError, ChecklistRewardsError, SampleError
from checklist_rewards.images import shown
from checklist_rewards.keys import content_key
from checklist_rewards.messages import without_images
from checklist_rewards.rewards.batch import (
    COMPLETION_IDS,
    ENVIRONMENT,
    ENVIRONMENTS,
    FAILED_GROUP,
    NOT_ANSWERED,
    Call,
    LogExtra,
    LogMetric,
    Readers,
    RewardLog,
    Scores,
    groups_of,
    hidden_trainer,
    log_records,
    log_to_trainer,
    metrics_of,
    one_line,
    rewards_of,
    shares_metrics,
)
from checklist_rewards.rewards.placement import (
    bind_reference,
    check_child,
    is_collective,
    is_placed,
    within,
)
from checklist_rewards.rewards.ranks import (
    OnFailure,
    abstained,
    failed_on_any_rank,
    ranks,
)
from checklist_rewards.rewards.settings import NOT_COLUMNS, RewardConfig, RewardKwargs
from checklist_rewards.rewards.split import AsyncReward, By, RewardPart, split
from checklist_rewards.rewards.steps import Shaping
from checklist_rewards.scorer import ChecklistScorer, Sample, ScoringPipeline, scorer_of
from checklist_rewards.scores import PrimaryMetric, Score

if TYPE_CHECKING:
    from checklist_rewards.evolving.evolve import Evolution
    from checklist_rewards.monitor.monitor import Monitor

_MANY = 0.1
"""Share of the completions of a call above which a state is reported."""

logger = logging.getLogger(__name__)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_PROCESS = _now()
"""When this process began."""
_STARTED = "checklist_rewards_started"
"""The attribute of a trainer's state with the time at which its run began; not a field, so it is not saved."""


@contextmanager
def _setting(name: str) -> Iterator[None]:
    """Errors in it begin with the name of a setting."""
    try:
        yield
    except ChecklistRewardsError as error:
        raise type(error)(f"{name}: {error}") from error


class ChecklistReward:
    """A reward function for `GRPOTrainer`, `RLOOTrainer` and other trainers with the same reward interface.

    Args:
        scorer ([`ChecklistScorer`], [`Pipeline`] or [`RewardConfig`], *optional*): Answers the checklists. Of a
            pipeline, its scorer is used. Alternatively, pass the settings of a scorer here. Or all settings of the
            reward as one value.
        **settings: The fields of [`RewardConfig`]: those of a [`ScorerConfig`], and those of the reward, such as
            `name`, `column`, `shaping`, `monitor` and `evolving`. With a scorer, `metric` is the metric to use as the
            reward, which defaults to that of the scorer.

    Example:

    ```python
    >>> reward = ChecklistReward(model="pocket")
    >>> reward(prompts=["Say hello."], completions=["hello"], checklist=[["Is it in lower case?"]])  # doctest: +SKIP
    [0.98]
    ```
    """

    def __init__(
        self,
        scorer: ChecklistScorer | ScoringPipeline | RewardConfig | None = None,
        *,
        model: str | Engine = UNNAMED,
        **settings: Unpack[RewardKwargs],
    ):
        if isinstance(scorer, RewardConfig):
            refuse_any(settings, "together with a RewardConfig; set it there")
            config, scorer = scorer, None
        else:
            given: dict[str, Any] = {**settings}
            config = RewardConfig(model=model, **given)
        scorer = scorer_of(scorer, config, apart=("metric",))
        if config.metric == "quality" and "quality" not in (scorer.mode, scorer.aggregation.primary_metric):
            raise SampleError(f"metric='quality' requires a scorer with mode='quality'; its mode is {scorer.mode!r}.")
        self.config = config
        self.scorer = scorer
        self.metric = config.metric
        self.__name__ = config.name
        self.column = config.column
        self.reference_column = config.reference_column
        self.readers = Readers(config)
        self.shaping = Shaping(config.shaping or ())
        self.retries = config.retries
        self.deadline = config.deadline
        self.on_failure: OnFailure = config.on_failure
        self.log = RewardLog(config.log)
        self.categories = tuple(config.categories)
        self.ties_are_left_out = False  # set by ChecklistOnlineDPOTrainer
        self._calls = 0
        self._started = _PROCESS
        self._restored: Mapping[str, Any] = {}
        """States that were restored by hand, until a run begins."""
        self.last: Call | None = None
        """The last call, with samples and scores."""
        self._judges = [scorer.judge]  # and that of the shadow, if the monitor has one
        self._warned_of_wrapper = False
        self._warned_of: set[str] = set()
        self.evolving: Evolution | None = None
        """The stage in which checklists evolve, with its buffer and its failures."""
        self.monitor: Monitor | None = None
        """The stages of the monitor, with its alarms."""
        if config.evolving is not None:
            from checklist_rewards.evolving.evolve import Evolution  # loads generators and refiners

            with _setting("evolving"):
                self.evolving = Evolution(self.scorer, self.log, config)
        if config.monitor is not None:
            from checklist_rewards.monitor.monitor import Monitor  # loads the signals and the bank of attacks

            with _setting("monitor"):
                self.monitor = Monitor(self.__name__, self.scorer, self.primary_metric, self.log, config.monitor)
            if self.monitor.shadow is not None:
                self._judges.append(self.monitor.shadow.judge)
        self._placed = any(map(is_placed, self._judges))

    @property
    def primary_metric(self) -> PrimaryMetric:
        """The metric that is the reward."""
        return self.metric or self.scorer.aggregation.primary_metric

    @property
    def _stateful(self) -> list[Monitor | Evolution]:
        """The stages whose state a trainer saves."""
        return [stage for stage in (self.monitor, self.evolving) if stage is not None]

    def validate(self) -> None:
        """Check the judges and the models that propose items, without loading them. Raises a
        [`ChecklistRewardsError`]."""
        for part in (self.scorer, *self._stateful):
            part.validate()

    def __call__(
        self,
        /,
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
            prompts, completions (lists of `str`, or of lists of messages): One prompt per completion.
            checklist (list, *optional*): One per completion: anything that [`Checklist.parse`] accepts, or None.
            completion_ids (list of lists of `int`, *optional*): The completions as the policy wrote them. With the
                trainer's tokenizer they show which part is the answer, also where decoding has dropped the markers of
                a thought.
            trainer_state (*optional*): Provides the step for log lines.
            log_extra (callable, *optional*): Called with the column `<name>/items`, a line of text for each
                completion: its answers by item.
            log_metric (callable, *optional*): Called with the metrics of [`pop_stats`].
            **kwargs: The other columns of the dataset, including the checklists if `column` names one of them.

        Returns:
            `list[float | None]`: One per completion, in [0, 1] unless `shaping` changes the range.

        Raises:
            SampleError: If the checklist column is missing, or if a prompt or completion is not text.
            ChecklistError: If a checklist cannot be used; names the row and item. Nothing has been sent to the judge.
            BackendError: If a completion has no score and `on_failure="raise"`.
        """
        columns = {"checklist": checklist, COMPLETION_IDS: completion_ids, **kwargs}
        return self.run(Call.of(prompts, completions, log_extra, log_metric, trainer_state, **columns)).rewards

    def run(self, call: Call) -> Call:
        """The call after all stages. All ranks pass the same stages, so they communicate in the same order."""
        call = self.read(call)
        started = time.perf_counter()
        stages: list[Callable[[Call], Call]] = [self.shape]
        if self.monitor is not None:
            stages = [self.monitor.hold_out, self.shape, self.monitor.penalize, self.monitor.read_more]
        if self.evolving is not None:
            stages = [self.evolving, *stages]
        with ExitStack() as awake:
            if self._placed or self.deadline is not None:
                awake.enter_context(within(self._judges if self._asks(call) else (), self.deadline))
            call = replace(self.judge(call), seconds=time.perf_counter() - started)
            for stage in stages:
                call = stage(call)
        self.last = replace(call, log_extra=None, log_metric=None, trainer=None)  # which holds its models
        self.record(call)
        return call if self.monitor is None else self.monitor(call)

    def read(self, call: Call) -> Call:
        """The call with its samples: checklists as they are now, and the answers in the completions."""
        trainer = call.trainer
        if trainer is None and not self._warned_of_wrapper and (hidden := hidden_trainer()) is not None:
            self._warned_of_wrapper = True
            logger.warning(
                "%s: a function between %s and this reward does not pass on what the trainer passes, so failures may "
                "count as 0, thoughts may be judged, and nothing is logged; give the reward all its keyword arguments "
                "(**kwargs).",
                self.__name__,
                hidden,
            )
        if list(getattr(trainer, "reward_func_names", ())).count(self.__name__) > 1:
            raise SampleError(
                f"two rewards of this trainer are named {self.__name__!r}, so their metrics would be mixed; give each "
                "a name of its own with name=..."
            )
        for other in rewards_of(trainer):
            log = getattr(other, "log", None)
            if other is not self and isinstance(log, RewardLog) and log.path is not None and log.path == self.log.path:
                raise SampleError(
                    f"the rewards {self.__name__!r} and {other.__name__!r} of this trainer have one log, {log.path}, "
                    "so their lines would be mixed; give each a file of its own with log=..."
                )
        for judge in self._judges if self._placed else ():
            bind_reference(judge, trainer)
        checklists = self.values_of(self.column, call)
        call = replace(call, columns={**call.columns, self.column: checklists})
        if self.config.images == "show":
            call = call.with_images(self.__name__, [n for n, value in enumerate(checklists) if value is not None])
        if call.training and hasattr(trainer, "callback_handler") and hasattr(call.trainer_state, "__dict__"):
            self._in_run(call.trainer_state)
        if self.evolving is not None:
            call = self.evolving.current(call)
        samples = self._samples(call)
        groups = groups_of(call, self._calls)
        self._calls += 1
        return replace(call, samples=samples, groups=groups, started=self._started)

    def _in_run(self, state: Any) -> None:
        """Reset the monitor and the checklists at the first call of a run. Every `train()` has a trainer state of its
        own, which marks the run. Earlier calls by hand do not belong to it. States that were passed to [`restore`] are
        used like those of a checkpoint."""
        started = vars(state).setdefault(_STARTED, _now())  # the same for all rewards of the trainer
        if started != self._started:
            saved = getattr(state, "stateful_callbacks", None)
            for stage in self._stateful:
                stage.begin()
                if saved is not None and stage.key in self._restored:
                    saved.setdefault(stage.key, self._restored[stage.key])
            self._started, self._restored = started, {}

    def judge(self, call: Call) -> Call:
        """The call with its scores."""
        given = [sample for sample in call.samples if sample is not None]
        scores = self.scorer.score_prepared(given, retries=self.retries)
        if self.metric is not None:
            scores = [score.under(self.metric) for score in scores]
        in_order = iter(scores)
        return replace(call, scores=[None if sample is None else next(in_order) for sample in call.samples])

    def shape(self, call: Call) -> Call:
        """The call with its rewards, from the items that count: the metric, after the shaping steps and the rule for
        groups with a failure; the same for each part of the checklists."""
        pairs, by_group, counting = call.pairs, self.fails_by_group(call), call.counting()
        made = self._rewarded(counting, pairs, by_group)
        for name, part in () if call.split is None else call.split(counting):
            made = made.with_part(name, self._rewarded(part, pairs, by_group))
        return replace(made, samples=call.samples, scores=call.scores)

    def record(self, call: Call) -> None:
        """Log the scores and rewards of a call."""
        name = self.__name__
        if call.log_extra is not None:
            call.log_extra(f"{name}/items", [one_line(score) for score in call.scores])
        rows = zip(call.samples, call.scores, call.rewards, strict=True)
        numbers = [*metrics_of(rows, self.categories), *call.metrics, ("judge_seconds", call.seconds)]
        metrics = [(f"{name}/{key}", value) for key, value in numbers]
        log_to_trainer(call.log_metric, metrics)
        self.log.add(metrics)
        self._report_states(call.scores)
        if self.log.path is not None:
            self.log.write(log_records(call))

    def as_async(self) -> AsyncReward:
        """The same reward as a coroutine. Trainers await several of them concurrently, each in a thread. With more
        than one rank, a reward that exchanges completions between ranks is refused."""
        return AsyncReward(self)

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
        if self.evolving is not None:
            raise SampleError("split() requires fixed checklists; omit evolving=...")
        return split(self, by, names=names, dataset=dataset)

    @property
    def callback(self) -> Any:
        """The trainer callback of the monitor: it stops training after an alarm with the action `stop`, and reports at
        its end which signals could not be evaluated. None without a monitor.

        TRL's trainers get it at the first call; pass it to trainers of your own: `callbacks=[...]`.
        """
        return None if self.monitor is None else self.monitor.callback

    @property
    def state(self) -> dict[str, Any]:
        """The states of the monitor and of the checklists, as JSON-compatible values, by the names under which the
        trainer saves them in `trainer_state.json`."""
        return {stage.key: stage.state for stage in self._stateful}

    def restore(self, states: Mapping[str, Any]) -> None:
        """Continue from states, such as the `stateful_callbacks` of `trainer_state.json`. Other names are ignored."""
        self._restored = dict(states)
        for stage in self._stateful:
            if stage.key in states:
                stage.restore(states[stage.key])

    def pop_stats(self) -> dict[str, float]:
        """Mean of each metric that `log_metric` gets, since the last call of this method.

        Means over completions: `<name>/score` (the reward), `pass_rate`, `unscored` (share of rewards that are None),
        `unanswered` and `abstained` (shares of the items), `mass` (of the judge's reads), `category/<c>` (pass rate of
        its items), and the shares of completions by state: `empty`, `cut_in_thought` and `unfinished` have no answer,
        `cut` reached the length limit in its answer. `judge_seconds` is a mean over calls, `items_without_variance`
        one over the items of groups. The monitor adds `<name>/monitor/...`, evolving checklists `<name>/evolving/...`,
        and the parts of a split reward `<name>/<part>/...`.
        """
        return self.log.pop()

    def exchanges(self, call: Call) -> bool:
        """Whether a call communicates between ranks."""
        if self._stateful:
            return True
        if ranks() > 1 and call.trainer is not None:
            bind_reference(self.scorer.judge, call.trainer)
        exchanges = self.fails_by_group(call) or self.shaping.by_group or shares_metrics(call.log_metric)
        return exchanges or is_collective(self.scorer.judge)

    def fails_by_group(self, call: Call) -> bool:
        """Whether all completions of a group get None if one has no score: with `on_failure="row"` if the trainer
        counts None as 0, because it sums several rewards (also those with weight 0), or because it is one without
        hooks for rewards (SDPO, OnlineDPO)."""
        if self.on_failure != "row":
            return self.on_failure == "group"
        trainer = call.trainer
        several = len(getattr(trainer, "reward_funcs", None) or ()) > 1
        sums = several and getattr(trainer, "multi_objective_aggregation", None) != "normalize_then_sum"
        without_hooks = trainer is not None and call.log_metric is None
        return sums or without_hooks

    def __getstate__(self) -> dict[str, Any]:
        check_child(self.__name__, self.scorer.judge)
        return {**self.__dict__, "last": None, "_started": _PROCESS}

    def _samples(self, call: Call) -> list[Sample | None]:
        checklists = call.columns[self.column]
        references = None if self.reference_column is None else self.values_of(self.reference_column, call)
        judged = [place for place, checklist in enumerate(checklists) if checklist is not None]
        ids = call.columns.get(COMPLETION_IDS)
        reader = self.readers.of(call.trainer)
        prompts = call.prompts if self.config.images == "show" else list(map(without_images, call.prompts))
        inputs: list[tuple[str | None, str | None]] = []
        read: dict[str, tuple[str | None, str | None]] = {}  # the completions of a prompt share its texts
        for place in judged:
            if (key := repr(prompts[place])) not in read:
                try:
                    read[key] = reader.prompt_text(prompts[place])
                except SampleError as error:
                    raise SampleError(f"{self.__name__}, row {place + 1} of the batch: {error}") from None
            inputs.append(read[key])
        targets = self.readers.read(
            [call.completions[place] for place in judged],
            [prompts[place] for place in judged],
            None if ids is None else [ids[place] for place in judged],
            call.trainer,
        )
        samples = []
        for place, (input, history), target in zip(judged, inputs, targets, strict=True):
            where = f"{self.__name__}, row {place + 1} of the batch (prompt {shown(input or history or '')!r:.80})"
            checklist = Checklist.parse(checklists[place], where)
            answer = None if references is None else references[place]
            if answer is not None and not isinstance(answer, str):
                try:
                    answer = completion_text(answer)
                except SampleError as error:
                    raise SampleError(
                        f"{where}: {self.reference_column!r} must be a string, a list of chat messages or None; got "
                        f"{answer!r:.60}."
                    ) from error
            images = call.images[place] if call.images else ()
            samples.append(Sample.of(checklist, target, input, answer, history, images))
        prepared = dict(zip(judged, self.scorer.prepare(samples), strict=True))
        return [prepared.get(place) for place in range(len(call.completions))]

    def values_of(self, name: str, call: Call) -> Any:
        """One value per completion: of a column, or of an attribute of the environments. Raises [`SampleError`]."""
        columns, prompts, completions = call.columns, len(call.prompts), len(call.completions)
        column, environments = columns.get(name), columns.get(ENVIRONMENTS) or ()
        known = [environment for environment in environments if hasattr(environment, name)]
        if column is None and (known or (environments and ENVIRONMENT in columns)):
            column = [getattr(environment, name, None) for environment in environments]
            if not known and name not in self._warned_of:  # a call may have a single one of several environments
                self._warned_of.add(name)
                kinds = ", ".join(sorted({type(environment).__name__ for environment in environments}))
                what = "get no reward" if name == self.column else "are judged without it"
                logger.warning("%s: environments without the attribute %r %s: %s.", self.__name__, name, what, kinds)
        if column is None:
            advice = "Add it to every row of the dataset and set remove_unused_columns=False"
            advice += f", or set it as an attribute {name!r} of the environments" if environments else ""
            if name in ("prompt", "completion"):
                advice = "TRL keeps dataset columns of this name from rewards; rename it"
            raise SampleError(
                f"{self.__name__}: the trainer passed no column {name!r} "
                f"(columns: {', '.join(c for c in columns if c not in NOT_COLUMNS) or 'none'}). {advice}."
            )
        if isinstance(column, str | Mapping) or not prompts == completions == len(column):
            raise SampleError(
                f"{self.__name__}: expected one prompt and one {name} per completion, got {completions} "
                f"completions, {prompts} prompts and {len(column)} of {name!r} ({type(column).__name__})."
            )
        return column

    def _asks(self, call: Call) -> bool:
        """Whether the judge may be asked anything in this call."""
        if self._stateful or is_collective(self.scorer.judge):
            return True
        return any(self.scorer.asks(sample.checklist) for sample in call.samples if sample is not None)

    def _rewarded(self, call: Call, pairs: bool, by_group: bool) -> Call:
        rewards = [None if score is None else score.primary_score for score in call.scores]
        failed = [
            score
            for score, reward in zip(call.scores, rewards, strict=True)
            if score is not None and reward is None and not score.no_answer
        ]
        if failed:
            self._report_failures(failed, len(rewards), pairs, by_group)
        if not (pairs or by_group or self.shaping.steps):
            return replace(call, rewards=rewards)
        groups = call.groups or self._by_prompt(call)
        call = self.shaping(replace(call, groups=groups).staged(self.primary_metric, rewards))
        if pairs or by_group:
            missing = {group for reward, group in zip(call.rewards, groups, strict=True) if reward is None}
            missing = failed_on_any_rank(missing) if by_group else missing
            if missing:
                call = call.staged(FAILED_GROUP, abstained(call.rewards, groups, missing))
        return call

    def _by_prompt(self, call: Call) -> list[str]:
        """The groups where the trainer's order is not known: the completions of equal dataset rows."""
        if call.columns.get(ENVIRONMENTS) is not None:
            raise SampleError(
                f"{self.__name__}: the groups of the completions are not known, because environments may change their "
                "prompts and the trainer does not show its num_generations; use GRPOTrainer, or omit shaping steps "
                "across the group and on_failure='group'."
            )
        checklists = {id(sample.checklist): sample.checklist for sample in call.samples if sample is not None}
        written = {number: repr(checklist) for number, checklist in checklists.items()}
        rows = zip(call.identities, call.samples, strict=True)
        return [content_key([prompt, s and written[id(s.checklist)], s and s.reference]) for prompt, s in rows]

    def _report_states(self, scores: Scores) -> None:
        """Warn once for every state without a whole answer that many completions of a call have."""
        states = Counter([score.state for score in scores if score is not None])
        for state, what in NOT_ANSWERED.items():
            share = states[state] / max(1, states.total())
            if share > _MANY and state not in self._warned_of:
                self._warned_of.add(state)
                logger.warning("%s: %.0f%% of the completions of this call %s", self.__name__, 100 * share, what)

    def _report_failures(self, failed: Sequence[Score], total: int, pairs: bool, by_group: bool) -> None:
        """Raise, or warn once for every reason, and of how the trainer treats completions without a score."""
        # Where the judge abstained on all items, no read failed.
        reasons = sum((score.unanswered or Counter({"no value": score.total}) for score in failed), Counter[str]())
        why = ", ".join(f"{reason} ({count} reads)" for reason, count in reasons.most_common())
        said = f"{self.__name__}: {len(failed)} of {total} completions could not be scored: {why}."
        if self.on_failure == "raise":
            raise BackendError(said)
        if reasons.keys() <= self._warned_of:
            return
        self._warned_of |= reasons.keys()
        if pairs and not self.ties_are_left_out:
            said += (
                " OnlineDPOTrainer still trains on their pairs, with the first completion as the chosen one. Use "
                "checklist_rewards.rewards.online_dpo.ChecklistOnlineDPOTrainer, or set on_failure='raise'."
            )
        elif by_group and self.on_failure == "row":
            said += (
                " This trainer counts None as 0 in its sum of rewards, so all completions of their prompts get None. "
                "With GRPO, multi_objective_aggregation='normalize_then_sum' avoids this."
            )
        logger.warning("%s Further failures are counted in the metric 'unscored'.", said)
