"""The judge interface: reads in, verdicts out. A *read* is one item answered about one target.

A judge does not raise for a read that fails. It returns an *unanswered* verdict with the reason, which the score takes
into account. Errors that no retry can fix, such as a missing model or an invalid prompt, are raised before the first
read.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from checklist_rewards.backends import Engine, Progress, Sampling
from checklist_rewards.backends.budget import Receipt
from checklist_rewards.chat import Message
from checklist_rewards.checklists import ChecklistItem, Key
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered

if TYPE_CHECKING:
    from checklist_rewards.images import Image
    from checklist_rewards.judges.questions import FewShot
    from checklist_rewards.prompts import PromptTemplate


@dataclass(slots=True)
class Ask:
    """One item to be answered about one target. Not frozen, for the reason that [`Outcome`] gives."""

    item: ChecklistItem
    target: str
    input: str | None = None
    reference: str | None = None
    history: str | None = None
    sample: int = 0
    """Number of the checklist. A judge that answers a whole checklist in one call groups reads by this number."""
    checked: Verdict | None = None
    """The verdict of the item's code check, if it has run already."""
    messages: tuple[Message, ...] = ()
    """The messages of the target, if the judge itself asks about them what the item's scope says."""

    @property
    def texts(self) -> dict[str, str | None]:
        """What a prompt shows besides the question, by placeholder."""
        return {"target": self.target, "input": self.input, "reference": self.reference, "history": self.history}


def by_sample(asks: Sequence[Ask]) -> list[list[int]]:
    """The places of the reads about each text of a sample, in order."""
    places: dict[tuple[object, ...], list[int]] = {}
    for place, read in enumerate(asks):
        places.setdefault((read.sample, *read.texts.values()), []).append(place)
    return list(places.values())


Answers = Callable[[list[Ask]], Sequence[Verdict]]
"""Answers asks, in order."""
ThinkingPer = Literal["item", "target"]
"""What a thought is about: one question, or all about a target."""


def counted(keys: Sequence[Key], asked: Sequence[bool], verdicts: Sequence[Sequence[Verdict]]) -> Receipt:
    """The number of reads of a call, without tokens: from the key of each request, whether it was sent to the engine
    instead of answered from the store, and its verdicts, one per read. Requests with the same key are counted once."""
    distinct = dict(zip(keys, zip(asked, verdicts, strict=True), strict=True)).values()
    reads, known = sum(map(len, verdicts)), sum(len(group) for _, group in distinct)
    fresh = sum(len(group) for is_asked, group in distinct if is_asked)
    unanswered = sum(verdict.unanswered is not None for _, group in distinct for verdict in group)
    return Receipt(reads, reads - known, known - fresh, fresh, unanswered)


class Judge(ABC):
    """Base class of judges: answers items about targets."""

    name: str
    """Shown in logs, and in scores if the judge puts it into its verdicts."""
    engine: Engine | None = None
    """The engine that answers; None of a judge that asks other judges or a reward server."""
    sampling: Sampling | None = None
    """How replies are sampled; None of a judge that writes nothing."""
    examples: FewShot | None = None
    """The examples that are shown with a question."""
    prompt: PromptTemplate | None = None
    options_prompt: PromptTemplate | None = None
    """The prompts of questions, and of those with options; None of a judge without a prompt."""

    @abstractmethod
    def answer(self, asks: Sequence[Ask], progress: Progress | None = None) -> tuple[list[Verdict], Receipt]:
        """Answer reads. A read that fails is unanswered, with the reason.

        Args:
            asks (sequence of [`Ask`]): Reads to answer.
            progress (`Callable[[int], None]`, *optional*): Called with the number of reads answered since the last
                call.

        Returns:
            One verdict per read, in order, and what this call has cost.
        """

    def validate(self) -> None:
        """Raise a [`ChecklistRewardsError`] for a judge that cannot be used, without loading an engine."""
        if self.engine is not None:
            _ = self.engine.identity

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise a [`ChecklistError`] for an item that this judge cannot answer, starting with `where`, or that its
        examples contradict."""
        if self.examples is not None:
            self.examples.check(item)

    def check_images(self, images: Sequence[Image], what: str) -> None:
        """Refuse images that the engine of this judge cannot take, as [`Engine.check_images`]."""
        if self.engine is not None:
            self.engine.check_images(images, what, "judge")

    def load(self) -> None:
        """Load the engine of this judge now instead of at the first read. Raises [`ModelError`]."""
        if self.engine is not None:
            self.engine.load()

    def parts(self) -> Iterator[Judge]:
        """The judges that this judge asks, with their own, and then this judge itself."""
        yield self

    @property
    def engines(self) -> list[Engine]:
        """The engines of all its parts."""
        return [part.engine for part in self.parts() if part.engine is not None]


DEFAULT_QUORUM = 0.5


def quorate(weights: Sequence[float], answered: Sequence[bool], quorum: float) -> bool:
    """Whether at least one judge and at least the fraction `quorum` of the weight answered."""
    answered_weight = math.fsum(weight for weight, did in zip(weights, answered, strict=True) if did)
    # The tolerance allows for floating-point sums of weights such as 0.1.
    return any(answered) and answered_weight / math.fsum(weights) >= quorum - 1e-9


def lost_votes(votes: Sequence[Verdict], voters: str) -> Unanswered | None:
    """The reason if several replies or thoughts of one judge give no verdict: the most frequent reason if none of them
    answered, else that too few did; None if enough did."""
    reasons = Counter(vote.unanswered for vote in votes)
    if None not in reasons:
        return reasons.most_common(1)[0][0]
    return missed_quorum(votes, voters=voters)


def missed_quorum(
    votes: Sequence[Verdict],
    weights: Sequence[float] | None = None,
    quorum: float = DEFAULT_QUORUM,
    voters: str = "judges",
) -> Unanswered | None:
    """The reason if several votes on one item give no verdict, because too few of them (`quorum`) answered; else None.
    The reason includes a transient failure if a retry may reach the quorum."""
    weights = [1.0] * len(votes) if weights is None else weights
    answered = [vote.unanswered is None for vote in votes]
    if quorate(weights, answered, quorum):
        return None
    detail = f"{sum(answered)} of {len(votes)} {voters} answered"
    causes = [vote.unanswered and vote.unanswered.transient_reason for vote in votes]
    possible = [did or cause is not None for did, cause in zip(answered, causes, strict=True)]
    cause = next(filter(None, causes), None)
    if cause is not None and quorate(weights, possible, quorum):
        detail = Unanswered(cause, detail)
    return Unanswered(Reason.QUORUM, detail)
