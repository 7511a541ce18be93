"""Shared by panels and cascades: a group of judges with common checks and a common receipt.

If the server of a judge is unreachable, all its reads are unanswered and the other judges continue. A warning is
logged, and the votes of every read contain the failure. The run stops only if no judge is left.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import NoServerError, SampleError
from checklist_rewards.judges.base import Judge, Progress, Read, Receipt
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered

logger = logging.getLogger(__name__)


class JudgeGroup:
    """Two or more different judges.

    Args:
        judges (sequence of [`Judge`]):
            The judges.
        what (`str`):
            Name of the group in errors, such as "panel".

    Raises:
        SampleError: For fewer than two judges, or if one is given twice.
    """

    def __init__(self, judges: Sequence[Judge], what: str):
        if len(judges) < 2 or len({id(judge) for judge in judges}) < len(judges):
            raise SampleError(f"a {what} requires two or more different judges, got {len(judges)}.")
        self.judges = list(judges)

    @property
    def receipt(self) -> Receipt:
        """Total cost of all judges. A read counts once per judge that was called."""
        return sum((judge.receipt for judge in self.judges), Receipt())

    def check(self) -> None:
        """Raise a [`ChecklistRewardsError`] if one of the judges cannot be used."""
        for judge in self.judges:
            judge.check()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`] for an item that one of the judges cannot answer."""
        for judge in self.judges:
            judge.check_item(item, where)


def judge_or_error(
    judge: Judge, reads: Sequence[Read], progress: Progress | None = None
) -> list[Verdict] | NoServerError:
    """The verdicts of one judge of a group, or the error if its server is unreachable."""
    try:
        return judge.judge(reads, progress)
    except NoServerError as error:
        logger.warning("continuing without the judge %s: %s", judge.name, error)
        if progress is not None:
            progress(len(reads))
        return error


def unreachable(judge: Judge, error: NoServerError) -> Verdict:
    """The unanswered verdict of a judge whose server is unreachable."""
    return Verdict(unanswered=Unanswered(Reason.BACKEND_ERROR, str(error)), judge=judge.name)
