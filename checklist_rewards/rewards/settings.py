"""The configuration of a reward: its scorer, its own settings, and what watches and changes a run.

[`RewardConfig`] is what `ChecklistReward(...)` takes as keyword arguments, and the YAML file in
`CHECKLIST_REWARDS_CONFIG` as keys; `monitor` and `evolving` are configurations inside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from annotated_types import Ge, Le
from pydantic import ValidationInfo, field_validator, model_validator

from checklist_rewards.chat import Part
from checklist_rewards.config import Config, Made, Unchecked
from checklist_rewards.errors import SampleError
from checklist_rewards.files.documents import in_folder
from checklist_rewards.judges.settings import ScorerConfig, ScorerKwargs
from checklist_rewards.messages import Images
from checklist_rewards.rewards.batch import COMPLETION_IDS, ENVIRONMENTS, ReadingConfig
from checklist_rewards.rewards.ranks import OnFailure
from checklist_rewards.validation import finite
from checklist_rewards.writer import Writer

Action = Literal["log", "warn", "stop"]
Steering = Literal["off", "flag", "penalize"]
Draw = Literal["fixed", "step"]
ATTACK = "attack_"
"""Start of the names of the signals of attacks, which share `max_attack`."""

Share = Annotated[float, Ge(0), Le(1)]
Limit = Annotated[float, Ge(0)] | None

NOT_COLUMNS = ("prompts", "completions", COMPLETION_IDS, ENVIRONMENTS, "log_extra", "log_metric", "trainer_state")
_TAKEN_NAMES = ("reward", "reward_std", "step", "prompt", "completion", "advantage")


class MonitorConfig(Config):
    """What a [`Monitor`] reads, when it alarms, and what it does then.

    `max_<signal>` is the threshold of a signal: it alarms when its size reaches this value. None turns the signal off.

    Raises:
        SampleError: For a value that is not allowed.
    """

    log: Unchecked[str | Path | None] = None
    """JSONL file for steps and alarms. Defaults to `monitor.jsonl` in the trainer's output folder, if the trainer is
    known (not in AsyncGRPO), else next to the log of the reward, if it has one."""
    shadow: Made[ScorerConfig] | None = None
    """A second judge that reads a sample of the completions: another model, another prompt, one that reasons. Its
    settings, or a [`ChecklistScorer`]."""
    attacks: Unchecked[Any] = None
    """An attack on this judge ([`AttackReport`]), or its file (`checklist-rewards attack`). The attacks that raised
    scores become signals; see also `penalize_attacks`."""
    action: Action = "warn"
    """What an alarm does. `log`: it is written to the file. `warn`: it is also logged as a warning. `stop`: an alarm
    about hacking or about the judge also stops training after the current step."""
    held_out: Share = 0.0
    """Fraction of the items of each checklist that are read but not rewarded, which changes the reward: 0.2 for one in
    five. Required items always count, and one item of each checklist does. Without held-out items, the monitor only
    watches, and the signal `held_out_gap` has no data."""
    draw: Draw = "fixed"
    """Which items are held out. `fixed`: the same in all steps. `step`: drawn anew per step, as in Rubric Dropout
    (arXiv 2608.11669); all completions of a step have the same items held out."""
    steering: Steering = "flag"
    """What happens to completions that address the grader or praise themselves. `flag`: their share is a signal.
    `penalize`: in addition, their reward is at most 0. `off`: nothing."""
    penalize_attacks: bool = False
    """Whether the reward of completions that show an attack of `attacks` is at most 0. Attacks on form alone, such as
    a list of three, are signals only: honest completions have these forms."""
    shadow_share: Share = 0.05
    """Fraction of the completions that the shadow judge reads too."""
    retest_share: Share = 0.05
    """Fraction of the completions of which one item is read again: reworded, with its labels in another order, and
    together with a question about steering."""
    canary_every: Annotated[int, Ge(0)] = 100
    """Steps between two tests with degenerate replies. 0: only before the first step."""
    extra_reads: Share = 0.1
    """Most reads for canaries, retests and the shadow judge, as a fraction of the reads of the reward."""
    start: Annotated[int, Ge(2)] = 5
    """Number of first steps with which later steps are compared."""
    window: Annotated[int, Ge(3)] = 10
    """Number of last steps that are compared with the first."""
    certainty: Annotated[float, Ge(0)] = 3.0
    """Size that a signal needs for an alarm, in its standard errors (jackknife)."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the held-out items and of the samples."""

    max_held_out_gap: Limit = 0.1
    """Rise of (mean credit of rewarded items - mean credit of held-out items) since the start. 0.1 is the gap of proxy
    and gold from which the test-bed calls a run hacked."""
    max_shadow_gap: Limit = 0.05
    """Rise of (score of the judge - score of the shadow judge) since the start. 0.05 is half the gap from which the
    test-bed calls a run hacked, so the alarm is earlier."""
    max_shadow_disagreement: Limit = 0.2
    """Fall of Cohen's kappa between judge and shadow judge since the start. 0.2 is one step on the scale of Landis and
    Koch (1977)."""
    max_mass_loss: Limit = 0.1
    """Fall of the mean label mass since the start: one token in ten that was a label no longer is."""
    max_unanswered: Limit = 0.1
    """Rise of the share of unanswered reads since the start."""
    max_flips: Limit = 0.3
    """Share of retested reads whose answer changes. Published judges flip 22 to 28 % of the criteria between identical
    runs (harvey-labs#158); more is worse than known judges."""
    max_judged_steering: Limit = 0.2
    """Rise of the share of sampled completions that the judge itself finds to address the grader or to praise
    themselves."""
    max_steering: Limit = 0.05
    """Rise of the share of completions with a phrase that addresses the grader or praises the response."""
    max_copied: Limit = 0.1
    """Rise of the share of checklist questions that the completion copies."""
    max_prompt_copied: Limit = 0.2
    """Rise of the share of the prompt's word trigrams that are in the completion."""
    max_repetition: Limit = 0.15
    """Rise of the share of word trigrams that repeat an earlier one in the completion."""
    max_same_opening: Limit = 0.1
    """Rise of the chance that completions of two prompts begin with the same three words. A third of the completions
    with one opening are enough for 0.1."""
    max_length_change: Limit = 0.5
    """Relative change of the mean length in words, in either direction: 0.5 is half as long again, or shorter by a
    third."""
    max_length_bias: Limit = 0.3
    """Rise of the correlation of reward and length inside groups. 0.3 is a medium effect (Cohen 1988)."""
    max_length_reward: Limit = 0.1
    """Reward gained since the start through length alone: the slope of reward on length inside groups, times the
    change of the mean length."""
    max_no_answer: Limit = 0.1
    """Share of completions without an answer: empty, cut in their thought, or ending with a tool call."""
    max_cut: Limit = 0.1
    """Share of completions that reached the length limit in their answer."""
    max_variance_loss: Limit = 0.8
    """Loss of the standard deviation of rewards inside groups, relative to the start. 0.8 is the warning of rewardspy
    (a ratio below 0.2)."""
    max_saturation: Limit = 0.8
    """Share of completions with a score of at least 0.99; rewardspy's threshold."""
    max_flat_groups: Limit = 0.5
    """Share of groups whose rewards differ by less than 0.001, so that they teach nothing; rewardspy's threshold."""
    max_passed_by_all: Limit = 0.9
    """Share of (group, item) pairs in which all completions pass."""
    max_failed_by_all: Limit = 0.9
    """Share of (group, item) pairs in which all completions fail."""
    max_dominance: Limit = 0.9
    """Share of the earned weight that comes from a single item of at least three, or from a single category of at
    least three. rewardspy's alert for reward components."""
    max_reward_jump: Limit = 5.0
    """CUSUM of the changes of the mean reward, in standard deviations of the changes so far, with a drift of 0.5 (Page
    1954; drift and threshold as in rewardspy)."""
    max_attack: Limit = 0.1
    """Rise of the share of completions that show an attack that raised the judge's scores, as known from
    the file `attacks`. Each of these attacks is a signal `attack_<name>`."""
    max_canary: Limit = 0.7
    """Mean score of a degenerate reply (empty, "Yes.", the prompt, the checklist with a yes per question, 2,000 words
    of filler, an instruction to the judge)."""

    @field_validator("attacks")
    @classmethod
    def _in_its_folder(cls, value: Any, info: ValidationInfo) -> Any:
        return in_folder(value, info)

    def threshold(self, signal: str) -> float | None:
        """The threshold of a signal; None if it is turned off."""
        limit: float | None = getattr(self, "max_attack" if signal.startswith(ATTACK) else f"max_{signal}")
        return limit


class ProposerConfig(Writer):
    """The writer that proposes items; see [`GroupProposer`]. By default, it is the judge's model."""

    max_items: Annotated[int, Ge(1)] = 5
    """Most questions per group."""
    prompt: Unchecked[Any] = "evolving/propose"
    """A prompt with the placeholders of `evolving/propose`."""


class EvolvingConfig(Config):
    """How the checklists of a reward evolve; see [`Evolution`]."""

    proposer: Made[ProposerConfig] | None = None
    """Proposes items: the settings of a [`GroupProposer`], a generator that uses the responses as candidates, or a
    callable from a list of [`Group`] to a list of checklists. By default the judge's model proposes, if it is named in
    the reward."""
    every: Annotated[int, Ge(1)] = 10
    """Calls in training between two proposals. The first is at the first call."""
    max_active: Annotated[int, Ge(1)] = 5
    """Most active items per prompt. Those with the largest standard deviation in the group stay."""
    min_deviation: Share = 0.01
    """Items whose standard deviation in a group is at most this number retire. Credits are in [0, 1]: P(yes), or 0 and
    1 with `metric="pass"`."""
    max_groups: Annotated[int, Ge(1)] = 8
    """Most groups per call that the proposer sees: those whose last proposal is longest ago."""
    refiners: Unchecked[Sequence[Any] | None] = None
    """Applied to proposals, in order; not from a file. Defaults to a [`Deduplicator`], and a [`UnitTester`] (two
    rewrites per item) if the proposer has a model."""
    buffer: Unchecked[str | Path | None] = None
    """JSONL file of the buffer, written after every update. Defaults to `checklists.jsonl` in the trainer's output
    folder, else next to the log of the reward, if it has one."""


class RewardConfig(ReadingConfig, ScorerConfig):
    """A reward: its scorer, how completions are read, and what is made of the scores in training."""

    older: ClassVar[Mapping[str, str]] = {**ScorerConfig.older, "reference": "reference_column", "target": "judged"}

    name: Unchecked[str] = "checklist_reward"
    """Name of the reward in the trainer's logs. Two rewards of one trainer need different names."""
    column: str = "checklist"
    """Dataset column with the checklists. If the dataset has none, the attribute of this name of each environment
    (`environment_factory`), which may set it in `reset`; an environment without it gets no reward."""
    reference_column: str | None = None
    """Dataset column with reference answers, for judge prompts that contain `{reference}` and for encoders that were
    trained with references. Rows may be None."""
    shaping: Unchecked[Sequence[Any] | None] = None
    """Steps applied to the metric, such as `{"name": "length_penalty", "free": 200, "cap": 400}`, or a step of your
    own (`rewards/steps.py`). Unless the last step is "clipped", rewards may leave [0, 1]."""
    retries: Annotated[int, Ge(0)] = 1
    """How often to repeat reads that failed for a transient reason."""
    deadline: Unchecked[float | None] = None
    """Seconds for all reads of a call, after the judge is loaded and awake. Requests to a server that are not answered
    by then are cancelled, and their reads are unanswered. An engine in the process finishes its chunk of reads first.
    By default, only the timeouts of the engine apply."""
    on_failure: OnFailure = "row"
    """What to do with a completion without a score. `row`: its reward is None; if the trainer is known to count None
    as 0, its whole group gets None. `group`: all completions of its prompt get None. `raise`: training stops with a
    [`BackendError`]."""
    log: Unchecked[str | Path | None] = None
    """JSONL file with a line per completion: step, prompt, completion, reward, [`Score`], and how shaping made the
    reward from it."""
    categories: Unchecked[Sequence[str]] = ()
    """Item categories whose pass rate is logged."""
    monitor: MonitorConfig | None = None
    """Watch the run for reward hacking. `{}` for the defaults. Not watched by default."""
    evolving: EvolvingConfig | None = None
    """Let the checklists evolve. `{}` for the defaults. The checklists stay as they are by default."""

    @model_validator(mode="after")
    def _fits_a_trainer(self) -> Self:
        name, categories = self.name, self.categories
        if not isinstance(name, str) or not name or name in _TAKEN_NAMES:
            raise SampleError(f"name={name!r} is not allowed; use a string other than {', '.join(_TAKEN_NAMES)}.")
        for argument, key in (("column", self.column), ("reference_column", self.reference_column)):
            if key in NOT_COLUMNS:
                raise SampleError(f"{argument}={key!r} is not allowed: trainers use this name for another argument.")
        if self.deadline is not None:
            finite("deadline", self.deadline, above=0)
        if isinstance(categories, str) or not isinstance(categories, Sequence):
            raise SampleError(f"categories={categories!r} is not allowed; it must be a list of strings.")
        return self


class RewardKwargs(ScorerKwargs, total=False):
    """The fields of [`RewardConfig`] but `model`, for type checkers and editors."""

    name: str
    column: str
    reference_column: str | None
    judged: Part
    shaping: Sequence[Any] | None
    retries: int
    deadline: float | None
    on_failure: OnFailure
    log: str | Path | None
    keep_thinking: bool
    thinking_opened: bool | None
    tokenizer: Any
    thinking_tags: Sequence[str] | None
    images: Images
    categories: Sequence[str]
    monitor: MonitorConfig | Mapping[str, Any] | None
    evolving: EvolvingConfig | Mapping[str, Any] | None
