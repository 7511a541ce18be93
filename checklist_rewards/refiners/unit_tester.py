"""The unit tester: keeps the items whose violation the judge detects.

The sample targets are scored on the whole checklist. For each item, a model rewrites the passing targets so that they
fail this item only, and the judge scores the rewritten texts on the item alone. The item is kept if at least
`threshold` of the rewrites fail. For penalties and items with options, an answer fails if it lowers the score.

Unanswered reads and failed rewrites are not counted; after a transient failure the checklist is not refined at all. An
item is untested if no sample passes it or none of its rewrites was judged; untested items are kept and listed as
unclear in the report. Without samples the refiner raises a [`SampleError`].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Unpack

from pydantic import BaseModel

from checklist_rewards.backends import Engine
from checklist_rewards.backends.replies import NoReply
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.refiners.base import (
    Note,
    Report,
    ReportingRefiner,
    check_samples,
    transient_failure,
)
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import PASS_CREDIT, Score
from checklist_rewards.validation import fraction, whole_number
from checklist_rewards.writer import Writer, WriterKwargs, prompt_with, writer_of

DEFAULT_PROMPT = "refiners/rewrite_to_fail"


class Rewrite(BaseModel):
    """The reply to the rewriting prompt."""

    response: str


@dataclass(slots=True)
class _Trial:
    """The test of one item: its passing samples, and how many of the rewrites were judged and failed."""

    item: ChecklistItem
    passing: list[Sample]
    unread: int
    failed: int = 0
    judged: int = 0
    complaint: str | None = None
    lost: list[GenerationError] = field(default_factory=list)
    """Errors in place of replies and reads."""


class UnitTester(ReportingRefiner):
    """Keeps items that texts rewritten to violate them fail.

    Args:
        model (`str`, [`Engine`] or [`Writer`]): the model that rewrites the samples.
        scorer ([`ChecklistScorer`], *optional*): the judge. Defaults to a scorer with the same model.
        threshold (`float`, *optional*, defaults to `0.7`): least fraction of an item's rewrites that must fail it.
        max_samples (`int`, *optional*, defaults to `10`): number of passing samples rewritten per item.
        prompt (`str` or `Path`, *optional*): a prompt with `{response}`, `{item}` and `{answer}` (the failing answer).
        **settings: the other fields of [`Writer`]. By default `temperature` is 0, `max_tokens` 2048 and `max_attempts`
            3.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    name = "unit_tester"
    writer: Writer
    scorer: ChecklistScorer
    writing: ClassVar[WriterKwargs] = {"temperature": 0.0, "max_tokens": 2048, "max_attempts": 3}

    def __init__(
        self,
        model: str | Engine | Writer,
        *,
        scorer: ChecklistScorer | None = None,
        threshold: float = 0.7,
        max_samples: int = 10,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        **settings: Unpack[WriterKwargs],
    ):
        fraction("threshold", threshold)
        whole_number("max_samples", max_samples)
        self.threshold, self.max_samples = threshold, max_samples
        self.writer = writer_of(self, model, settings)
        self.model = self.writer.engine.model
        self.prompt = prompt_with(prompt, ("response", "item", "answer"))
        self.scorer = scorer or ChecklistScorer(self.writer.engine, store=self.writer.store)

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Report]:
        tried = [
            check_samples(self.name, some, checklist) for checklist, some in zip(checklists, samples, strict=True)
        ]
        scores = iter(self.scorer.score_batch([sample for some in tried for sample in some]))
        trials = [
            self._trials(checklist, some, [next(scores) for _ in some])
            for checklist, some in zip(checklists, tried, strict=True)
        ]
        self._rewrite_and_judge([trial for of_checklist in trials for trial in of_checklist])
        return [self._refinement(some, len(texts)) for some, texts in zip(trials, tried, strict=True)]

    def _refinement(self, trials: Sequence[_Trial], samples: int) -> Report:
        kept: list[ChecklistItem] = []
        dropped: list[Note] = []
        unclear: list[Note] = []
        for trial in trials:
            if not trial.judged:
                unclear.append(Note(trial.item, _untested(trial, samples)))
            elif trial.failed < self.threshold * trial.judged:
                reason = f"only {trial.failed} of {trial.judged} texts rewritten to fail it were judged to fail it"
                dropped.append(Note(trial.item, f"{reason} (at least {self.threshold:.0%} must)"))
                continue
            kept.append(trial.item)
        lost = transient_failure(reply for trial in trials for reply in trial.lost)
        return Report(kept, dropped, unclear, self.model, lost)

    def _trials(self, checklist: Checklist, samples: Sequence[Sample], scores: Sequence[Score]) -> list[_Trial]:
        trials = []
        for index, item in enumerate(checklist.items):
            lines = [score.items[index] for score in scores]
            passing = [sample for sample, line in zip(samples, lines, strict=True) if line.passed]
            lost: list[GenerationError] = [NoReply(line.unanswered) for line in lines if line.unanswered is not None]
            trials.append(_Trial(item, passing[: self.max_samples], len(lost), lost=lost))
        return trials

    def _rewrite_and_judge(self, trials: Sequence[_Trial]) -> None:
        pairs = [(trial, sample) for trial in trials if failing_answers(trial.item) for sample in trial.passing]
        prompts = [
            self.prompt.messages(response=sample.target, item=trial.item.question, answer=failing_answers(trial.item))
            for trial, sample in pairs
        ]

        def complaint(index: int, reply: Rewrite) -> str | None:
            if not reply.response.strip():
                return "'response' is blank; it must be the rewritten response."
            if reply.response.strip() == pairs[index][1].target.strip():
                return "'response' is the response as it was; it must be changed."
            return None

        rewrites = self.writer.ask(prompts, Rewrite, complaint) if pairs else []
        rewritten = []
        for (trial, sample), reply in zip(pairs, rewrites, strict=True):
            if isinstance(reply, GenerationError):
                trial.complaint = trial.complaint or str(reply)
                trial.lost.append(reply)
            else:
                rewritten.append((trial, replace(sample, checklist=_alone(trial.item), target=reply.response)))
        scores = self.scorer.score_batch([sample for _, sample in rewritten]) if rewritten else []
        for (trial, _), score in zip(rewritten, scores, strict=True):
            (line,) = score.items
            if line.passed is not None:
                trial.judged += 1
                trial.failed += not line.passed
            else:
                trial.complaint = trial.complaint or f"the judge gave no answer: {line.unanswered or 'it abstained'}"
                if line.unanswered is not None:
                    trial.lost.append(NoReply(line.unanswered))


def failing_answers(item: ChecklistItem) -> str:
    """The answers that fail an item, joined by " or "; "" if none does."""
    values = {label: value for label, value in item.values.items() if value is not None}
    credits = {label: value if item.weight >= 0 else 1 - value for label, value in values.items()}
    return " or ".join(label for label, credit in credits.items() if credit < PASS_CREDIT)


def _alone(item: ChecklistItem) -> Checklist:
    # Only whether the item passes is used, and a checklist with total weight 0 is not valid.
    return Checklist(items=(item.model_copy(update={"weight": -1.0 if item.weight < 0 else 1.0}),))


def _untested(trial: _Trial, samples: int) -> str:
    if not failing_answers(trial.item):
        return "untested: no answer to it counts as failing"
    if not trial.passing:
        unread = f" ({trial.unread} reads were unanswered)" if trial.unread else ""
        return f"untested: none of {samples} samples passes it{unread}"
    return f"untested: no rewrite of {len(trial.passing)} passing samples was judged ({trial.complaint})"
