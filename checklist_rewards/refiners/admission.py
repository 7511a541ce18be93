"""Admission of code checks: a check may answer for the judge where it has been seen to say what the judge says.

A generator can name a code check beside a question, and it can be wrong about it: the check may count what the
question does not ask for. So both answer the question about the sample targets, and the check is admitted if they
agree on at least `threshold` of the texts that both have answered. Otherwise the item is *demoted*: the question
stays, as it was, and the judge answers it. A spec that cannot be used, or that runs code which is not allowed, is
demoted too.

What is not known is no agreement: an item of which no text was answered by both, because the judge's engine or the
check broke, is listed as unclear, and its check is not admitted either. Without any samples nothing can be compared:
that is a [`SampleError`].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.store import Store
from checklist_rewards.judges.checked import AllowCode, run_check, usable_check
from checklist_rewards.refiners.base import Note, Outcome, ReportingRefiner, check_samples, share
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score


class CheckAdmission(ReportingRefiner):
    """Keeps the code checks that agree with the judge.

    Args:
        model (`str`): who judges.
        scorer ([`ChecklistScorer`], *optional*): who judges, instead of one made of `model`.
        threshold (`float`, *optional*, defaults to `0.9`): least share of the texts on which check and judge agree.
        allow_code (`bool` or `"unsafe"`, *optional*, defaults to `False`): whether checks may run code that a model
            may have written, as [`ChecklistScorer`] takes it.
        backend, base_url, store: of the judge, as [`ChecklistScorer`] takes them.

    Raises:
        ChecklistRewardsError: one sentence, for any argument that cannot be used.
    """

    name = "check_admission"

    def __init__(
        self,
        model: str | Engine,
        *,
        scorer: ChecklistScorer | None = None,
        threshold: float = 0.9,
        allow_code: AllowCode = False,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        store: bool | str | Path | Store = True,
    ):
        share("threshold", threshold)
        self.threshold, self.allow_code = threshold, allow_code
        self.model = Engine.of(model).model
        self.scorer = scorer or ChecklistScorer(model, backend=backend, base_url=base_url, store=store)

    def check(self) -> None:
        """Refuse a judge that cannot work, without loading it. Raises [`ModelError`]."""
        self.scorer.check()

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Outcome]:
        reasons = [{item.id: self._refusal(item) for item in c.items if item.check is not None} for c in checklists]
        tried = [
            [item for item in checklist.items if of_item.get(item.id, "no check") is None]
            for checklist, of_item in zip(checklists, reasons, strict=True)
        ]
        asked = [_about(self.name, items, some) for items, some in zip(tried, samples, strict=True)]
        every = [sample for some in asked for sample in some]
        scores = iter(self.scorer.score_batch(every) if every else [])
        answered = [[next(scores) for _ in some] for some in asked]
        return [
            self._outcome(checklist, of_item, items, self._agreement(items, some, of_checklist))
            for checklist, of_item, items, some, of_checklist in zip(
                checklists, reasons, tried, asked, answered, strict=True
            )
        ]

    def _outcome(
        self,
        checklist: Checklist,
        reasons: dict[str, str | None],
        tried: Sequence[ChecklistItem],
        agreements: Sequence[tuple[int, int]],
    ) -> Outcome:
        """What was demoted stands among the dropped items as it came, and among the kept ones without its check."""
        unclear: list[Note] = []
        for item, (agreed, compared) in zip(tried, agreements, strict=True):
            if not compared:
                reasons[item.id] = "none of the texts was answered by its check and by the judge"
                unclear.append(Note(demoted(item), reasons[item.id] or ""))
            elif agreed < self.threshold * compared:
                reasons[item.id] = (
                    f"its check and the judge agree on {agreed} of {compared} texts (on at least "
                    f"{self.threshold:.0%} they must); now the judge answers it"
                )
        kept = [demoted(item) if reasons.get(item.id) else item for item in checklist.items]
        dropped = [Note(item, reasons[item.id] or "") for item in checklist.items if reasons.get(item.id)]
        return Outcome(kept, dropped, unclear, self.model if tried else None)

    def _refusal(self, item: ChecklistItem) -> str | None:
        """Why a check is not even tried."""
        try:
            usable_check(item, self.name, self.allow_code)
        except ChecklistError as error:
            return str(error)
        return None

    def _agreement(
        self, items: Sequence[ChecklistItem], samples: Sequence[Sample], scores: Sequence[Score]
    ) -> list[tuple[int, int]]:
        """Of each item, on how many texts both agree, and how many both have answered."""
        counts = []
        for index, item in enumerate(items):
            verdicts = [run_check(item, sample.target, sample.input, self.allow_code) for sample in samples]
            said = [score.items[index].answer for score in scores]
            both = [(v.answer, answer) for v, answer in zip(verdicts, said, strict=True) if v.answer and answer]
            counts.append((sum(code == answer for code, answer in both), len(both)))
        return counts


def _about(refiner: str, items: Sequence[ChecklistItem], samples: Sequence[Sample]) -> list[Sample]:
    """The samples with the questions of these items, which the judge is asked; none where there are no items."""
    if not items:
        return []
    # Weights do not matter here, and a checklist whose only weight is 0 is none.
    asked = Checklist(items=tuple(item.model_copy(update={"weight": 1.0, "check": None}) for item in items))
    return check_samples(refiner, samples, asked)


def demoted(item: ChecklistItem) -> ChecklistItem:
    """The item without its check. It gets a new id, since who answers is part of it."""
    return ChecklistItem(**item.model_dump(exclude={"id", "check"}))
