"""Whole numbers in digits and words, and the bounds that the words around them give."""

from __future__ import annotations

import re
from typing import NamedTuple

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


def number(words: str) -> int:
    """The value of a whole number in digits or words.

    >>> number("1,200"), number("twenty five"), number("two hundred"), number("half a dozen"), number("twice")
    (1200, 25, 200, 6, 2)
    """
    return int(words.replace(",", "")) if DIGITS.fullmatch(words) else TIMES.get(words) or VALUES[words]


Bounds = dict[str, int]


class Amount(NamedTuple):
    """A lower and an upper bound; `how` is "G" at least, "L" at most, "O" over, "U" under, "E" exactly, "A" about,
    "R" a range, or "" for a number alone."""

    low: int | None
    high: int | None
    how: str = ""

    @property
    def bounds(self) -> Bounds:
        """The arguments of a counting check."""
        if self.low is not None and self.low == self.high:
            return {"exactly": self.low}
        return {name: n for name, n in (("at_least", self.low), ("at_most", self.high)) if n is not None}

    @property
    def denied(self) -> Bounds | None:
        """The arguments under a negation ("not more than 50"), None where a negation leaves open what is required."""
        if self.how == "O" and self.low is not None and self.high is None:
            return {"at_most": self.low - 1}
        return {"at_least": self.high + 1} if self.how == "U" and self.high is not None and self.low is None else None

    def joined(self, other: Amount) -> Amount:
        """The range of two bounds; about if they do not fit."""
        lows = [n for n in (self.low, other.low) if n is not None]
        highs = [n for n in (self.high, other.high) if n is not None]
        fits = len(lows) == len(highs) == 1 and lows[0] <= highs[0]
        return Amount(lows[0], highs[0], "R") if fits else Amount(None, None, "A")


def amount(how: str, value: int) -> Amount:
    """The bounds of a number with its comparison."""
    low = {"L": None, "U": None, "O": value + 1}.get(how, value)
    return Amount(low, {"G": None, "O": None, "U": value - 1}.get(how, value), how)
