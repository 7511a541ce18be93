"""Labelled reads of a judge: the training data of a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement.scored import Answer, JudgedRow
from checklist_rewards.judges.calibration import scores_of
from checklist_rewards.scores import Verdict
from checklist_rewards.validation import np


@dataclass(frozen=True, slots=True)
class LabelledRead:
    """One read of a judge with its label."""

    item: ChecklistItem
    probabilities: Mapping[str, float]
    """Uncalibrated probabilities of the judge."""
    label: str
    group: str
    empty: Mapping[str, float] | None = None
    """Probabilities of the same item for the empty target."""

    @property
    def scores(self) -> np.ndarray:
        """Log-probabilities in the order of the labels, minus those of the empty target if given."""
        return np.array(list(scores_of(self.probabilities, self.empty).values()))

    @property
    def odds(self) -> float:
        """Log-odds of yes, minus those of the empty target if given."""
        scores = scores_of(self.probabilities, self.empty)
        return scores[YES] - scores[NO]


@dataclass(frozen=True, slots=True)
class Reads:
    """Labelled reads of one judge."""

    judge: str
    read_by: str | None
    """How the judge was read: "logprobs", "votes", …"""
    reads: tuple[LabelledRead, ...]
    left_out: int = 0
    """Number of labelled items without probabilities: unanswered, answered without probabilities, or about a text
    without an answer, which the judge has not read."""


def labelled_reads(
    rows: Sequence[JudgedRow],
    labels: Sequence[list[Answer | None] | float | None],
    empties: Mapping[tuple[str, str], Verdict] | None = None,
) -> Reads:
    """Collect the labelled reads of scored rows.

    Args:
        rows (sequence of [`JudgedRow`]): the scored rows.
        labels (sequence, one per row): from [`labels_of`].
        empties (mapping of (row id, item key) to [`Verdict`], *optional*): verdicts on the empty target, for a
            contextual calibration.

    Raises:
        SampleError: If no read is labelled, or the reads come from several judges or reading methods.
    """
    reads: list[LabelledRead] = []
    judges: dict[tuple[str, str | None], str] = {}
    left_out = 0
    for row, given in zip(rows, labels, strict=True):
        if not isinstance(given, list):
            continue
        for key, item, line, label in zip(row.keys, row.items, row.score.items, given, strict=True):
            if label is None or line.method == "check":
                continue
            probabilities = line.uncalibrated or line.probabilities
            empty = None if empties is None else empties[row.id, key].probabilities
            if probabilities is None or line.unanswered is not None or (empties is not None and empty is None):
                left_out += 1
                continue
            judges.setdefault((line.judge or "", line.method), row.where)
            reads.append(LabelledRead(item, probabilities, label.label, row.group, empty))
    if not reads:
        raise SampleError(
            f"{rows[0].where.rpartition(',')[0]}: no item has both a label and probabilities; {left_out} "
            "have only a label."
        )
    if len(judges) > 1:
        (one, first), (other, second) = list(judges.items())[:2]
        named = [f"{judge!r} by {method} ({where})" for (judge, method), where in ((one, first), (other, second))]
        raise SampleError(f"a calibration needs reads of one judge, but got reads of {named[0]} and of {named[1]}.")
    [(judge, read_by)] = judges
    return Reads(judge, read_by, tuple(reads), left_out)
