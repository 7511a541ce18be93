"""Admission of code checks: keeps the code checks that agree with the judge.

A generator can attach a code check to a question, and the check may not measure what the question asks. Therefore both
the check and the judge answer the question about the sample targets. The check is admitted if they agree on at least
`threshold` of the texts that both answered. Otherwise the item is *demoted*: the question is kept and answered by the
judge. Items with an invalid check, or a check that runs code that is not allowed, are demoted too.

If no text was answered by both, because the judge or the check failed, the item is demoted and listed as unclear.
Without samples the refiner raises a [`SampleError`].
"""

from __future__ import annotations

from collections.abc import Sequence

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.judges.checked import AllowCode, run_check, usable_check
from checklist_rewards.refiners.base import Note, Report, ReportingRefiner, check_samples
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score
from checklist_rewards.validation import fraction


class CheckAdmission(ReportingRefiner):
    """Keeps the code checks that agree with the judge.

    Args:
        scorer ([`ChecklistScorer`]): the judge.
        threshold (`float`, *optional*, defaults to `0.9`): least fraction of the texts on which check and judge
            must agree.
        allow_code (`bool` or `"unsafe"`, *optional*, defaults to `False`): whether checks may run code, which a
            model may have written; see [`ChecklistScorer`].

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    name = "check_admission"
    scorer: ChecklistScorer

    def __init__(self, scorer: ChecklistScorer, *, threshold: float = 0.9, allow_code: AllowCode = False):
        fraction("threshold", threshold)
        if not hasattr(scorer, "judge"):
            raise SampleError(f"scorer={scorer!r:.60} is not allowed; it must be a ChecklistScorer.")
        self.scorer, self.threshold, self.allow_code = scorer, threshold, allow_code
        self.model = scorer.judge.name

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Report]:
        invalid = [{item.id: self._invalid(item) for item in c.items if item.check is not None} for c in checklists]
        tried = [
            [item for item in checklist.items if reasons.get(item.id, "no check") is None]
            for checklist, reasons in zip(checklists, invalid, strict=True)
        ]
        requests = [_questions_only(self.name, items, some) for items, some in zip(tried, samples, strict=True)]
        every = [sample for some in requests for sample in some]
        scores = iter(self.scorer.score_batch(every) if every else [])
        scored = [[(sample, next(scores)) for sample in some] for some in requests]
        return [self._refinement(*each) for each in zip(checklists, invalid, tried, scored, strict=True)]

    def _refinement(
        self,
        checklist: Checklist,
        reasons: dict[str, str | None],
        tried: Sequence[ChecklistItem],
        scored: Sequence[tuple[Sample, Score]],
    ) -> Report:
        """Demoted items are listed twice: as dropped with their check, and as kept without it."""
        unclear: list[Note] = []
        for index, item in enumerate(tried):
            agree = []  # on each text that both answered
            for sample, score in scored:
                by_check = run_check(item, sample.target, sample.input, self.allow_code).answer
                by_judge = score.items[index].answer
                agree += [by_check == by_judge] if by_check and by_judge else []
            if not agree:
                reasons[item.id] = "no text was answered by both its check and the judge"
                unclear.append(Note(demoted(item), reasons[item.id] or ""))
            elif sum(agree) < self.threshold * len(agree):
                reasons[item.id] = (
                    f"its check and the judge agree on {sum(agree)} of {len(agree)} texts (required: "
                    f"{self.threshold:.0%}); the judge answers it from now on"
                )
        kept = [demoted(item) if reasons.get(item.id) else item for item in checklist.items]
        dropped = [Note(item, reasons[item.id] or "") for item in checklist.items if reasons.get(item.id)]
        return Report(kept, dropped, unclear, self.model if tried else None)

    def _invalid(self, item: ChecklistItem) -> str | None:
        """Why a check is invalid or not allowed; None if it can be tried."""
        try:
            usable_check(item, self.name, self.allow_code)
        except ChecklistError as error:
            return str(error)
        return None


def _questions_only(refiner: str, items: Sequence[ChecklistItem], samples: Sequence[Sample]) -> list[Sample]:
    """The samples with a checklist of these items without their checks, for the judge; empty without items."""
    if not items:
        return []
    # Weights do not matter here, and a checklist with total weight 0 is not valid.
    checklist = Checklist(items=tuple(item.model_copy(update={"weight": 1.0, "check": None}) for item in items))
    return check_samples(refiner, samples, checklist)


def demoted(item: ChecklistItem) -> ChecklistItem:
    """The item without its check. Its id changes, because the check is part of it."""
    return ChecklistItem(**item.model_dump(exclude={"id", "check"}))
