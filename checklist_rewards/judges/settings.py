"""The configuration of a judge and of a scorer, and the YAML file of one or several judges.

[`JudgeConfig`] is the only place where the settings of a judge are documented and checked, and [`ScorerConfig`], which
adds what is made of the answers, that of a scorer. Keyword arguments of [`ChecklistScorer`], options, files of judges,
pipelines and `CHECKLIST_REWARDS_CONFIG` are all read into them. Everything that cannot be used is refused with one
sentence before a model is loaded: judges build their engine at the first read that is not in the store.

A YAML file has a panel, a cascade, or the settings of one judge:

    panel: {rule: majority, weights: [2, 1, 1], quorum: 0.6}
    judges:
      - {model: org/one}
      - {model: org/two, base_url: "http://localhost:8001/v1", calibration: two.json}
      - {model: org/three, capture_reasoning: true, votes: 3}

or

    cascade: {margin: 0.4}
    judges:
      - {model: org/small}
      - panel: {}
        judges: [...]

or

    {model: org/judge, base_url: "http://localhost:8001/v1", calibration: map.json}

The keys of `panel` are those of [`PanelConfig`], of `cascade` those of [`CascadeConfig`], and of a judge those of
[`JudgeConfig`]. Paths in the file (calibration, examples, prompts) start from its folder. Unknown keys are refused
with the file and the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict

from annotated_types import Ge, Le
from pydantic import Field, ValidationInfo, field_validator, model_validator

from checklist_rewards.backends import DECISIONS, Backend, Engine
from checklist_rewards.backends.budget import Budget
from checklist_rewards.backends.models import REFERENCE, UNNAMED
from checklist_rewards.backends.servers import joined
from checklist_rewards.config import Config, Object, Unchecked, refuse_any
from checklist_rewards.errors import ChecklistRewardsError, ConfigError, ModelError, SampleError
from checklist_rewards.files.documents import in_folder, load, read_text, read_value
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.judges.base import Judge, ThinkingPer
from checklist_rewards.judges.calibration import Calibration, Member, read_alike
from checklist_rewards.judges.checked import AllowCode, Checks
from checklist_rewards.judges.logprob import DEFAULT_MASS_FLOOR, EncoderJudge, LogprobJudge
from checklist_rewards.judges.panel import CascadeConfig, CascadeJudge, PanelConfig, PanelJudge
from checklist_rewards.judges.questions import DEFAULT_SHOTS, FewShot
from checklist_rewards.judges.remote import JUDGE_BACKENDS, REMOTE, JudgeBackend, RemoteJudge, RewardServer
from checklist_rewards.judges.weights import Weights
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.scores import Abstention, Aggregation, NoAnswer, PrimaryMetric
from checklist_rewards.scores.scales import ordinal_scale
from checklist_rewards.validation import one_of

Mode = Literal["item", "batch", "quality"]
ENGINE_SETTINGS = ("model", "backend", "base_url", "engine_args")
FILE_SETTINGS = ("prompt", "examples", "calibration")
_WHO = (*ENGINE_SETTINGS, "calibration")


class JudgeConfig(Config):
    """Which model judges, and how it is asked.

    Raises:
        ChecklistRewardsError: One sentence, for a setting that cannot be used or that contradicts another. [`build`]
            raises it as well.
    """

    older: ClassVar[Mapping[str, str]] = {"engine": "engine_args", "samples": "votes"}

    model: str | Object[Engine] = UNNAMED
    """Judge model: "english-encoder", "english", a local folder, a Hub id, or with `base_url` the name of the model on
    the server; "pocket" for demos and tests. Code checks alone need none. "reference": the reference model of the
    trainer that calls the reward, which are the base weights under a LoRA policy."""
    backend: Unchecked[JudgeBackend | str | Backend | RewardServer] = "auto"
    """Inference engine. `auto`: the server at `base_url` if given, else `encoder` for a folder written by
    `checklist-rewards distill`, else vLLM if installed (except for the pocket model), else transformers. `encoder`: a
    cross-encoder, which answers yes/no items without a prompt, from the target, the question, and the input and the
    reference if it was trained with them. `decisions`: a server with a Decisions API (`/v1/systemone` or
    `/v1/decisions`) at `base_url`. `remote`: a `checklist-rewards serve` at `base_url`, whose own judge settings
    apply; `model`, if given, must match."""
    base_url: Unchecked[str | Sequence[str] | None] = None
    """URL of an OpenAI-compatible server, such as http://localhost:8000/v1, or of a reward server; or the name
    `openai` or `openrouter`. Replicas of a server: a list of URLs, or one string with commas between them."""
    engine_args: Unchecked[Mapping[str, Any] | None] = Field(default=None, repr=False)  # may hold a token
    """Engine arguments under the engine's own names: of vLLM (tensor_parallel_size=2, quantization=fp8), of
    transformers (dtype=bfloat16, device_map=auto), of a server (concurrency=256); revision and trust_remote_code as in
    `from_pretrained`; adapter, the folder of a LoRA adapter. Arguments that change answers are part of the store
    key."""
    mode: Mode = "item"
    """One read per question (`item`), one reply that answers all questions (`batch`), or such a reply with a
    justification of each answer and an overall grade from 1 to 5 (`quality`)."""
    use_logprobs: bool | None = None
    """Read each answer as the probabilities of one token, instead of parsing the text of a reply. Defaults to True in
    mode `item`, unless `capture_reasoning`, `votes`, `temperature` or `max_tokens` require text."""
    capture_reasoning: bool = False
    """Let the judge write its reasoning before it answers, and store the reasoning. Mode `quality` always does."""
    votes: Annotated[int, Ge(1)] = 1
    """Replies per question, combined by majority vote (mode `item`); with `thinking`, thoughts per question."""
    temperature: Annotated[float, Ge(0)] | None = None
    """Sampling temperature of the judge's replies. Defaults to 0, or 0.7 with several `votes`."""
    thinking: Annotated[int, Ge(1)] | None = None
    """Most tokens of a thought that the judge writes before it answers. The answer is read as the probabilities of
    one token after the thought, averaged over `votes` thoughts (mode `item`)."""
    thinking_per: ThinkingPer = "item"
    """One thought for each `item`, or one for all items about a `target` in a call, which is cheaper; their answers
    then depend on each other."""
    max_tokens: Annotated[int, Ge(1)] | None = None
    """Most tokens of one reply of the judge. Defaults to what the mode needs without thinking."""
    mass_floor: Annotated[float, Ge(0), Le(1)] = DEFAULT_MASS_FLOOR
    """Lowest P(yes) + P(no), from 0 to 1, for a read to count as answered."""
    prompt: str | Path | Object[PromptTemplate] | None = None
    """Judge prompt: the name of a packaged prompt, or a Markdown file with `{question}` in mode `item` and
    `{checklist}` in the other modes. Defaults to the mode's."""
    examples: str | Path | Object[FewShot] | None = None
    """File of labelled answers (rows with target, question and label), a few of which are shown with each question as
    few-shot examples (mode `item`)."""
    shots: Annotated[int, Ge(1)] | None = None
    """Most examples shown with a question. Defaults to 4."""
    example_reasons: bool = False
    """Include the reasons of the examples in the prompt."""
    calibration: str | Path | Object[Calibration] | None = None
    """Calibration file of this judge, written by `checklist-rewards calibrate`. It maps the judge's probabilities to
    calibrated ones."""

    @field_validator(*FILE_SETTINGS, "judge", "weights", check_fields=False)  # the last two are of a scorer
    @classmethod
    def _in_its_folder(cls, value: Any, info: ValidationInfo) -> Any:
        return in_folder(value, info)

    @model_validator(mode="after")
    def _has_a_backend(self) -> Self:
        backend = self.asked.backend
        if isinstance(backend, str) or backend is None:
            one_of("backend", backend, JUDGE_BACKENDS)
        return self

    @cached_property
    def loaded_calibration(self) -> Calibration | None:
        """The calibration itself, read from its file if it is a path."""
        calibration = self.calibration
        return Calibration.load(calibration) if isinstance(calibration, str | Path) else calibration

    @property
    def asked(self) -> Engine:
        """The engine that answers. Raises [`ModelError`] for engine arguments that cannot be used."""
        if isinstance(self.model, Engine):
            return self.model
        arguments = {} if self.engine_args is None else self.engine_args
        return Engine(self.model, self.backend, joined(self.base_url), arguments)  # type: ignore[arg-type]

    @property
    def is_remote(self) -> bool:
        """Whether a reward server answers."""
        return isinstance(self.asked.backend, RewardServer) or self.asked.backend == REMOTE

    def changed(self, *apart: str) -> dict[str, Any]:
        """The settings of the judge that differ from their defaults, without those named."""
        fields = JudgeConfig.model_fields
        values = {name: getattr(self, name) for name in fields if name not in apart}
        return {name: value for name, value in values.items() if value != fields[name].default}

    def build(
        self,
        store: bool | str | Path | Store = True,
        budget: Budget | Mapping[str, Any] | None = None,
    ) -> Judge:
        """The judge of these settings, without the calibration; no model is loaded.

        Args:
            store (`bool`, path or [`Store`], *optional*, defaults to `True`):
                Where reads are kept; False for nowhere.
            budget ([`Budget`] or mapping, *optional*):
                What may be spent; see [`ChecklistScorer`].
        """
        asked, calibration, kept_in = self.asked, self.loaded_calibration, open_store(store)
        given = self.changed(*_WHO)
        if self.is_remote:
            limited = {} if budget is None else {"budget": budget}
            refuse_any(given | limited, "with a reward server; set it when starting `checklist-rewards serve`")
            named = asked.model if self.model != UNNAMED else UNNAMED
            return RemoteJudge(self._server(asked), model=named, store=kept_in)
        if given.get("use_logprobs") is True:
            del given["use_logprobs"]
        if asked.is_encoder:
            given |= {} if budget is None else {"budget": budget}
            refuse_any(given, f"with the cross-encoder {asked.model}, which has no prompt and writes nothing")
            return EncoderJudge(asked, store=kept_in)
        use_logprobs = self._use_logprobs()
        if decides := asked.backend_name == DECISIONS:
            given = {name: value for name, value in given.items() if name not in ("prompt", "mass_floor")}
            refuse_any(given, "with backend='decisions': a server answers each question by itself and writes no text")
        else:
            _agree(self, use_logprobs)
        if asked.model == REFERENCE and asked.backend == "auto" and asked.base_url is None:
            from checklist_rewards.backends.reference import ReferenceBackend

            if not use_logprobs:
                raise SampleError(
                    "model='reference' reads the probabilities of labels and writes no replies: use mode='item' "
                    "without capture_reasoning, votes, temperature and max_tokens, or thinking=..."
                )
            asked = Engine(REFERENCE, ReferenceBackend(**asked.settings))
        few_shot = self._few_shot()
        if calibration is not None:
            read_by = "logprobs" if use_logprobs else "votes"
            _readable(calibration, self.mode, "decision" if decides else "thought" if self.thinking else read_by)
        if budget is not None:
            asked = Budget.of(budget).limited(asked)
        reads: dict[str, Any] = {"prompt": self.prompt, "mass_floor": self.mass_floor, "store": kept_in}
        if decides:
            from checklist_rewards.judges.decisions import DecisionsJudge

            return DecisionsJudge(asked, **reads)
        if self.thinking is not None:
            from checklist_rewards.judges.thinking import ThinkingJudge

            drawn: dict[str, Any] = {"votes": self.votes, "temperature": self.temperature}
            return ThinkingJudge(
                asked, thinking=self.thinking, per=self.thinking_per, examples=few_shot, **drawn, **reads
            )
        if use_logprobs:
            return LogprobJudge(asked, examples=few_shot, **reads)
        from checklist_rewards.judges.written import BatchJudge, QualityJudge, ReasonedJudge

        written: dict[str, Any] = {
            "prompt": self.prompt,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "store": kept_in,
        }
        if self.mode == "quality":
            return QualityJudge(asked, **written)
        if self.mode == "batch":
            return BatchJudge(asked, reasoning=self.capture_reasoning, **written)
        return ReasonedJudge(asked, reasoning=self.capture_reasoning, votes=self.votes, examples=few_shot, **written)

    def _use_logprobs(self) -> bool:
        """Whether answers are read as probabilities, if the settings do not say it."""
        if self.use_logprobs is not None:
            return self.use_logprobs
        writes = self.capture_reasoning or self.votes != 1 or not (self.temperature is self.max_tokens is None)
        return self.thinking is not None or (self.mode == "item" and not writes)

    def _few_shot(self) -> FewShot | None:
        """The examples to show; None for none. Raises a [`ChecklistRewardsError`] for what cannot be shown."""
        examples, shots = self.examples, self.shots
        of_a_file = [f"shots={shots}"] * (shots is not None) + ["example_reasons=True"] * self.example_reasons
        if examples is not None and self.mode != "item":
            raise SampleError(
                f"examples need mode='item', where every question is put by itself; mode is {self.mode!r}."
            )
        if of_a_file and not isinstance(examples, str | Path):
            raise SampleError(f"{of_a_file[0]} requires examples=<file>.")
        if examples is None or isinstance(examples, FewShot):
            return examples
        return FewShot.load(examples, DEFAULT_SHOTS if shots is None else shots, self.example_reasons)

    def _server(self, asked: Engine) -> RewardServer:
        if isinstance(asked.backend, RewardServer):
            return asked.backend
        if asked.base_url is None:
            raise ModelError(
                "backend='remote' needs base_url, the address of a reward server, such as 'http://localhost:8090'."
            )
        return RewardServer(asked.base_url, **asked.settings)


class ScorerConfig(JudgeConfig):
    """A scorer: which model judges, or which judges of a file, and what is made of the answers."""

    older: ClassVar[Mapping[str, str]] = {**JudgeConfig.older, "primary_metric": "metric"}

    judge: Unchecked[Judge | Member | str | Path | None] = None
    """YAML file that defines a panel, a cascade or one judge, instead of the options of a model."""
    metric: PrimaryMetric | None = None
    """Metric to use as the primary score. `net` is `weighted`, but not clipped: below 0 where penalties outweigh what
    is earned. `quality` is the grade of mode `quality`, as (grade - 1) / 4. Defaults to expected, or quality in mode
    quality."""
    threshold: Annotated[float, Ge(0), Le(1)] | None = None
    """Lowest P(yes), from 0 to 1, that counts as yes. Defaults to that of the calibration, else 0.6."""
    min_answered: Annotated[float, Ge(0), Le(1)] = Aggregation.min_answered
    """Fraction of the item weight that must be answered, from 0 to 1; below it the score is None."""
    abstention: Abstention = Aggregation.abstention
    """How to score an item answered cannot_assess. `skip`: the item does not count. `zero`: value 0. `partial`: value
    0.5, for a penalty 0. `fail`: the lowest value of its options, for a penalty the highest."""
    no_answer: NoAnswer = Aggregation.no_answer
    """How to score a target without an answer: an empty text, a thought that was cut, a tool call as the last turn.
    `lowest`: the lowest score that the checklist allows. `unscored`: no score. Neither asks the judge or runs a check.
    `judge`: it is judged like any other text."""
    scale: int | None = None
    """Grade items on a scale with this many steps, from worst to best, instead of yes/no."""
    weights: Unchecked[str | Path | Mapping[str, float] | Weights | None] = None
    """JSON or YAML file with new weights by item id, question or category, such as `fit` writes."""
    checks: Checks = "only"
    """Items with a code check are answered by: `only`, the check, and no model is asked; `mean`, both, and P(yes) is
    their mean; `judge`, the judge."""
    allow_code: AllowCode = False
    """Whether checks may run code, which a model may have written. True: in an isolated interpreter (pip install
    'checklist-rewards[code]'). "unsafe": in an ordinary process with access to your files and the network."""
    budget: Unchecked[Budget | Mapping[str, Any] | None] = None
    """What this judge and everything else that shares the budget may spend; or its
    `{"dollars": ..., "prices": {model: (in, out)}}`. Each process has its own."""
    store: Unchecked[bool | str | Path | Store] = True
    """Where reads are kept; False for nowhere."""

    @field_validator("scale")
    @classmethod
    def _has_steps(cls, scale: int | None) -> int | None:
        if scale is not None:
            ordinal_scale(scale)
        return scale

    @property
    def aggregation(self) -> Aggregation:
        """How verdicts are aggregated. Raises a [`ChecklistRewardsError`] for a calibration that cannot be read."""
        calibration, threshold = self.loaded_calibration, self.threshold
        if threshold is None and calibration is not None:
            threshold = calibration.threshold
        graded = self.mode == "quality" or self.is_remote or not isinstance(self.judge, None | str | Path)
        if self.metric == "quality" and not graded:
            raise SampleError(f"metric='quality' requires mode='quality', which grades; mode is {self.mode!r}.")
        return Aggregation(
            primary_metric=self.metric or ("quality" if self.mode == "quality" else Aggregation.primary_metric),
            threshold=Aggregation.threshold if threshold is None else threshold,
            min_answered=self.min_answered,
            abstention=self.abstention,
            no_answer=self.no_answer,
        )

    def member(self) -> Member:
        """The judge of this scorer with its calibration; no model is loaded."""
        judge, budget, calibration = self.judge, self.budget, self.loaded_calibration
        if judge is None:
            return Member(self.build(self.store, budget), calibration)
        if isinstance(judge, str | Path):
            refuse_any(self.changed("calibration"), f"with judge={str(judge)!r}; set it in that file")
            judge = load_jury(judge, self.store, None if budget is None else Budget.of(budget).limited)
        elif budget is not None:
            raise SampleError("budget=... cannot limit a judge object; limit its engine: budget.limited(engine).")
        if not isinstance(judge, Judge | Member):
            raise SampleError(f"judge={judge!r:.60} is not allowed; it is a Judge or the path of a file of judges.")
        member = Member.of(judge)
        if calibration is None:
            return member
        if member.calibration is not None:
            raise SampleError(
                "calibration=... cannot be combined with a judge that has a calibration; give one of them."
            )
        return Member(member.judge, calibration)


class ScorerKwargs(TypedDict, total=False):
    """The fields of [`ScorerConfig`] but `model`, for type checkers and editors."""

    backend: JudgeBackend | str | Backend | RewardServer
    base_url: str | Sequence[str] | None
    engine_args: Mapping[str, Any] | None
    mode: Mode
    use_logprobs: bool | None
    capture_reasoning: bool
    votes: int
    temperature: float | None
    thinking: int | None
    thinking_per: ThinkingPer
    max_tokens: int | None
    mass_floor: float
    prompt: str | Path | PromptTemplate | None
    examples: str | Path | FewShot | None
    shots: int | None
    example_reasons: bool
    calibration: str | Path | Calibration | None
    judge: Judge | Member | str | Path | None
    metric: PrimaryMetric | None
    threshold: float | None
    min_answered: float
    abstention: Abstention
    no_answer: NoAnswer
    scale: int | None
    weights: str | Path | Mapping[str, float] | Weights | None
    checks: Checks
    allow_code: AllowCode
    budget: Budget | Mapping[str, Any] | None
    store: bool | str | Path | Store


def _agree(settings: JudgeConfig, use_logprobs: bool) -> None:
    """Refuse settings that contradict each other."""
    mode, votes, temperature, max_tokens = settings.mode, settings.votes, settings.temperature, settings.max_tokens
    capture_reasoning, thinking = settings.capture_reasoning, settings.thinking
    if thinking is not None:
        for name, given, why in (
            (f"mode={mode!r}", mode != "item", "it needs mode='item', one token per question"),
            ("use_logprobs=False", not use_logprobs, "the label after the thought is read as one token"),
            ("capture_reasoning=True", capture_reasoning, "the thought is the reasoning, and it is always stored"),
            (f"max_tokens={max_tokens}", max_tokens is not None, "`thinking` limits the thought"),
        ):
            if given:
                raise SampleError(f"thinking={thinking} contradicts {name}: {why}.")
    elif settings.thinking_per != "item":
        raise SampleError(f"thinking_per={settings.thinking_per!r} requires thinking=<tokens>.")
    if use_logprobs and mode != "item":
        raise SampleError(f"use_logprobs=True needs mode='item', one token per question; mode is {mode!r}.")
    if votes > 1 and mode != "item":
        raise SampleError(f"votes={votes} needs mode='item', where every question is voted on; mode is {mode!r}.")
    if votes > 1 and temperature == 0:
        raise SampleError(f"votes={votes} needs a temperature above 0: at 0 all replies are the same.")
    if use_logprobs and thinking is None:
        for name, given in (
            ("capture_reasoning=True", capture_reasoning),
            (f"votes={votes}", votes > 1),
            (f"temperature={temperature}", temperature is not None),
            (f"max_tokens={max_tokens}", max_tokens is not None),
        ):
            if given:
                raise SampleError(f"{name} requires use_logprobs=False: a one-token read produces no text.")


def _readable(calibration: Calibration, mode: str, read_by: str) -> None:
    """Refuse a calibration of answers that are not read in this way."""
    if mode != "item":
        raise SampleError(f"calibration needs mode='item', which reads probabilities; mode is {mode!r}.")
    if not read_alike(calibration.read_by, read_by):
        raise SampleError(
            f"the calibration was fitted on answers read by {calibration.read_by}, and these are read by {read_by}; "
            "fit one on reads of this kind."
        )


Limited = Callable[[Engine], Engine]


def load_jury(
    path: str | Path, store: bool | str | Path | Store = True, limited: Limited | None = None
) -> Judge | Member:
    """The judge that a file describes, with its calibration if it has one. No model is loaded.

    Args:
        path (`str` or `Path`):
            YAML file; see the module.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`):
            Where all judges keep their reads.
        limited (callable, *optional*):
            Replaces the engine of each judge, for example by one with a budget.

    Raises:
        ConfigError: If the file cannot be used; names the file and the judge.
    """
    try:
        content = read_value(read_text(path), path)
    except ConfigError as error:
        raise ConfigError(f"the file of judges {error}") from None
    return parse_jury(content, str(path), Path(path).parent, open_store(store), limited)


def parse_jury(
    content: Any, where: str, folder: Path, store: Store | None = None, limited: Limited | None = None
) -> Judge | Member:
    """The judge that the content of a file describes, as [`load_jury`]. `where` names the file in errors; the files
    that it names are looked for in `folder`. Raises [`ConfigError`] if the content cannot be used."""
    _refuse_scorer_settings(content, where)
    if isinstance(content, Mapping) and "model" in content:
        return _one(content, where, folder, store, limited)
    kinds = [kind for kind in ("panel", "cascade") if isinstance(content, Mapping) and kind in content]
    if len(kinds) != 1 or not isinstance(content.get("judges"), list) or len(content) != 2:
        raise ConfigError(
            f"{where}: expected either 'panel' or 'cascade', and 'judges', a list; or 'model' and other settings of "
            f"one judge; got {content!r:.80}."
        )
    [kind] = kinds
    place, given = f"{where}, {kind}", {} if content[kind] is None else content[kind]
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place}: expected settings by name, got {given!r:.80}.")
    settings = dict(load(given, PanelConfig if kind == "panel" else CascadeConfig, place))
    judges = [
        _one(entry, f"{where}, judge {number}", folder, store, limited)
        for number, entry in enumerate(content["judges"], start=1)
    ]
    with _at(place):
        return PanelJudge(judges, **settings) if kind == "panel" else CascadeJudge(judges, **settings)


def _one(entry: Any, where: str, folder: Path, store: Store | None, limited: Limited | None) -> Judge | Member:
    _refuse_scorer_settings(entry, where)
    if isinstance(entry, Mapping) and "judges" in entry:
        return parse_jury(entry, where, folder, store, limited)
    settings = load({"model": entry} if isinstance(entry, str) else entry, JudgeConfig, where, folder)
    with _at(where):
        if limited is not None:
            settings = settings.replaced(model=limited(settings.asked))
        judge = settings.build(False if store is None else store)
        calibration = settings.loaded_calibration
    return judge if calibration is None else Member(judge, calibration)


def _refuse_scorer_settings(content: Any, where: str) -> None:
    """Refuse settings of the scorer in the description of a judge. Raises [`ConfigError`]."""
    known = ScorerConfig.model_fields.keys() - JudgeConfig.model_fields.keys() - {"judge"}
    for name in content if isinstance(content, Mapping) else ():
        if name in known:
            raise ConfigError(
                f"{where}: {name!r} is a setting of the scorer, not of a judge; set it next to the file of judges: "
                f"--{str(name).replace('_', '-')} on the command line, {name}=... in Python, or under 'scorer' in a "
                "pipeline file."
            )


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Begin the sentences of errors with their place."""
    try:
        yield
    except ChecklistRewardsError as error:
        raise ConfigError(f"{where}: {error}") from None
