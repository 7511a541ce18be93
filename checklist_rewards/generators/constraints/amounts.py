"""Whole numbers in a prompt, in digits and words, and the bounds that the words around them give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
VALUES = {
    **{word: n for n, word in enumerate(_UNITS)},
    **{word: 10 * n for n, word in enumerate(_TENS, start=2)},
    **{"single": 1, "a single": 1, "one single": 1, "once": 1, "twice": 2, "thrice": 3},
    **{"hundred": 100, "thousand": 1000, "a hundred": 100, "a thousand": 1000},
    **{"a dozen": 12, "one dozen": 12, "half a dozen": 6, "two dozen": 24},
}
"""Words for numbers."""
_NUMBER = re.compile(
    r"\b(?<![.,$€£#/'])(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,7}(?![\d,.]\d|\d)"
    rf"|(?:(?:{'|'.join(sorted(VALUES, key=len, reverse=True))})(?:[ -]and)?[ -]?)+)(?!\w|[.,]\d|%)"
)
_WHOLE = re.compile(r"\d{1,7}|\d{1,3}(?:,\d{3})+")


def numbers(text: str) -> list[re.Match[str]]:
    """The whole numbers of a text in lower case, without decimal numbers, prices and percentages."""
    return list(_NUMBER.finditer(text))


def number(text: str) -> int:
    """The value of a whole number in digits or words.

    >>> number("1,200"), number("twenty-five"), number("two hundred and fifty"), number("a dozen"), number("twice")
    (1200, 25, 250, 12, 2)
    """
    text = text.strip(" -")
    if text in VALUES or (value := whole(text)) is None:
        words = [(word, 0, 0) for word in re.split(r"[ -]", text) if word in VALUES or word == "and"]
        return VALUES[text] if text in VALUES else joined(words, 0, 0, words[0][0])[0]
    return value


def whole(word: str) -> int | None:
    """The value of a number in digits, None for another word."""
    return int(word.replace(",", "")) if word[0].isdigit() and _WHOLE.fullmatch(word) else None


def joined(words: Sequence[tuple[str, int, int]], first: int, last: int, text: str) -> tuple[int, int]:
    """The value of a number in several words ("two hundred and fifty"), and its last word."""
    value = VALUES[text]
    while last + 1 < len(words):
        at = last + 1
        if words[at][0] == "-" or (words[at][0] == "and" and value % 100 == 0 and value):
            at += 1
        part = VALUES.get(words[at][0]) if at < len(words) else None
        if part is None or words[at][0] in ("single", "once", "twice", "thrice"):
            break
        if part in (100, 1000) and value < 100:
            value *= part
        elif (value >= 100 and value % 100 == 0 and part < 100) or (value >= 20 and value % 10 == 0 and 0 < part < 10):
            value += part
        else:
            break
        last = at
    return value, last


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
