"""What panels and cascades have in common: several judges that are checked and paid together."""

from __future__ import annotations

from collections.abc import Sequence

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.base import Judge, Receipt


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


def share(name: str, value: float) -> None:
    """Refuse what is no number from 0 to 1. Raises [`SampleError`]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise SampleError(f"{name}={value!r} is not allowed; it is a number from 0 to 1.")
