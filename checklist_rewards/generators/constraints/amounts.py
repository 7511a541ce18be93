"""Whole numbers in digits and words, and the bounds that the words around them give."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from checklist_rewards.generators.constraints.reading import Clause

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SMALL = {word: n for n, word in enumerate(_UNITS)} | {word: 10 * n for n, word in enumerate(_TENS, start=2)}
VALUES = {
    **_SMALL,
    **{f"{ten} {unit}": _SMALL[ten] + _SMALL[unit] for ten in _TENS for unit in _UNITS[1:10]},
    **{f"{word} hundred": 100 * n for word, n in _SMALL.items()},
    **{f"{word} thousand": 1000 * n for word, n in _SMALL.items()},
    "hundred": 100,
    "thousand": 1000,
    "dozen": 12,
    "half a dozen": 6,
    "single": 1,
}
"""Words for numbers. Two numbers of these in a row ("two hundred fifty") are not read as one."""
TIMES = {"once": 1, "twice": 2, "thrice": 3}
"""Words for a number of times."""
DIGITS = re.compile(r"\d{1,7}|\d{1,3}(?:,\d{3})+")
Bounds = dict[str, int]


class Amount(NamedTuple):
    """A lower and an upper bound, with the basic word of its comparison: "atleast", "atmost", "over", "under", "exactly" or
    "only", "range", "roughly", or "" for a number alone. It stands at the basic words from `start` to `end`."""

    low: int | None
    high: int | None
    how: str = ""
    start: int = 0
    end: int = 0

    @property
    def bounds(self) -> Bounds:
        """The arguments of a counting check."""
        if self.low is not None and self.low == self.high:
            return {"exactly": self.low}
        return {name: n for name, n in (("at_least", self.low), ("at_most", self.high)) if n is not None}

    @property
    def denied(self) -> Bounds | None:
        """The arguments under a negation ("not more than 50"), None where a negation leaves open what is required."""
        if self.how == "over" and self.low is not None:
            return {"at_most": self.low - 1}
        return {"at_least": self.high + 1} if self.how == "under" and self.high is not None else None

    def joined(self, other: Amount) -> Amount:
        """The range of two bounds; roughly if they do not fit."""
        low = self.low if self.low is not None else other.low
        high = self.high if self.high is not None else other.high
        both = (self.low is None) != (other.low is None) and (self.high is None) != (other.high is None)
        fits = both and low is not None and high is not None and low <= high
        return self._replace(low=low, high=high, how="range" if fits else "roughly", end=other.end)


COMPARISONS = frozenset("atleast atmost over under exactly only between roughly".split())
AFTER = {"or_more": "atleast", "or_fewer": "atmost", "atleast": "atleast", "atmost": "atmost"}
"""Comparisons that may follow the number or what is counted."""


def compared(how: str, value: int, start: int, end: int) -> Amount:
    """The bounds of a number with its comparison."""
    low = {"atmost": None, "under": None, "over": value + 1}.get(how, value)
    return Amount(low, {"atleast": None, "over": None, "under": value - 1}.get(how, value), how, start, end)


def amount_at(clause: Clause, at: int) -> Amount:
    """The amount whose first number stands at a place: "at least 50", "between 3 and 5", "three or more"."""
    words, tokens, first = clause.words, clause.tokens, int(clause.tokens[at].rstrip("x"))
    before = at - 1 - (tokens[at - 1] in ("the", "a"))
    how = tokens[before] if tokens[before] in COMPARISONS else ""
    start, end = (before if how else at), at + 1
    if how and tokens[before - 1] in COMPARISONS:
        how, start = ("roughly" if tokens[before - 1] == "roughly" else how), before - 1
    if words[before] in ("about", "around"):
        return Amount(None, None, "roughly", before, end)
    if words[end] in ("-", "to", "and", "or") and tokens[end + 1].isdigit():
        last, to = int(tokens[end + 1]), words[end]
        clear = last > first and (to != "or" or last == first + 1) and (to != "and" or how == "between")
        clear = clear and how in ("", "between", "exactly", "only")
        return Amount(first, last, "range" if clear else "roughly", start, end + 2)
    if not how and clause.limits(start):
        how = "atmost"
    if tokens[end] in AFTER and how in ("", "exactly", "only"):
        how, end = AFTER[tokens[end]], end + 1
    found = compared("roughly" if how == "between" else how, first, start, end)
    joint = end + (tokens[end] == ",")
    joint += tokens[joint] == "and"
    if tokens[joint] in ("atleast", "atmost", "over", "under") and tokens[joint + 1][:1].isdigit():
        found = found.joined(compared(tokens[joint], int(tokens[joint + 1].rstrip("x")), joint, joint + 2))
    return found


def followed(clause: Clause, found: Amount, end: int) -> tuple[Amount, int]:
    """An amount with the comparisons after what it counts, which ends at `end`: "words or more", "words, at most 9"."""
    tokens = clause.tokens
    if tokens[end] in AFTER and not clause.number_after(end):
        if found.how in ("", "exactly", "only") and found.low is not None:
            found = compared(AFTER[tokens[end]], found.low, found.start, found.end)
        end += 1
    joint = end + (tokens[end] == ",")
    joint += tokens[joint] == "and"
    pair = tokens[joint : joint + 2]
    how, value = pair if pair[1].isdigit() else pair[::-1]
    if value.isdigit() and (how in ("atleast", "atmost") or (how in ("over", "under") and how == pair[0])):
        after = joint + 2 + (tokens[joint + 2] == "-")
        if tokens[after] not in ("short", "mark", "word", "piece", "letter", "section"):
            return found.joined(compared(how, int(value), joint, joint + 2)), joint + 2
    return found, end
