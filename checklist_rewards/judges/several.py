"""What panels and cascades have in common: several judges that are checked and paid together.

A judge whose server is not there has failed on every read, and the others go on without it: that is a warning, and
every read says so in its votes. Only where nobody is left does it end the run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import NoServerError, SampleError
from checklist_rewards.judges.base import Judge, Progress, Read, Receipt
from checklist_rewards.replies import BACKEND_ERROR
from checklist_rewards.scores import Verdict

logger = logging.getLogger(__name__)


class Several:
    """Two or more different judges. Raises [`SampleError`] for fewer; `what` names them in it."""

    def __init__(self, judges: Sequence[Judge], what: str):
        if len(judges) < 2 or len({id(judge) for judge in judges}) < len(judges):
            raise SampleError(f"a {what} has two or more different judges, got {len(judges)}.")
        self.judges = list(judges)

    @property
    def receipt(self) -> Receipt:
        """What all judges have cost together; a read counts for each judge that was asked."""
        return sum((judge.receipt for judge in self.judges), Receipt())

    def check(self) -> None:
        """Refuse a judge that cannot work. Raises a [`ChecklistRewardsError`]."""
        for judge in self.judges:
            judge.check()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that one of the judges cannot answer. Raises [`ChecklistError`]."""
        for judge in self.judges:
            judge.check_item(item, where)


def ask(judge: Judge, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict] | NoServerError:
    """What one of several judges says, or why it cannot be asked."""
    try:
        return judge.judge(reads, progress)
    except NoServerError as error:
        logger.warning("going on without the judge %s: %s", judge.name, error)
        if progress is not None:
            progress(len(reads))
        return error


def silence(judge: Judge, error: NoServerError) -> Verdict:
    """The verdict of a judge that could not be asked."""
    return Verdict(unanswered=f"{BACKEND_ERROR}: {error}", judge=judge.name)


def share(name: str, value: float) -> None:
    """Refuse what is no number from 0 to 1. Raises [`SampleError`]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise SampleError(f"{name}={value!r} is not allowed; it is a number from 0 to 1.")
