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
from typing import Any

from checklist_rewards.backends import BACKENDS, Backend
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.judges import Judge, LogprobJudge, Progress, Read, Receipt
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
        mode (`str`, *optional*, defaults to `"item"`): one read per item.
        use_logprobs (`bool`, *optional*, defaults to `True`): read probabilities, not words.
        primary_metric (`str`, *optional*, defaults to `"expected"`): pass, weighted, expected or normalized.
        threshold (`float`, *optional*, defaults to `0.6`): yes from this P(yes) up.
        min_answered (`float`, *optional*, defaults to `0.5`): share of the weight that must be answered for a score.
        abstention (`str`, *optional*, defaults to `"skip"`): what "cannot assess" counts for: skip, zero, partial,
            fail.
        mass_floor (`float`, *optional*, defaults to `0.5`): least P(yes) + P(no) for a read to count.
        prompt (`str` or `Path`, *optional*): a Markdown file, or the name of a packaged prompt.
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
        mode: str = "item",
        use_logprobs: bool = True,
        primary_metric: PrimaryMetric = "expected",
        threshold: float = DEFAULT_THRESHOLD,
        min_answered: float = DEFAULT_MIN_ANSWERED,
        abstention: Abstention = "skip",
        mass_floor: float = DEFAULT_MASS_FLOOR,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        store: bool | str | Path | Store = True,
        judge: Judge | None = None,
    ):
        _one_of("mode", mode, ("item",))
        _one_of("use_logprobs", use_logprobs, (True,))
        _one_of("primary_metric", primary_metric, PRIMARY_METRICS)
        _one_of("abstention", abstention, ABSTENTIONS)
        if isinstance(backend, str):
            _one_of("backend", backend, BACKENDS)
        for name, value in (("threshold", threshold), ("min_answered", min_answered), ("mass_floor", mass_floor)):
            _share(name, value)
        self.primary_metric: PrimaryMetric = primary_metric
        self.threshold = threshold
        self.min_answered = min_answered
        self.abstention: Abstention = abstention
        self.judge: Judge = judge or LogprobJudge(
            model,
            backend=backend,
            base_url=base_url,
            prompt=prompt,
            mass_floor=mass_floor,
            store=open_store(store),
        )

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
            Read(item, sample.target, sample.input, sample.reference, sample.history)
            for sample, checklist in zip(samples, checklists, strict=True)
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


def _share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise SampleError(f"{name}={value!r} is not allowed; it is a number from 0 to 1.")
