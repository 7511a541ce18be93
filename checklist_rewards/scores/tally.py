"""Totals over a stream of scores: what a batch comes to, in constant memory.

Three means that are often confused: `macro` gives every target the same say (the mean of the pass rates), `micro`
every question (passed over answered, DRFR), `mean` is that of the primary scores. Items that carry a category are
counted by category as well. What was not answered is in none of them, and None stands for a mean of nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from checklist_rewards.scores.score import Score, ratio


@dataclass(slots=True)
class PassRate:
    """Pass rates of one kind of items over a batch."""

    passed: int = 0
    counted: int = 0
    """Items that were answered, and not with a skipped abstention."""
    _rates: list[float] = field(default_factory=lambda: [0.0, 0])

    @property
    def macro(self) -> float | None:
        """Mean over the targets of passed / answered; targets without an answer of this kind are left out."""
        return ratio(*self._rates)

    @property
    def micro(self) -> float | None:
        """Passed over answered items of the whole batch."""
        return ratio(self.passed, self.counted)

    def add(self, passed: int, counted: int) -> None:
        """Count one more target."""
        self.passed += passed
        self.counted += counted
        if counted:
            self._rates[0] += passed / counted
            self._rates[1] += 1


class Tally:
    """Running totals over a stream of scores; every mean is None while there is nothing to average."""

    def __init__(self) -> None:
        self.scored = self.unscored = self.reads = 0
        self.unanswered: Counter[str] = Counter()
        self.all = PassRate()
        """Of all items."""
        self.by_category: dict[str, PassRate] = {}
        """Of the items of each category, in order of first appearance."""
        self._primaries = 0.0

    def add(self, score: Score) -> None:
        """Count one more score."""
        self.reads += score.total
        self.unanswered.update(score.unanswered)
        passed: dict[str | None, list[bool]] = {}
        for item in score.items:
            known = passed.setdefault(item.category, [])
            if item.passed is not None:
                known.append(item.passed)
        self.all.add(sum(map(sum, passed.values())), sum(map(len, passed.values())))
        for category, known in passed.items():
            if category is not None:
                self.by_category.setdefault(category, PassRate()).add(sum(known), len(known))
        if score.primary_score is None:
            self.unscored += 1
        else:
            self.scored += 1
            self._primaries += score.primary_score

    @property
    def macro(self) -> float | None:
        """Mean of the pass rates."""
        return self.all.macro

    @property
    def micro(self) -> float | None:
        """Passed over answered items of the whole batch (DRFR, InFoBench section 3)."""
        return self.all.micro

    @property
    def mean(self) -> float | None:
        """Mean primary score."""
        return ratio(self._primaries, self.scored)


def tally(scores: Iterable[Score]) -> Tally:
    """Totals of a batch; see [`Tally`]."""
    totals = Tally()
    for score in scores:
        totals.add(score)
    return totals
