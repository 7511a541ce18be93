"""The scorer: samples in, scores out. The one path that rewards, reranking, evaluation and the CLI all use.

    >>> scorer = ChecklistScorer(model="pocket")
    >>> score = scorer.score(["Does the response end with a question mark?"], target="Who is there?")
    >>> score.primary_score  # doctest: +SKIP
    0.99

Everything that can be refused (a missing model, a bad weight, a target that is no string) is refused before the judge
is asked anything. What the judge then fails to answer is unanswered in the score, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from checklist_rewards.backends import BACKENDS, Backend
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.judges import (
    BatchJudge,
    Judge,
    LogprobJudge,
    Progress,
    QualityJudge,
    Read,
    ReasonedJudge,
    Receipt,
)
from checklist_rewards.judges.logprob import DEFAULT_MASS_FLOOR, DEFAULT_PROMPT
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.scores import (
    ABSTENTIONS,
    DEFAULT_MIN_ANSWERED,
    DEFAULT_THRESHOLD,
    PRIMARY_METRICS,
    Abstention,
    PrimaryMetric,
    Score,
    score_checklist,
)
from checklist_rewards.store import Store, open_store

Mode = Literal["item", "batch", "quality"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Sample:
    """One target to be scored.

    Args:
        checklist: a [`Checklist`], or anything that [`Checklist.parse`] takes.
        target (`str`): the text being scored; may be empty.
        input (`str`, *optional*): what was asked.
        reference (`str`, *optional*): a known good answer, shown to the judge if its prompt has `{reference}`.
        history (`str`, *optional*): earlier turns, shown to the judge if its prompt has `{history}`.
    """

    checklist: Any
    target: str
    input: str | None = None
    reference: str | None = None
    history: str | None = None


class ChecklistScorer:
    """Answers checklists about targets and aggregates the answers.

    Args:
        model (`str`, *optional*, defaults to `"pocket"`): the judge: "pocket", a folder, a Hub id, or with `base_url`
            the name the server knows it by.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`): auto, transformers, vllm or openai; auto
            takes a server where `base_url` is given, vLLM where it is installed and the model is not the pocket one,
            else transformers.
        base_url (`str`, *optional*): an OpenAI-compatible server, such as "http://localhost:8000/v1".
        mode (`str`, *optional*, defaults to `"item"`): item: one question at a time. batch: all questions of a target
            in one call. quality: the same, each answer with a justification, then a grade from 1 to 5.
        use_logprobs (`bool`, *optional*): read an item's answer as the probabilities of one token rather than as
            words. Defaults to True in mode item, where nothing that needs words is asked for (`capture_reasoning`,
            `samples`, `temperature`).
        capture_reasoning (`bool`, *optional*, defaults to `False`): have the judge reason before it answers, and keep
            what it says. Mode quality always does.
        samples (`int`, *optional*, defaults to `1`): replies per item, whose majority is the answer (mode item).
        temperature (`float`, *optional*): of written replies; defaults to 0, of several samples to 0.7.
        max_tokens (`int`, *optional*): of one written reply; defaults to what the mode needs without thinking.
        primary_metric (`str`, *optional*): pass, weighted, expected, normalized, or quality (in mode quality, as
            (grade - 1) / 4). Defaults to quality in mode quality, else to expected.
        threshold (`float`, *optional*, defaults to `0.6`): yes from this P(yes) up.
        min_answered (`float`, *optional*, defaults to `0.5`): share of the weight that must be answered for a score.
        abstention (`str`, *optional*, defaults to `"skip"`): what "cannot assess" counts for: skip, zero, partial,
            fail.
        mass_floor (`float`, *optional*, defaults to `0.5`): least P(yes) + P(no) for a read to count.
        prompt (`str` or `Path`, *optional*): a Markdown file, or the name of a packaged prompt, with `{question}` in
            mode item and `{checklist}` in the others. Defaults to the mode's own.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`): where reads are kept; False for nowhere.
        judge ([`Judge`], *optional*): a judge object instead of everything above that describes one.

    Raises:
        ChecklistRewardsError: one sentence, for any argument that cannot be used. No model is loaded here: that
            happens at the first read that is not in the store.
    """

    def __init__(
        self,
        model: str = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        mode: Mode = "item",
        use_logprobs: bool | None = None,
        capture_reasoning: bool = False,
        samples: int = 1,
        temperature: float | None = None,
        max_tokens: int | None = None,
        primary_metric: PrimaryMetric | None = None,
        threshold: float = DEFAULT_THRESHOLD,
        min_answered: float = DEFAULT_MIN_ANSWERED,
        abstention: Abstention = "skip",
        mass_floor: float = DEFAULT_MASS_FLOOR,
        prompt: str | Path | PromptTemplate | None = None,
        store: bool | str | Path | Store = True,
        judge: Judge | None = None,
    ):
        _one_of("mode", mode, MODES)
        if use_logprobs is None:
            wrote = capture_reasoning or samples != 1 or temperature is not None or max_tokens is not None
            use_logprobs = mode == "item" and not wrote
        _agree(mode, use_logprobs, capture_reasoning, samples, temperature, max_tokens)
        if primary_metric is None:
            primary_metric = "quality" if mode == "quality" else "expected"
        _one_of("primary_metric", primary_metric, PRIMARY_METRICS)
        if primary_metric == "quality" and mode != "quality" and judge is None:
            raise SampleError(f"primary_metric='quality' needs mode='quality', which grades; mode is {mode!r}.")
        _one_of("abstention", abstention, ABSTENTIONS)
        if isinstance(backend, str):
            _one_of("backend", backend, BACKENDS)
        for name, value in (("threshold", threshold), ("min_answered", min_answered), ("mass_floor", mass_floor)):
            _share(name, value)
        self.mode, self.use_logprobs = mode, use_logprobs
        self.primary_metric: PrimaryMetric = primary_metric
        self.threshold = threshold
        self.min_answered = min_answered
        self.abstention: Abstention = abstention
        if judge is not None:
            self.judge = judge
            return
        engine: dict[str, Any] = {"backend": backend, "base_url": base_url, "store": open_store(store)}
        written: dict[str, Any] = {"prompt": prompt, "temperature": temperature, "max_tokens": max_tokens, **engine}
        if mode == "quality":
            self.judge = QualityJudge(model, **written)
        elif mode == "batch":
            self.judge = BatchJudge(model, reasoning=capture_reasoning, **written)
        elif use_logprobs:
            prompt = DEFAULT_PROMPT if prompt is None else prompt
            self.judge = LogprobJudge(model, prompt=prompt, mass_floor=mass_floor, **engine)
        else:
            self.judge = ReasonedJudge(model, reasoning=capture_reasoning, samples=samples, **written)

    @property
    def receipt(self) -> Receipt:
        """What all calls so far have cost."""
        return self.judge.receipt

    def check(self) -> None:
        """Refuse a judge that cannot work, before the first read and without loading it."""
        self.judge.check()

    def score(
        self,
        checklist: Any,
        target: str,
        input: str | None = None,
        *,
        reference: str | None = None,
        history: str | None = None,
    ) -> Score:
        """Score one target; see [`Sample`] for the arguments."""
        return self.score_batch([Sample(checklist, target, input, reference, history)])[0]

    def score_batch(self, samples: Sequence[Sample], progress: Progress | None = None) -> list[Score]:
        """Score samples, all reads planned together.

        Args:
            samples (sequence of [`Sample`]).
            progress (callable, *optional*): told how many reads were answered since its last call.

        Returns:
            list of [`Score`], one per sample, in order.

        Raises:
            SampleError, ChecklistError: naming the sample (from 1) and the item, before anything is asked.
            ModelError: if the judge cannot be used.
        """
        checklists = [self._checked(sample, f"sample {number}") for number, sample in enumerate(samples, start=1)]
        self.check()
        reads = [
            Read(item, sample.target, sample.input, sample.reference, sample.history, number)
            for number, (sample, checklist) in enumerate(zip(samples, checklists, strict=True))
            for item in checklist.items
        ]
        verdicts = iter(self.judge.judge(reads, progress))
        return [
            score_checklist(
                checklist,
                [next(verdicts) for _ in checklist.items],
                primary_metric=self.primary_metric,
                threshold=self.threshold,
                min_answered=self.min_answered,
                abstention=self.abstention,
            )
            for checklist in checklists
        ]

    def _checked(self, sample: Sample, where: str) -> Checklist:
        checklist = Checklist.parse(sample.checklist, where)
        for name in ("target", "input", "reference", "history"):
            text = getattr(sample, name)
            if not isinstance(text, str) and (text is not None or name == "target"):
                raise SampleError(f"{where}: {name} must be a string, got {type(text).__name__} {text!r:.60}.")
        for item in checklist.items:
            self.judge.check_item(item, where)
        return checklist


def _one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise SampleError(f"{name}={value!r} is not known; allowed: {', '.join(map(repr, allowed))}.")


def _agree(
    mode: str,
    use_logprobs: bool,
    capture_reasoning: bool,
    samples: int,
    temperature: float | None,
    max_tokens: int | None,
) -> None:
    """Refuse settings that contradict each other."""
    _one_of("use_logprobs", use_logprobs, (True, False))
    _one_of("capture_reasoning", capture_reasoning, (True, False))
    for name, value in (("samples", samples), ("max_tokens", max_tokens)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise SampleError(f"{name}={value!r} is not allowed; it is a whole number from 1 up.")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature < float("inf")):
        raise SampleError(f"temperature={temperature!r} is not allowed; it is a number from 0 up.")
    if use_logprobs and mode != "item":
        raise SampleError(f"use_logprobs=True needs mode='item', one token per question; mode is {mode!r}.")
    if samples > 1 and mode != "item":
        raise SampleError(f"samples={samples} needs mode='item', where every question is voted on; mode is {mode!r}.")
    if samples > 1 and temperature == 0:
        raise SampleError(f"samples={samples} needs a temperature above 0: at 0 all replies are the same.")
    if use_logprobs:
        for name, given in (
            ("capture_reasoning=True", capture_reasoning),
            (f"samples={samples}", samples > 1),
            (f"temperature={temperature}", temperature is not None),
            (f"max_tokens={max_tokens}", max_tokens is not None),
        ):
            if given:
                raise SampleError(
                    f"{name} and use_logprobs=True contradict each other: a label's probability is read without the "
                    "judge writing anything."
                )


def _share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise SampleError(f"{name}={value!r} is not allowed; it is a number from 0 to 1.")
