"""Aggregates over a stream of scores, in constant memory.

Three means are distinguished: `macro` weights every target equally (the mean of the pass rates), `micro` weights every
question equally (passed / answered, DRFR), and `mean` is the mean primary score. Items with a category are also
counted by category. Unanswered items do not count. A mean of nothing is None.

A target without a score does not count in any of them: it would enter with the few items that were answered, such as
its code checks, so a judge's failure would change the rates. It is counted in `unscored`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from checklist_rewards.scores.score import EQUAL, Score, ratio

MIN_GROUPS = 15
"""The fewest groups, or targets, of an interval. With fewer, its coverage is not close to 95 %."""
_LEAST_DEGREES = 5.0
_Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


@dataclass(slots=True)
class PassRate:
    """Pass rates over a batch, of all items or of one category."""

    passed: int = 0
    counted: int = 0
    """Number of answered items, without skipped abstentions."""
    rate_sum: float = 0.0
    """Sum of the pass rates of the targets with an answered item."""
    rated: int = 0
    """Number of these targets."""
    passed_squares: int = 0
    products: int = 0
    counted_squares: int = 0
    counted_fourths: int = 0
    """Sums over targets of passed squared, passed times answered, and answered to the powers of 2 and 4, for the
    interval."""

    @property
    def macro(self) -> float | None:
        """Mean over targets of passed / answered. Targets without an answered item of this kind do not count."""
        return ratio(self.rate_sum, self.rated)

    @property
    def micro(self) -> float | None:
        """Passed / answered items of the whole batch."""
        return ratio(self.passed, self.counted)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of `micro`, by [`share_interval`]; None for fewer than 15 targets, or of so unequal size that
        they count as fewer than half of 15 (`evaluation/intervals.py`).

        Items of a target depend on each other. The error is that of sums over targets. If all targets have the same
        rate, it is unknown, and a target counts as one answer.
        """
        rate = self.micro
        targets = self.counted_squares**2 / self.counted_fourths if self.counted_fourths else 0.0
        if rate is None or self.rated < MIN_GROUPS or 2 * targets < MIN_GROUPS:
            return None
        spread = self.passed_squares - 2 * rate * self.products + rate**2 * self.counted_squares
        independent = targets
        if spread > EQUAL * self.counted_squares:
            independent = rate * (1 - rate) * self.counted**2 * (targets - 1) / (targets * spread)
        return share_interval(rate, min(float(self.counted), independent), targets)

    def add(self, passed: int, counted: int) -> None:
        """Add the counts of one target."""
        self.passed += passed
        self.counted += counted
        if counted:
            self.rate_sum += passed / counted
            self.rated += 1
        self.passed_squares += passed**2
        self.products += passed * counted
        self.counted_squares += counted**2
        self.counted_fourths += counted**4

    def __iadd__(self, other: PassRate) -> PassRate:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


@dataclass
class Tally:
    """Running aggregates over a stream of scores. Tallies can be added. A mean of nothing is None."""

    scored: int = 0
    unscored: int = 0
    """Targets without a score, which no mean contains."""
    reads: int = 0
    """Items of the targets that have an answer, without those that were not needed."""
    not_needed: int = 0
    """Items that were not read because the score was fixed."""
    unanswered: Counter[str] = field(default_factory=Counter)
    all: PassRate = field(default_factory=PassRate)
    """Pass rates of all items."""
    by_category: dict[str, PassRate] = field(default_factory=dict)
    """Pass rates of each category, in order of first appearance."""
    primary_sum: float = 0.0
    """Sum of the primary scores."""
    net: bool = False
    """Whether they are `net` scores, which are clipped after the mean."""

    def add(self, score: Score) -> None:
        """Add one score."""
        self.reads += 0 if score.no_answer else score.total - score.not_needed
        self.not_needed += score.not_needed
        self.unanswered.update(score.unanswered)
        passed: dict[str | None, list[bool]] = {}
        for item in score.items:
            outcomes = passed.setdefault(item.category, [])
            if item.passed is not None and score.primary_score is not None:
                outcomes.append(item.passed)
        self.all.add(sum(map(sum, passed.values())), sum(map(len, passed.values())))
        for category, outcomes in passed.items():
            if category is not None:
                self.by_category.setdefault(category, PassRate()).add(sum(outcomes), len(outcomes))
        if score.primary_score is None:
            self.unscored += not score.not_needed
        else:
            self.scored += 1
            self.primary_sum += score.primary_score
            self.net |= score.primary_metric == "net"

    def __iadd__(self, other: Tally) -> Tally:
        self.scored += other.scored
        self.unscored += other.unscored
        self.reads += other.reads
        self.not_needed += other.not_needed
        self.unanswered.update(other.unanswered)
        self.all += other.all
        for category, rate in other.by_category.items():
            self.by_category.setdefault(category, PassRate()).__iadd__(rate)
        self.primary_sum += other.primary_sum
        self.net |= other.net
        return self

    @property
    def macro(self) -> float | None:
        """Mean of the pass rates."""
        return self.all.macro

    @property
    def micro(self) -> float | None:
        """Passed / answered items of the whole batch (DRFR, InFoBench section 3)."""
        return self.all.micro

    @property
    def mean(self) -> float | None:
        """Mean primary score, for `net` clipped to [0, 1]."""
        mean = ratio(self.primary_sum, self.scored)
        return min(1.0, max(0.0, mean)) if mean is not None and self.net else mean


def tally(scores: Iterable[Score]) -> Tally:
    """Aggregate a batch of scores into a [`Tally`]."""
    result = Tally()
    for score in scores:
        result.add(score)
    return result


def _t_95(degrees: float) -> float:
    """97.5 % quantile of Student's t, to 0.003 from 5 degrees of freedom on, and to 0.001 from 6.5 on (Abramowitz and
    Stegun 1964, 26.7.5)."""
    # Not by scipy: `score` works in the base install.
    z = _Z_95
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / degrees**power for power, term in enumerate(terms, start=1))


def share_interval(
    share: float, independent: float, groups: float, quantile: Callable[[float], float] = _t_95
) -> tuple[float, float]:
    """95 % interval of a share of dependent answers: Wilson's with the quantile of t.

    If few answers of the rarer kind are drawn, their share and its error are both too small, and the end on the side
    of the middle is too near. With n independent answers that count as yes (for the lower end: as no), t has
    therefore n - 2 degrees of freedom: at least 5, and at most `groups - 1`. (Korn and Graubard 1999 take the number
    of groups with such an answer, minus 1.) If every group counts as one answer, the error is that of a binomial,
    which is known. So the number is multiplied by `independent / (independent - groups)`. Groups with many such
    answers may be missing by chance, so 1 / `independent` is averaged with 1 / `groups`, its value for groups of one
    mind, which has the weight exp(-n / 2).

    Args:
        share (`float`): the estimate, in [0, 1].
        independent (`float`): number of independent answers whose share would have the same error, above 0.
        groups (`float`): effective number of groups, at least 6.
        quantile (callable, *optional*): the 97.5 % quantile of t by degrees of freedom.
    """

    def end(kind: float) -> tuple[float, float]:
        degrees, counted, own = groups - 1, independent, kind * independent
        if independent > groups:
            degrees = min(degrees, max(_LEAST_DEGREES, own - 2) * independent / (independent - groups))
            counted = 1 / (1 / independent + math.exp(-own / 2) * (1 / groups - 1 / independent))
        return wilson(share * counted, counted, quantile(degrees)) or (0.0, 1.0)

    return end(1 - share)[0], end(share)[1]


def wilson(passed: float, counted: float, quantile: float = _Z_95) -> tuple[float, float] | None:
    """95 % Wilson score interval of a proportion (Wilson 1927), for independent answers; None for `counted=0`.

    >>> [round(bound, 3) for bound in wilson(8, 10)]
    [0.49, 0.943]
    """
    if not counted:
        return None
    # Not by statsmodels: `score` works in the base install, without numpy.
    rate, z2 = passed / counted, quantile**2
    middle = rate + z2 / (2 * counted)
    half = quantile * math.sqrt(rate * (1 - rate) / counted + (quantile / (2 * counted)) ** 2)
    scale = 1 + z2 / counted
    # Bounds at a rate of 0 and 1 are off by rounding.
    return min(rate, max(0.0, (middle - half) / scale)), max(rate, min(1.0, (middle + half) / scale))
