"""The unit tester: keeps the items that a judge can enforce.

An item is enforceable if breaking it shows. The sample targets are scored on the whole checklist. For each item, those
that pass are rewritten by a model to fail that item and nothing else, and the rewritten texts are scored on the item
alone: it stays if at least `threshold` of them now fail. For a penalty, and for an item with options, failing means
the answer that costs.

What is not known counts neither way: a read that the judge left unanswered, a rewrite that could not be had. An item
that no sample passes, or of which no rewrite was judged, is untested; it stays, and the report says so. Without any
samples nothing can be tested: that is a [`SampleError`].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError
from checklist_rewards.files.store import Store
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.refiners.base import Asker, Note, Outcome, ReportingRefiner, check_samples, share, whole_number
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import PASS_CREDIT, Score

DEFAULT_PROMPT = "refiners/rewrite_to_fail"


class Rewrite(BaseModel):
    """The reply to the rewriting prompt."""

    response: str


@dataclass(slots=True)
class _Trial:
    """What is known of one item."""

    item: ChecklistItem
    passing: list[Sample]
    unread: int
    failed: int = 0
    judged: int = 0
    complaint: str | None = None


class UnitTester(ReportingRefiner):
    """Keeps items that a text which breaks them fails.

    Args:
        model (`str`): who rewrites.
        scorer ([`ChecklistScorer`], *optional*): who judges; defaults to one with the same model.
        threshold (`float`, *optional*, defaults to `0.7`): least share of an item's rewrites that must fail it.
        max_samples (`int`, *optional*, defaults to `10`): passing samples that are rewritten per item, the first ones.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`): auto, transformers, vllm, openai, or an
            engine.
        base_url (`str`, *optional*): an OpenAI-compatible server.
        prompt (`str` or `Path`, *optional*): with `{response}`, `{item}` and `{answer}`, the one wanted.
        max_tokens, max_attempts (`int`, *optional*, default to `2048` and `3`): of one rewrite, and replies for each.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`): where replies are kept; False for nowhere.

    Raises:
        ChecklistRewardsError: one sentence, for any argument that cannot be used.
    """

    name = "unit_tester"

    def __init__(
        self,
        model: str | Engine,
        *,
        scorer: ChecklistScorer | None = None,
        threshold: float = 0.7,
        max_samples: int = 10,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        max_tokens: int = 2048,
        max_attempts: int = 3,
        store: bool | str | Path | Store = True,
    ):
        share("threshold", threshold)
        whole_number("max_samples", max_samples)
        self.threshold, self.max_samples = threshold, max_samples
        self.model = Engine.of(model).model
        needs = ("response", "item", "answer")
        self.asker = Asker(model, backend, base_url, prompt, needs, max_tokens, max_attempts, store)
        self.scorer = scorer or ChecklistScorer(model, backend=backend, base_url=base_url, store=store)

    def check(self) -> None:
        """Refuse a model or a judge that cannot work, without loading it. Raises [`ModelError`]."""
        self.asker.check()
        self.scorer.check()

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Outcome]:
        tried = [
            check_samples(self.name, some, checklist) for checklist, some in zip(checklists, samples, strict=True)
        ]
        scores = iter(self.scorer.score_batch([sample for some in tried for sample in some]))
        trials = [
            self._trials(checklist, some, [next(scores) for _ in some])
            for checklist, some in zip(checklists, tried, strict=True)
        ]
        self._rewrite_and_judge([trial for of_checklist in trials for trial in of_checklist])
        return [self._outcome(some, len(texts)) for some, texts in zip(trials, tried, strict=True)]

    def _outcome(self, trials: Sequence[_Trial], samples: int) -> Outcome:
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
        return Outcome(kept, dropped, unclear, self.model)

    def _trials(self, checklist: Checklist, samples: Sequence[Sample], scores: Sequence[Score]) -> list[_Trial]:
        trials = []
        for index, item in enumerate(checklist.items):
            lines = [score.items[index] for score in scores]
            passing = [sample for sample, line in zip(samples, lines, strict=True) if line.passed]
            unread = sum(line.unanswered is not None for line in lines)
            trials.append(_Trial(item, passing[: self.max_samples], unread))
        return trials

    def _rewrite_and_judge(self, trials: Sequence[_Trial]) -> None:
        pairs = [(trial, sample) for trial in trials if failing_answers(trial.item) for sample in trial.passing]
        fields = [
            {"response": sample.target, "item": trial.item.question, "answer": failing_answers(trial.item)}
            for trial, sample in pairs
        ]

        def complaint(index: int, reply: Rewrite) -> str | None:
            if not reply.response.strip():
                return "'response' is blank; it must be the rewritten response."
            if reply.response.strip() == pairs[index][1].target.strip():
                return "'response' is the response as it was; it must be changed."
            return None

        rewrites = self.asker.ask(fields, Rewrite, complaint) if pairs else []
        rewritten = []
        for (trial, sample), reply in zip(pairs, rewrites, strict=True):
            if isinstance(reply, GenerationError):
                trial.complaint = trial.complaint or str(reply)
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


def failing_answers(item: ChecklistItem) -> str:
    """The answers that fail an item, in words; "" if none does."""
    known = {label: value for label, value in item.values.items() if value is not None}
    credits = {label: value if item.weight >= 0 else 1 - value for label, value in known.items()}
    return " or ".join(label for label, credit in credits.items() if credit < PASS_CREDIT)


def _alone(item: ChecklistItem) -> Checklist:
    # Only whether it passes is asked, and a checklist whose only weight is 0 is none.
    return Checklist(items=(item.model_copy(update={"weight": -1.0 if item.weight < 0 else 1.0}),))


def _untested(trial: _Trial, samples: int) -> str:
    if not failing_answers(trial.item):
        return "untested: no answer to it counts as failing"
    if not trial.passing:
        unread = f" ({trial.unread} reads were left unanswered)" if trial.unread else ""
        return f"untested: none of {samples} samples passes it{unread}"
    return f"untested: no rewrite of {len(trial.passing)} passing samples was judged ({trial.complaint})"
