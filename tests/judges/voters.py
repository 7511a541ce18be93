"""Judges that say what a rule says, standing at the `Judge` seam."""

from collections.abc import Callable, Sequence

from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import NoServerError
from checklist_rewards.judges import Ask, Judge, Progress, Receipt
from checklist_rewards.scores import Verdict


class Voter(Judge):
    """Gives every read the verdict of a rule; counts what it was asked."""

    def __init__(self, rule: Callable[[Ask], Verdict] | Verdict, name: str = "voter"):
        self.rule = rule if callable(rule) else lambda read: rule
        self.name = name
        self.asked: list[Ask] = []

    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        self.asked += asks
        if progress is not None:
            progress(len(asks))
        return [self.rule(read) for read in asks], Receipt(reads=len(asks), asked=len(asks))


class Absent(Voter):
    """A judge whose server is not there."""

    def __init__(self, name: str = "absent"):
        super().__init__(DEAD, name)

    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        raise NoServerError(f"no server answers for {self.name}")


def sure(yes: float, **more: object) -> Verdict:
    """A read with this P(yes)."""
    return Verdict({YES: yes, NO: 1 - yes}, method="logprobs", **more)  # type: ignore[arg-type]


DEAD = Verdict(unanswered="backend_error: gone")
