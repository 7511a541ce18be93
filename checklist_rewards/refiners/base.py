"""The base of all refiners, and the report they write about every item.

Refiners process many checklists at once (`refine_batch`): all prompts of a stage go to the engine in one call, and all
questions are embedded together. `refine` processes a batch of one.

If a model reply cannot be parsed, the items concerned stay unchanged and are listed as *unclear* in the report. If a
reply is missing for a transient reason, such as a timeout, the result is a [`NoReply`]: the checklist can be refined
later, and would otherwise stay as it is in a file that counts as finished. A refiner never returns an empty checklist:
if no item is left, the result is a [`ChecklistError`], and the report still gives the reason for each item.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from checklist_rewards.backends.embedding import Embedder, check_embedder
from checklist_rewards.backends.replies import NoReply
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.version import __version__
from checklist_rewards.writer import Writer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """An item with the reason why it was dropped or is unclear."""

    item: ChecklistItem
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Result of refining one checklist, item by item."""

    kept: Sequence[ChecklistItem]
    """The items of the refined checklist, in its order."""
    dropped: Sequence[Note] = ()
    """Items that were removed or merged into another item."""
    unclear: Sequence[Note] = ()
    """Items that were kept because they could not be assessed."""
    model: str | None = None
    """The model that was used, if any."""
    failed: NoReply | None = None
    """The first reply that is missing for a transient reason."""


class Refiner(Protocol):
    """Improves checklists."""

    def validate(self) -> None:
        """Check settings and models before any call. Raises a [`ChecklistRewardsError`]."""
        ...

    def refine(self, checklist: Checklist, samples: Sequence[Sample] = ()) -> Checklist:
        """Refine one checklist. `samples` are targets for refiners that test items on texts; their checklists are
        ignored. Raises [`ChecklistError`] if no item is left, and [`NoReply`] if a reply is missing for a transient
        reason."""
        ...


Refined = Checklist | ChecklistError | NoReply
"""A refined checklist, or the error if no item is left or a reply is missing for a transient reason."""


def refine_all(
    refiner: Refiner, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]
) -> list[Refined]:
    """Refine many checklists: in one batch if the refiner has `refine_batch`, otherwise one by one."""
    batch = getattr(refiner, "refine_batch", None)
    if batch is not None:
        return batch(checklists, samples)
    refined: list[Refined] = []
    for checklist, of_checklist in zip(checklists, samples, strict=True):
        try:
            refined.append(refiner.refine(checklist, of_checklist))
        except (ChecklistError, NoReply) as error:
            refined.append(error)
    return refined


def transient_failure(replies: Iterable[object]) -> NoReply | None:
    """The first reply that is missing for a transient reason."""
    return next((reply for reply in replies if isinstance(reply, NoReply) and reply.transient), None)


class ReportingRefiner:
    """Base of the packaged refiners: runs a batch and keeps the reports of the last call."""

    name: ClassVar[str]
    unassessed: ClassVar[str] = "stay unchanged"
    """What happens to items that could not be assessed."""
    embedder: Embedder | None = None
    writer: Writer | None = None
    scorer: ChecklistScorer | None = None
    """What the refiner compares questions, writes and judges with, if it does."""
    reports: Sequence[Report] = ()
    """Reports of the last call, one per checklist."""

    @property
    def report(self) -> Report | None:
        """Report of the last checklist refined; None before the first call."""
        return self.reports[-1] if self.reports else None

    def refine(self, checklist: Checklist, samples: Sequence[Sample] = ()) -> Checklist:
        """As [`Refiner.refine`]."""
        [refined] = self.refine_batch([checklist], [samples])
        if not isinstance(refined, Checklist):
            raise refined
        return refined

    def refine_batch(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]] = ()) -> list[Refined]:
        """Refine checklists together, each with samples (targets to test its items on).

        Returns:
            A [`Checklist`] per input in the same order. In its place, a [`ChecklistError`] if no item is left, or a
            [`NoReply`] if a reply is missing for a transient reason.

        Raises:
            SampleError: If required samples are missing or not valid.
            ModelError: If a model or the embedder cannot be used.
        """
        self.reports = ()
        parsed = [Checklist.parse(checklist) for checklist in checklists]
        self.validate()
        self.reports = self._refine(parsed, samples or [()] * len(parsed))
        for note in (note for report in self.reports for note in report.dropped):
            logger.info("%s: dropped %r, because %s", self.name, note.item.question, note.reason)
        unclear = [note for report in self.reports if report.failed is None for note in report.unclear]
        if unclear:
            logger.warning(
                "%s: %d of %d items could not be assessed and %s; the first: %r, because %s",
                *(self.name, len(unclear), sum(map(len, parsed)), self.unassessed),
                *(unclear[0].item.question, unclear[0].reason),
            )
        return [self._refined(checklist, report) for checklist, report in zip(parsed, self.reports, strict=True)]

    def validate(self) -> None:
        """Check that embedder, writer and judge can be used, without loading them. Raises [`ModelError`]."""
        if self.embedder is not None:
            check_embedder(self.embedder)
        for model in (self.writer, self.scorer):
            if model is not None:
                model.validate()

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Report]:
        raise NotImplementedError

    def _refined(self, checklist: Checklist, report: Report) -> Refined:
        if report.failed is not None:
            return NoReply(report.failed.unanswered, missing=f"{self.name} could not refine the checklist")
        if not report.kept:
            first = report.dropped[0].reason
            return ChecklistError(
                f"{self.name}: no item is left of {len(checklist)}; the first was dropped because {first}."
            )
        fields = {
            "items": list(report.kept),
            "source": _joined(checklist.source, f"{self.name}/{__version__}"),
            "model": _joined(checklist.model, report.model),
        }
        return Checklist.parse(fields, f"{self.name}: the refined checklist")


def check_samples(refiner: str, samples: Sequence[Sample], checklist: Checklist) -> list[Sample]:
    """The samples with `checklist` as their checklist. Raises [`SampleError`] if there are none or one is invalid."""
    if not samples:
        raise SampleError(
            f"{refiner} needs samples (texts, some of which pass the checklist), but got none; "
            "pass `samples` or remove this refiner."
        )
    for number, sample in enumerate(samples, start=1):
        if not isinstance(sample, Sample):
            got = f"{type(sample).__name__} {sample!r:.60}"
            raise SampleError(f"{refiner}: sample {number} must be a Sample with a target, got {got}.")
    return [replace(sample, checklist=checklist) for sample in samples]


def _joined(*parts: str | None) -> str | None:
    """The distinct non-empty parts joined by "+"."""
    return "+".join(dict.fromkeys(part for part in parts if part)) or None
