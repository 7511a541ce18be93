"""One call of a trainer: the value that passes through the stages of a reward, how its completions are read, its log.

A [`Call`] is one call of a reward, from what the trainer passed to the rewards and how they were made. Each stage of a
reward returns a call with more in it.

Only `GRPOTrainer` and `RLOOTrainer` pass `log_metric` and `log_extra` to a reward. For other trainers, a [`RewardLog`]
keeps the same metrics as running means, and optionally writes each completion to a JSONL file.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import multiprocessing
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, Self, TypeVar

from pydantic import field_validator, model_validator

from checklist_rewards.chat import CompletionReader, Part, Target
from checklist_rewards.checklists import Checklist
from checklist_rewards.config import Config, Unchecked
from checklist_rewards.errors import SampleError
from checklist_rewards.images import Image, has_images, image_of, once_per_content, shown
from checklist_rewards.keys import content_key, described, image_key, prompt_identity
from checklist_rewards.messages import Images, has_its_images, images_of, with_images
from checklist_rewards.rewards.ranks import gathered, rank, ranks
from checklist_rewards.rows import IMAGE_COLUMNS, image_column, images_of_row
from checklist_rewards.scorer import Sample
from checklist_rewards.scores import NO_ANSWER_STATES, PrimaryMetric, Score, TargetState, ratio, score_checklist
from checklist_rewards.validation import import_extra

logger = logging.getLogger(__name__)

UNCALIBRATED = "before calibration"
"""Name of the score under the judge's own probabilities."""
FAILED_GROUP = "failed group"
"""Name of the stage in which a completion got None because another one of its group has no score."""
_DIGITS = 16


def _uncalibrated(checklist: Checklist, score: Score) -> float | None:
    verdicts = [
        replace(line.verdict(), probabilities=line.uncalibrated or line.probabilities, uncalibrated=None)
        for line in score.items
    ]
    return score_checklist(checklist, verdicts, score.aggregation, quality=score.quality).primary_score


def only(sample: Sample, score: Score, items: Sequence[str], metric: PrimaryMetric) -> tuple[Sample, Score]:
    """A sample and its score with some of its items: the ids of `items`, of which one has a weight. `metric` is that
    of the reward."""
    kept = tuple(item for item in sample.checklist.items if item.id in items)
    lines = [line for line in score.items if line.id in items]
    rest = Score.of(lines, replace(score.aggregation, primary_metric=metric), score.quality, score.state)
    return replace(sample, checklist=sample.checklist.model_copy(update={"items": kept})), rest


LogExtra = Callable[[str, list[str]], None]
LogMetric = Callable[[str, float], None]
COMPLETION_IDS = "completion_ids"
"""Name under which the token ids of the completions stand among the columns of a call."""
ENVIRONMENTS = "environments"
"""Name under which a trainer passes the environments of the completions."""
ENVIRONMENT = "environment"
"""Column in which rows name one of several environments."""
ROLLOUT_WORKER = "grpo-rollout-worker-child"
"""Name of the process in which `AsyncGRPOTrainer` computes rewards."""
Samples = Sequence[Sample | None]
"""One per completion; None for a row without a checklist."""
Scores = Sequence[Score | None]
Rewards = list[float | None]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a reward. Sequences have one value per completion."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The other columns of the dataset, and the token ids of the completions."""
    log_extra: LogExtra | None = None
    log_metric: LogMetric | None = None
    trainer_state: Any = None
    trainer: Any = None
    """The trainer that called the reward; None if it is not known. See [`trainer_of`]."""
    split: Callable[[Call], Iterable[tuple[str, Call]]] | None = None
    """Gives name and call of each part of the checklists, if the reward is split."""
    rows: Sequence[Any] | None = None
    """The prompts and their own checklists, if these evolve; see `evolving/evolve.py`."""
    images: Sequence[Sequence[Image]] = ()
    """The images of each prompt, which its messages contain. Empty if the call has no images, or ignores them."""
    samples: Samples = ()
    """None for a row without a checklist."""
    scores: Scores = ()
    seconds: float = 0.0
    """Time that the judge took."""
    groups: Sequence[str] = ()
    """One name per completion, equal for the completions that the trainer compares with each other, on all ranks: see
    [`groups_of`]. Empty if the trainer is not known and no group was needed."""
    held_out: Sequence[Sequence[str]] = ()
    """Ids of the items that are read but not rewarded. Empty without a monitor."""
    counted: tuple[Samples, Scores] | None = None
    """Samples and scores without the held-out items. None if all items count."""
    rewards: Rewards = field(default_factory=list)
    stages: Sequence[tuple[str, Rewards]] = ()
    """Name and values of the stages of the rewards, from the score on. Empty if the reward is the score."""
    metrics: Sequence[tuple[str, float]] = ()
    """Metrics of the shaping steps and of the parts, as pairs of name and value."""
    parts: Mapping[str, Rewards] = field(default_factory=dict)
    """The rewards of each part of the checklists, if the reward is split."""
    extra: Any = None
    """What the monitor read in addition; None if it read nothing."""
    log_fields: Sequence[Mapping[str, Any]] = ()
    """Further fields of the log lines, if there are any."""
    started: str = ""
    """When the run was started, in UTC; the same in all calls of the run."""
    _described: list[tuple[Any, list[Any]]] = field(default_factory=list, repr=False, compare=False)
    """[`described`], once it was needed; the same list in every stage."""

    @classmethod
    def of(
        cls,
        /,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        log_extra: LogExtra | None = None,
        log_metric: LogMetric | None = None,
        trainer_state: Any = None,
        **columns: Any,
    ) -> Call:
        """The call with the arguments that a trainer passes; see [`ChecklistReward.__call__`]."""
        given = {name: column for name, column in columns.items() if column is not None}
        trainer = trainer_of(log_metric, trainer_state)
        return cls(prompts, completions, given, log_extra, log_metric, trainer_state, trainer)

    @property
    def step(self) -> int | None:
        """The trainer's step; None if it passes no state."""
        return getattr(self.trainer_state, "global_step", None)

    @property
    def training(self) -> bool:
        """Whether the call belongs to training: the trainer's model is in training mode, or the trainer is not
        known."""
        return getattr(getattr(self.trainer, "model", None), "training", True) is not False

    @property
    def pairs(self) -> bool:
        """Whether `OnlineDPOTrainer` made this call: every prompt twice, `[A, B, A, B]` on each rank."""
        return hasattr(self.trainer, "_calculate_rewards_from_functions")

    def file(self, own: Path | None, name: str, reward: str, stage: str) -> Path | None:
        """Where a stage of a reward writes its file: in the trainer's output folder, else next to the log of the
        reward. If several rewards of a trainer have this stage, all but the first have their names in that of the
        file."""
        folder = getattr(getattr(self.trainer, "args", None), "output_dir", None)
        if folder is not None:
            names = [one.__name__ for one in rewards_of(self.trainer) if getattr(one, stage, None) is not None]
            path, own_name = Path(folder) / name, re.sub(r"[^\w-]", "_", reward)
            shared = bool(names) and reward != names[0]
            return path.with_suffix(f".{own_name}{path.suffix}") if shared else path
        return None if own is None else own.with_name(f"{own.stem}.{name}")

    @property
    def saved(self) -> Any:
        """The states that the trainer saves with its checkpoints, by name: None if it passes no state."""
        return getattr(self.trainer_state, "stateful_callbacks", None)

    @property
    def described(self) -> Sequence[tuple[Any, Sequence[Any]]]:
        """Each prompt and its images as JSON-compatible values, which have the same keys; each content is hashed once.
        Images that the judge sees stay as they are, and so does an object that has no key."""

        def describe(value: Any) -> Any:
            try:
                return value if isinstance(value, Image) else described(value, paths=False)
            except SampleError:  # of an image that cannot be decoded; `content_key` raises it where a key is needed
                return value

        if not self._described:
            once = partial(described, describe=once_per_content(describe))
            rows = [(once(prompt), list(map(once, self.images_at(n)))) for n, prompt in enumerate(self.prompts)]
            self._described.extend(rows)
        return self._described

    @property
    def identities(self) -> list[Any]:
        """What each prompt is compared by; see [`prompt_identity`]."""
        return [prompt_identity(prompt, images) for prompt, images in self.described]

    @property
    def checklist_ids(self) -> list[str | None]:
        """The id of each checklist, which is a hash; computed once for the completions that share one."""
        checklists = {id(sample.checklist): sample.checklist for sample in self.samples if sample is not None}
        ids = {place: checklist.id for place, checklist in checklists.items()}
        return [None if sample is None else ids[id(sample.checklist)] for sample in self.samples]

    def images_at(self, place: int) -> Sequence[Any]:
        """The images of a prompt. Where the judge does not see them, those of the columns, which are not read."""
        if self.images and self.images[place]:
            return self.images[place]
        columns: dict[str, Any] = {name: self.columns.get(name) for name in IMAGE_COLUMNS}
        return image_column({name: column[place] for name, column in columns.items() if self._is_column(column)})[1]

    def _is_column(self, value: Any) -> bool:
        """Whether a value has one value per prompt."""
        return isinstance(value, Sized) and not isinstance(value, str | Mapping) and len(value) == len(self.prompts)

    def with_images(self, name: str, judged: Collection[int]) -> Call:
        """The call with the images of some of its prompts, in the prompts and for each, from the parts of messages and
        the columns `image` and `images`. Each content is decoded once.

        `name` is what an error begins with, and `judged` has the places of the prompts that the judge sees.

        Raises:
            SampleError: For an image that cannot be read, or a column that does not have one value per prompt.
        """
        columns = {key: self.columns[key] for key in IMAGE_COLUMNS if key in self.columns}
        if not columns and all(isinstance(prompt, str) for prompt in self.prompts):
            return self
        for key, column in columns.items():
            if not self._is_column(column):
                got = len(column) if isinstance(column, Sized) else type(column).__name__
                raise SampleError(
                    f"{name}: expected one value of {key!r} per prompt, got {got} for {len(self.prompts)} prompts."
                )
        prompts, read = list(self.prompts), once_per_content(image_of)
        images: list[list[Image]] = [[] for _ in prompts]
        for place in judged:
            where = f"{name}, row {place + 1} of the batch"
            given = images_of_row({key: column[place] for key, column in columns.items()}, where, read=read)
            try:
                prompts[place] = with_images(prompts[place], given, read=read)
            except SampleError as error:
                raise SampleError(f"{where}: {error}") from None
            images[place] = given if isinstance(prompts[place], str) else images_of(prompts[place])
        return replace(self, prompts=prompts, images=images, _described=[]) if any(images) else self

    def counting(self) -> Call:
        """The call with the items that count."""
        if self.counted is None:
            return self
        samples, scores = self.counted
        return replace(self, samples=samples, scores=scores)

    def staged(self, name: str, rewards: Rewards, metrics: Sequence[tuple[str, float]] = ()) -> Call:
        """The call after one more stage of its rewards, as floats. A number that is not finite is unknown, so None."""
        rewards = [None if reward is None or not math.isfinite(reward) else float(reward) for reward in rewards]
        stages = [*self.stages, (name, rewards)]
        return replace(self, rewards=rewards, stages=stages, metrics=[*self.metrics, *metrics])

    def with_part(self, name: str, part: Call) -> Call:
        """The call with the rewards and metrics of a part, whose samples and scores have the items of the part."""
        rows = zip(part.samples, part.scores, part.rewards, strict=True)
        numbers = [*metrics_of([row for row in rows if row[0] is not None], ()), *part.metrics]
        metrics = [*self.metrics, *((f"{name}/{key}", value) for key, value in numbers)]
        return replace(self, parts={**self.parts, name: part.rewards}, metrics=metrics)

    def log_columns(self, place: int) -> dict[str, Any]:
        """The columns `group`, `parts` and `shaping` of the log line of one completion.

        `shaping` is a list of [name, value], from the score to the reward, and is left out if the reward is the score
        and no answer was calibrated.
        """
        columns: dict[str, Any] = {"group": self.groups[place][:_DIGITS]} if self.groups else {}
        if self.parts:
            columns["parts"] = {name: values[place] for name, values in self.parts.items()}
        sample, score = self.samples[place], self.scores[place]
        if score is None or sample is None:
            return columns
        calibrated = any(line.uncalibrated is not None for line in score.items)
        if len(self.stages) < 2 and not calibrated:
            return columns
        before: list[list[Any]] = [[UNCALIBRATED, _uncalibrated(sample.checklist, score)]] if calibrated else []
        made: list[list[Any]] = [[name, values[place]] for name, values in self.stages]
        return {**columns, "shaping": before + (made or [[score.primary_metric, score.primary_score]])}


def trainer_of(log_metric: Any, trainer_state: Any) -> Any:
    """The trainer that called the reward, or None.

    `GRPOTrainer` and `RLOOTrainer` pass a bound method of their own. `OnlineDPOTrainer` and `SDPOTrainer` pass their
    state only (TRL 1.16), which has no reference to the trainer, so it is looked for among the callers: its tokenizer
    shows where an answer begins, and its reference model may be the judge. A callback would show the trainer too, but
    users would have to add it themselves.
    """
    owner = getattr(log_metric, "__self__", None)
    if owner is not None or trainer_state is None:
        return owner
    return next((one for one in _callers() if getattr(one, "state", None) is trainer_state), None)


def hidden_trainer() -> str | None:
    """The class of a trainer of TRL among the callers that passes its hooks to rewards; None if there is none."""
    return next((type(one).__name__ for one in _callers("trl.") if hasattr(one, "_log_metric")), None)


def _callers(package: str = "") -> Iterator[Any]:
    """The objects with a tokenizer whose methods, in modules of a package, are being called, innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        # Up to Python 3.12, `f_locals` keeps all variables of a function alive until it returns.
        if frame.f_code.co_varnames[:1] == ("self",) and str(frame.f_globals.get("__name__")).startswith(package):
            owner = frame.f_locals.get("self")
            if hasattr(owner, "processing_class"):
                yield owner
        frame = frame.f_back


def rewards_of(trainer: Any) -> list[Any]:
    """The rewards of a trainer, each once: also those of coroutines and parts."""
    functions = getattr(trainer, "reward_funcs", None) or ()
    rewards = [getattr(one, "reward", one) for one in functions]  # of a coroutine
    return list({id(one): one for one in (getattr(reward, "source", reward) for reward in rewards)}.values())


def groups_of(call: Call, number: int) -> list[str]:
    """The groups of a call by the order in which its trainer passes completions; empty if that is not known.

    `GRPOTrainer`, `RLOOTrainer` and `SDPOTrainer` compare `num_generations` consecutive completions, counted over all
    ranks. `OnlineDPOTrainer` compares each completion of the first half with one of the second. `AsyncGRPOTrainer`
    passes one group per call. Prompts do not show this: an environment may give each completion a prompt of its own,
    and two rows of a dataset may have the same prompt.

    `number` is that of the call, which is the same on all ranks.
    """
    count, trainer = len(call.prompts), call.trainer
    if trainer is None:
        in_worker = multiprocessing.current_process().name == ROLLOUT_WORKER
        return [f"{number}.0"] * count if in_worker else []
    if call.pairs:
        return [f"{number}.{rank()}.{place % (count // 2)}" for place in range(count)] if count % 2 == 0 else []
    size = getattr(trainer, "num_generations", None)
    size = size if call.training else getattr(trainer, "num_generations_eval", None) or size
    if not size or count * ranks() % size:
        return []
    groups = [(rank() * count + place) // size for place in range(count)]
    if call.columns.get(ENVIRONMENTS) is None and not getattr(trainer, ENVIRONMENTS, None):
        prompts = set(zip(groups, map(content_key, call.identities), strict=True))
        if len(prompts) > len(set(groups)):  # a trainer of another framework, with an order of its own
            return []
    return [f"{number}.{group}" for group in groups]


def shares_metrics(hook: Any) -> bool:
    """Whether ranks must share what they log, in the trainer that passed this hook: up to TRL 1.13, ranks wait forever
    for one that has not logged a name."""
    numbers = re.match(r"(\d+)\.(\d+)", str(getattr(sys.modules.get("trl"), "__version__", "")))
    return hook is not None and ranks() > 1 and numbers is not None and tuple(map(int, numbers.groups())) < (1, 14)


def log_to_trainer(hook: Callable[[str, float], None] | None, metrics: Sequence[tuple[str, float]]) -> None:
    """Log metrics with the hook of a trainer, if it passed one. Where ranks must share them, each logs the mean over
    the ranks that have a value, and all ranks must call this equally often."""
    if hook is None:
        return
    if shares_metrics(hook):
        values: dict[str, list[float]] = {}
        for name, value in (pair for theirs in gathered(list(metrics)) for pair in theirs):
            values.setdefault(name, []).append(value)
        metrics = [(name, fmean(found)) for name, found in values.items()]
    for name, value in metrics:
        hook(name, value)


class ReadingConfig(Config):
    """How the answers are found in completions."""

    judged: Part = "answer"
    """What is judged of a completion with several messages (tools, turns): `answer`, the last message of the
    assistant, or `transcript`, all messages. A completion that ends with a tool call has no answer, so environments
    whose last turn is a call need `transcript`."""
    keep_thinking: bool = False
    """Judge thoughts too."""
    thinking_opened: bool | None = None
    """Whether completions begin inside a thought, because the policy's chat template opens it. By default this is
    found out from the trainer's tokenizer and the end of the prompt."""
    tokenizer: Unchecked[Any] = None
    """The policy's tokenizer, or its folder or Hub id, for trainers that do not show theirs (`AsyncGRPOTrainer`,
    custom loops). It is used to find the answer in the token ids of a completion."""
    thinking_tags: Unchecked[Sequence[str] | None] = None
    """The markers of a thought of a policy that uses its own, such as `("<reasoning>", "</reasoning>")`. Empty if the
    policy writes no thoughts: then nothing in a text is taken for one."""
    images: Images = "show"
    """What to do with images in prompts, completions and the columns `image` and `images`. `show`: the judge sees
    them; a judge of a text model refuses them, and audio and videos are refused. `ignore`: only the text is judged."""

    @field_validator("thinking_tags")
    @classmethod
    def _are_two_or_none(cls, tags: Any) -> Any:
        if tags is not None and (
            not isinstance(tags, Sequence)
            or isinstance(tags, str)
            or len(tags) not in (0, 2)
            or not all(isinstance(tag, str) and tag.strip() for tag in tags)
        ):
            raise SampleError(
                f"thinking_tags={tags!r} is not allowed; it must be two strings, the opening and the closing marker "
                "of a thought, or empty if the policy writes no thoughts."
            )
        return tags

    @field_validator("tokenizer")
    @classmethod
    def _decodes(cls, tokenizer: Any) -> Any:
        if tokenizer is not None and not isinstance(tokenizer, str) and not hasattr(tokenizer, "apply_chat_template"):
            raise SampleError(
                f"tokenizer={tokenizer!r:.60} is not allowed; it must be a tokenizer, a processor, or the name of a "
                "model."
            )
        return tokenizer

    @model_validator(mode="after")
    def _opens_a_thought_if_there_are_any(self) -> Self:
        if self.thinking_opened and self.thinking_tags is not None and not self.thinking_tags:
            raise SampleError(
                "thinking_opened=True requires thoughts, but thinking_tags=() means that there are none."
            )
        return self


class Readers:
    """Reads completions with the tokenizer of the trainer that passes them. Its `chat_template_kwargs`, its tools and
    its length limit decide too which part of a completion is the answer."""

    def __init__(self, config: ReadingConfig):
        self.config = config
        self._warned = False
        self._readers: dict[Any, tuple[Any, CompletionReader]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    def read(
        self,
        completions: Sequence[Any],
        prompts: Sequence[Any] | None = None,
        ids: Sequence[Sequence[int]] | None = None,
        trainer: Any = None,
    ) -> list[Target]:
        """Read the completions of one call of a trainer; see [`CompletionReader.read_batch`]."""
        reader = self.of(trainer)
        if ids is not None and reader.tokenizer is None and not self._warned:
            self._warned = True
            logger.warning(
                "the reward got completion_ids but knows no tokenizer, so it reads the decoded completions. If the "
                "policy marks its thoughts with special tokens (gpt-oss, Gemma 4, Magistral, Cohere and others), "
                "decoding has dropped the markers: pass tokenizer=..."
            )
        limit = getattr(trainer, "max_completion_length", None)
        if limit is None:
            limit = getattr(getattr(trainer, "args", None), "max_new_tokens", None)
        tools = bool(getattr(trainer, "tools", None))
        rollouts, opened = getattr(trainer, "rollout_func", None) is not None, self.config.thinking_opened
        return reader.read_batch(
            completions, prompts=prompts, ids=ids, limit=limit, tools=tools, rollouts=rollouts, opened=opened
        )

    def of(self, trainer: Any = None) -> CompletionReader:
        """The reader for a trainer, or for None, built once per tokenizer. The tokenizer of the configuration, if any,
        is used in place of the trainer's."""
        config = self.config
        tokenizer = getattr(trainer, "processing_class", None) if config.tokenizer is None else config.tokenizer
        settings = dict(getattr(trainer, "chat_template_kwargs", None) or {})
        key = tokenizer if isinstance(tokenizer, str) else id(tokenizer), repr(settings)
        if key not in self._readers:
            loaded = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
            reader = CompletionReader(
                loaded,
                chat_template_kwargs=settings,
                part=config.judged,
                keep_thinking=config.keep_thinking,
                thinking_tags=config.thinking_tags,
                images=config.images,
            )
            reader.validate()
            self._readers = {key: (tokenizer, reader)}  # the tokenizer is kept, so that its id stays its own
        return self._readers[key][1]


@cache
def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model, by its folder or Hub id. Raises [`SampleError`] if there is none."""
    [transformers] = import_extra("transformers", extra="trl")
    from checklist_rewards.backends.models import from_hub, resolve_model

    try:
        with from_hub(path := resolve_model(name)):
            return transformers.AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise SampleError(f"tokenizer={name!r} not found ({str(error).splitlines()[0]:.120}).") from None


NOT_ANSWERED: Mapping[TargetState, str] = {
    "empty": "are empty; they are scored as no_answer says.",
    "cut_in_thought": "were cut in their thought or never closed it; they are scored as no_answer says. Allow longer "
    "completions, or shorter thoughts.",
    "unfinished": "end with a tool call instead of an answer; they are scored as no_answer says. Allow more turns, or "
    "set judged='transcript'.",
    "cut": "reached the length limit in their answer; what they wrote is judged.",
}
"""The states that a reward counts, and what they mean."""


_MARKS = {True: "✓", False: "✗", None: "?"}
_NAMED, _WIDTH = 8, 32
"""The most items that a line names, and the most characters of a question."""


class RewardLog:
    """Running means of metrics, and an optional log file, a JSONL file to append to. Thread-safe; a pickled copy
    starts empty. Ranks other than 0 write to files with the rank in their names, such as "log.rank1.jsonl"."""

    def __init__(self, path: str | Path | None = None):
        if path is not None and not isinstance(path, str | Path):
            raise SampleError(f"log={path!r} is not allowed; it must be the path of a JSONL file.")
        self.path = None if path is None else Path(path).expanduser()
        self._lock = threading.Lock()
        self._sums: dict[str, tuple[float, int]] = {}
        self._broken = False

    def __reduce__(self) -> tuple[type[RewardLog], tuple[Path | None]]:
        return type(self), (self.path,)

    def add(self, numbers: Sequence[tuple[str, float]]) -> None:
        """Add values of metrics, given as pairs of name and value."""
        with self._lock:
            for name, value in numbers:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + value, count + 1

    def pop(self) -> dict[str, float]:
        """Return the mean of every metric since the last call, and reset them."""
        with self._lock:
            sums, self._sums = self._sums, {}
        return {name: total / count for name, (total, count) in sums.items()}

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append one line per record in a single write: all of them, or none if the disk is full, so no line is cut.
        Never raises: after an error, it warns and stops logging."""
        if self.path is None or self._broken:
            return
        try:
            rank = _rank()
            path = self.path if rank == "0" else self.path.with_suffix(f".rank{rank}{self.path.suffix}")
            lines = "".join(json.dumps(record) + "\n" for record in records).encode()
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock, path.open("ab", buffering=0) as file:
                if (written := file.write(lines)) < len(lines):
                    file.truncate(file.tell() - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except Exception as error:  # training must continue without the log
            self._broken = True
            logger.warning(
                "cannot write the log %s (%s: %s); continuing without it.",
                self.path,
                type(error).__name__,
                error,
            )


def _rank() -> str:
    return os.environ.get("RANK", "0")


class Guard:
    """Runs a part of a stage that must not stop the training: an error is counted, and replaced by a fallback.

    `report` is called with the part, the error, and whether it is the first one of this part. After `most` errors a
    part is no longer run, so that a broken one does not delay every step.
    """

    def __init__(self, report: Callable[[str, str, bool], None], most: int | None = None):
        self.report, self.most = report, most
        self.failures: Counter[str] = Counter()
        """Errors by part."""

    def __call__(self, part: str, work: Callable[[], Value], fallback: Value, *, always: bool = False) -> Value:
        """The value of `work`, or `fallback`. A part on which other ranks wait must `always` run."""
        if self.most is not None and self.failures[part] >= self.most and not always:
            return fallback
        try:
            return work()
        except Exception as error:  # whatever fails, training continues
            self.failed(part, f"{type(error).__name__}: {error}")
            return fallback

    def failed(self, part: str, error: str) -> None:
        """Count an error."""
        self.failures[part] += 1
        self.report(part, error, self.failures[part] == 1)


def log_records(call: Call) -> Iterator[dict[str, Any]]:
    """The records of the completions for [`RewardLog.write`]. `completion` is the text that was judged; `written`,
    what the trainer passed, is added where that has no answer."""
    rows = zip(call.described, call.completions, call.samples, call.rewards, call.scores, strict=True)
    checklist_ids = call.checklist_ids
    for place, ((prompt, images), completion, sample, reward, score) in enumerate(rows):
        state = None if sample is None else sample.target_state
        images = () if has_its_images(prompt) else images
        yield {
            "step": call.step,
            "started": call.started,
            **({} if (rank := _rank()) == "0" else {"rank": rank}),
            "prompt": described(prompt),
            **({"images": list(map(_logged, images))} if images else {}),
            "completion": None if sample is None else shown(sample.target),
            **({"completion_images": described(sample.target_images)} if sample and has_images(sample.target) else {}),
            "state": state,
            **({"written": described(completion)} if state in NO_ANSWER_STATES else {}),
            "reward": reward,
            "checklist_hash": checklist_ids[place],
            **call.log_columns(place),
            "score": None if score is None else score.model_dump(),
            **({} if call.training else {"evaluation": True}),
            **(call.log_fields[place] if call.log_fields else {}),
        }


def _logged(image: Any) -> Any:
    """An image of a log line: its hash and path if the judge saw it, otherwise a short text, which differs between
    images."""
    return described(image) if isinstance(image, Image) else f"<image, sha256 {image_key(image)[:_DIGITS]}>"


def one_line(score: Score | None) -> str:
    """A score for a table of completions, such as "2/3  ✓ tone  ✗ Is it short? .25".

    It has the passed and the answered items, and each item with its category if that names no other one, and its
    question otherwise. Soft values are added unless they are near 0 or 1. Of many items, those that pass are left out.
    """
    if score is None:
        return "not judged"
    if score.no_answer:
        return f"no answer: {score.state.replace('_', ' ')}"
    shared = Counter(line.category for line in score.items)
    shown = [line for line in score.items if len(score.items) <= _NAMED or line.passed is not True][:_NAMED]
    parts = [f"{sum(line.passed is True for line in score.items)}/{score.answered}"]
    for line in shown:
        name = line.category if line.category and shared[line.category] == 1 else _shortened(line.question)
        soft = "" if line.soft is None or not 0.05 <= line.soft <= 0.95 else f" {line.soft:.2f}".replace("0.", ".")
        parts.append(f"{_MARKS[line.passed]} {name}{soft}")
    return "  ".join(parts)


def _shortened(question: str) -> str:
    text = " ".join(question.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1].rstrip()}…"


def metrics_of(
    rows: Iterable[tuple[Sample | None, Score | None, float | None]], categories: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """The metrics of all completions (sample, score and reward), as pairs of name and value. A metric that has no
    value for a completion is left out, because TRL averages all logged values of all ranks."""
    for sample, score, reward in rows:
        lines = () if sample is None or score is None else tuple(zip(sample.checklist.items, score.items, strict=True))
        items = () if score is None or score.no_answer else lines
        abstained = sum([line.answer is not None and item.values[line.answer] is None for item, line in items])
        masses = [line.mass for _, line in items if line.mass is not None]
        # Without a score, only a part of the items has an answer, such as the code checks.
        scored = None if score is None or score.primary_score is None else score
        metrics: dict[str, float | None] = {
            "score": reward,
            "pass_rate": None if scored is None else scored.pass_rate,
            "unscored": float(reward is None),
            "unanswered": ratio(sum([line.unanswered is not None for _, line in items]), len(items)),
            "abstained": ratio(abstained, len(items)),
            "mass": ratio(sum(masses), len(masses)),
            **{state: None if score is None else float(score.state == state) for state in NOT_ANSWERED},
        }
        for category in categories:
            passed = [line.passed for item, line in lines if item.category == category and line.passed is not None]
            metrics[f"category/{category}"] = None if scored is None else ratio(sum(passed), len(passed))
        yield from ((name, value) for name, value in metrics.items() if value is not None)
