"""A judge with calibrated probabilities.

The reads are those of the inner judge and are stored under its keys, so changing the calibration causes no new reads.
A contextual calibration also reads each item about an empty target, once per input. Without that answer, a read is
unanswered("uncalibrated").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ChecklistError, ModelError
from checklist_rewards.judges.base import Judge, Progress, Read, Receipt
from checklist_rewards.judges.calibration import Calibration, kind_of
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered

EMPTY = ""


class CalibratedJudge:
    """Applies a calibration to the verdicts of a judge.

    Args:
        judge ([`Judge`]):
            Judge that answers.
        calibration ([`Calibration`]):
            Calibration fitted on reads of this judge.
    """

    def __init__(self, judge: Judge, calibration: Calibration):
        self.inner, self.calibration = judge, calibration
        self.name = judge.name

    @property
    def receipt(self) -> Receipt:
        """Total cost of the inner judge."""
        return self.inner.receipt

    def check(self) -> None:
        """Raise [`ModelError`] if the calibration belongs to another judge, or the inner judge cannot be used."""
        if self.name != self.calibration.judge:
            raise ModelError(
                f"the calibration was fitted on reads of {self.calibration.judge!r}, but the judge is {self.name!r}; "
                "fit a calibration on reads of this judge."
            )
        self.inner.check()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`] for an item that the judge cannot answer or the calibration has no map for."""
        self.inner.check_item(item, where)
        if kind_of(item) not in self.calibration.maps:
            raise ChecklistError(
                f"{where}, item {item.id} ({item.question!r}): the calibration has no map for {kind_of(item)} items; "
                f"it has {', '.join(self.calibration.maps)}."
            )

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order."""
        verdicts = self.inner.judge(reads, progress)
        empties: Sequence[Verdict | None] = [None] * len(reads)
        if self.calibration.contextual:
            empties = self.inner.judge(empty_targets(reads))
        return [
            _with_cause(self.calibration.apply(read.item, verdict, empty), empty)
            for read, verdict, empty in zip(reads, verdicts, empties, strict=True)
        ]


def _with_cause(verdict: Verdict, empty: Verdict | None) -> Verdict:
    """The verdict, with the reason of a transient failure of the empty-target read, so that it can be retried."""
    why = verdict.unanswered
    if why is None or why.reason != Reason.UNCALIBRATED or empty is None or empty.unanswered is None:
        return verdict
    cause = empty.unanswered.transient_reason
    if cause is None:
        return verdict
    return replace(verdict, unanswered=Unanswered(why.reason, Unanswered(cause, why.detail)))


def empty_targets(reads: Sequence[Read]) -> list[Read]:
    """The same reads about an empty target."""
    return [replace(read, target=EMPTY) for read in reads]
