"""Item analysis: what each question of a scored set tells, as test theory asks it of an exam's questions.

    >>> analysis = ItemAnalysis()
    >>> for score in scores:
    ...     analysis.add(score)
    >>> [(line.question, line.discrimination, line.flags) for line in analysis.report()]  # doctest: +SKIP

An item is known by its id, wherever it stands. Everything is over the targets where it was answered; what was not
answered is counted apart, and a figure that does not exist is None. With p the share of targets that pass:

- *variance* p (1 - p): 0.25 at most, 0 for an item that tells nothing apart;
- *discrimination*: the item-rest correlation, Pearson's r over targets between passing the item and the share of the
  target's other answered items that pass. Near 0 the item measures something else, below 0 the opposite;
- *redundancy*: the other item of the same targets whose answers it repeats most (phi, Pearson's r of two pass/fail
  variables), and the one whose wording is nearest (cosine of sentence embeddings);
- *stability*: the share of repeated answers that agree with the first. Repeats are other scorings, other wordings, and
  the samples of a judge that votes, which are held against the outcome of the vote.

Targets are kept as two small arrays per item, so a file is analysed in one pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.refiners.embedding import Embedder, comparable, similarities
from checklist_rewards.scores import ItemScore, Score, ratio

MIN_TARGETS = 5
"""Fewest targets for a correlation to be shown."""
ALWAYS, NEVER = 0.95, 0.05
LOW_DISCRIMINATION = 0.1
SAME_ANSWERS = 0.9
"""phi from which two items give the same answers."""
SAME_WORDS = 0.85
STABLE = 0.9
OFTEN_UNANSWERED = 0.2
FLAGS = {
    "always_passes": f"passes {ALWAYS:.0%} of its targets or more",
    "never_passes": f"passes {NEVER:.0%} of its targets or fewer",
    "inverted": "passes where the other items fail",
    "not_discriminating": f"item-rest correlation below {LOW_DISCRIMINATION}",
    "same_answers": f"another item gives the same answers (phi {SAME_ANSWERS} or more)",
    "same_words": f"another item asks nearly the same (cosine {SAME_WORDS} or more)",
    "unstable": f"fewer than {STABLE:.0%} of repeated answers agree with the first",
    "often_unanswered": f"{OFTEN_UNANSWERED:.0%} of its reads or more were not answered",
}
"""What is pointed out about an item, and when."""


@dataclass(frozen=True, slots=True)
class ItemReport:
    """What is known of one item."""

    id: str
    question: str
    category: str | None
    answered: int
    unanswered: int
    pass_rate: float | None
    """In [0, 1]; for a penalty the share of targets that are free of it."""
    variance: float | None
    """p (1 - p), in [0, 0.25]."""
    discrimination: float | None
    """Item-rest correlation, in [-1, 1]; None under 5 targets or where either side is constant."""
    same_answers: str | None = None
    """Question of the item whose answers are most alike."""
    phi: float | None = None
    same_words: str | None = None
    """Question of the item whose wording is nearest among those that could be the same question."""
    similarity: float | None = None
    stability: float | None = None
    """Share of repeated answers that agree with the first, in [0, 1]."""
    repeats: int = 0
    flags: tuple[str, ...] = ()


@dataclass
class _Seen:
    """One item's answers: the numbers of the targets, and whether they passed."""

    question: str
    category: str | None
    targets: array[int] = field(default_factory=lambda: array("L"))
    passed: bytearray = field(default_factory=bytearray)
    unanswered: int = 0
    repeats: int = 0
    agreeing: int = 0

    def add_samples(self, line: ItemScore) -> None:
        """Count the votes of one judge as repeats; those of several are no repeats of each other."""
        if line.answer is not None and line.method == "votes" and len({vote.judge for vote in line.votes or ()}) == 1:
            said = [vote.answer for vote in line.votes or () if vote.answer is not None]
            if len(said) > 1:  # one alone agrees with itself
                self.repeats += len(said)
                self.agreeing += said.count(line.answer)


class ItemAnalysis:
    """Fed score by score; see the module."""

    def __init__(self) -> None:
        self._items: dict[str, _Seen] = {}
        self._checklists: set[tuple[str, ...]] = set()
        self._passed: array[int] = array("L")
        self._answered: array[int] = array("L")

    @property
    def targets(self) -> int:
        """How many were added."""
        return len(self._answered)

    def add(self, score: Score) -> None:
        """Count one target."""
        number = self.targets
        known = 0
        passing = 0
        for line in score.items:
            seen = self._items.setdefault(line.id, _Seen(line.question, line.category))
            seen.add_samples(line)
            if line.passed is None:
                seen.unanswered += line.unanswered is not None
                continue
            seen.targets.append(number)
            seen.passed.append(line.passed)
            known += 1
            passing += line.passed
        self._answered.append(known)
        self._passed.append(passing)
        self._checklists.add(tuple(dict.fromkeys(line.id for line in score.items)))

    def add_repeat(self, first: Score, again: Score) -> None:
        """Compare a second scoring of a target with the first, item by item in order.

        Raises:
            SampleError: if they have different numbers of items.
        """
        if len(first.items) != len(again.items):
            raise SampleError(f"a repeat has {len(again.items)} items, its first scoring has {len(first.items)}.")
        for line, other in zip(first.items, again.items, strict=True):
            if line.answer is not None and other.answer is not None:
                seen = self._items.setdefault(line.id, _Seen(line.question, line.category))
                seen.repeats += 1
                seen.agreeing += line.answer == other.answer

    def report(self, embedder: Embedder | None = None) -> list[ItemReport]:
        """One report per item, in order of first appearance. Without an embedder wordings are not compared."""
        alike = self._alike()
        worded = {} if embedder is None else self._worded(embedder)
        return [self._report(id, seen, alike.get(id), worded.get(id)) for id, seen in self._items.items()]

    def _report(
        self, id: str, seen: _Seen, alike: tuple[float, str] | None, worded: tuple[float, str] | None
    ) -> ItemReport:
        count = len(seen.targets)
        share = ratio(sum(seen.passed), count)
        variance = None if share is None else share * (1 - share)
        discrimination = self._discrimination(seen)
        stability = ratio(seen.agreeing, seen.repeats)
        unanswered = ratio(seen.unanswered, count + seen.unanswered) or 0.0
        enough = count >= MIN_TARGETS
        found = {
            "always_passes": enough and share is not None and share >= ALWAYS,
            "never_passes": enough and share is not None and share <= NEVER,
            "inverted": discrimination is not None and discrimination < 0,
            "not_discriminating": discrimination is not None and 0 <= discrimination < LOW_DISCRIMINATION,
            "same_answers": alike is not None and alike[0] >= SAME_ANSWERS,
            "same_words": worded is not None and worded[0] >= SAME_WORDS,
            "unstable": stability is not None and stability < STABLE,
            "often_unanswered": unanswered >= OFTEN_UNANSWERED,
        }
        return ItemReport(
            id=id,
            question=seen.question,
            category=seen.category,
            answered=count,
            unanswered=seen.unanswered,
            pass_rate=share,
            variance=variance,
            discrimination=discrimination,
            same_answers=None if alike is None else self._items[alike[1]].question,
            phi=None if alike is None else alike[0],
            same_words=None if worded is None else self._items[worded[1]].question,
            similarity=None if worded is None else worded[0],
            stability=stability,
            repeats=seen.repeats,
            flags=tuple(name for name, holds in found.items() if holds),
        )

    def _discrimination(self, seen: _Seen) -> float | None:
        targets = np.asarray(seen.targets, dtype=np.int64)
        own = np.frombuffer(bytes(seen.passed), dtype=np.uint8).astype(float)
        others = np.asarray(self._answered)[targets] - 1.0
        rest = np.asarray(self._passed)[targets] - own
        return _correlation(own[others > 0], rest[others > 0] / others[others > 0])

    def _alike(self) -> dict[str, tuple[float, str]]:
        """Of each item, the phi and the id of the item of the same targets whose answers are most alike."""
        best: dict[str, tuple[float, str]] = {}
        for one, other in {pair for checklist in self._checklists for pair in combinations(sorted(checklist), 2)}:
            first, second = self._items[one], self._items[other]
            if min(len(first.targets), len(second.targets)) < MIN_TARGETS:
                continue
            _, at, also = np.intersect1d(first.targets, second.targets, assume_unique=True, return_indices=True)
            phi = _correlation(
                np.frombuffer(bytes(first.passed), dtype=np.uint8)[at].astype(float),
                np.frombuffer(bytes(second.passed), dtype=np.uint8)[also].astype(float),
            )
            if phi is None:
                continue
            for id, partner in ((one, other), (other, one)):
                if id not in best or (phi, partner) > best[id]:
                    best[id] = phi, partner
        return best

    def _worded(self, embedder: Embedder) -> dict[str, tuple[float, str]]:
        """Of each item, the cosine and the id of the item of the same checklist whose wording is nearest."""
        best: dict[str, tuple[float, str]] = {}
        for checklist in self._checklists:
            items = [ChecklistItem(id=id, question=self._items[id].question) for id in checklist]
            if len(items) < 2:
                continue
            # Questions that differ in a number, a quoted word or a "not" are close and yet others.
            cosines = np.where(comparable(items), similarities(embedder, items), -1.0)
            np.fill_diagonal(cosines, -1.0)
            for row, item in enumerate(items):
                nearest = int(cosines[row].argmax())
                found = float(cosines[row, nearest]), items[nearest].id
                if found[0] > -1.0 and (item.id not in best or found > best[item.id]):
                    best[item.id] = found
        return best


def _correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    """Pearson's r; None under 5 pairs or where a side is constant."""
    if len(one) < MIN_TARGETS or one.std() == 0 or other.std() == 0:
        return None
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1.0, 1.0))


def flagged(reports: Sequence[ItemReport]) -> list[ItemReport]:
    """The items about which something is pointed out, the most remarkable first."""
    return sorted((line for line in reports if line.flags), key=lambda line: (-len(line.flags), line.question))
