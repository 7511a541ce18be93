"""Numbers in a prompt with the words that bound them: "no more than 50", "between 3 and 5", "twice or more".

[`numbers`] finds whole numbers in a text in lower case, [`amount`] reads the comparison before a number and the range
after it. A number in a decimal, a price or a percentage is no whole number and is not found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from checklist_rewards.generators.constraints.reading import Clause, one_line, pattern, starts

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_VALUES = {word: n for n, word in enumerate(_UNITS)} | {word: 10 * n for n, word in enumerate(_TENS, start=2)}
_REPEATED = {"once": 1, "twice": 2, "thrice": 3}
_ONES = "|".join(_UNITS[1:10])
_SMALL = rf"(?:{'|'.join(_TENS)})(?:[ -](?:{_ONES}))?|{'|'.join(sorted(_UNITS, key=len, reverse=True))}"
NUMBER = one_line(
    rf"""\d{{1,3}}(?:,\d{{3}})+(?![\d,])|\d{{1,7}}(?![\d,.]\d|\d)
    |(?:a|{_SMALL})[ -](?:hundred|thousand)(?:(?:[ -]and)?[ -](?:{_SMALL}))?
    |half a dozen|(?:a|one|two) dozen|a single|single|{_SMALL}"""
)
"""Pattern of a whole number in digits or words."""
_NUMBER = re.compile(rf"\b(?<![.,$€£#/'])(?:{NUMBER}|{'|'.join(_REPEATED)})(?!\w|[.,]\d|%)")


_NUMBER_WORDS = starts(" ".join((*_VALUES, *_REPEATED, "hundred thousand dozen single")))


def has_number(clause: Clause) -> bool:
    """Whether a clause can have a number; much faster than [`numbers`]."""
    return clause.has(_NUMBER_WORDS) or any(start[0].isdigit() for start in clause.starts)


def numbers(text: str) -> list[re.Match[str]]:
    """The whole numbers of a text in lower case, without decimal numbers, prices and percentages."""
    return list(_NUMBER.finditer(text))


def number(text: str) -> int:
    """The value of a whole number in digits or words.

    >>> number("1,200"), number("twenty-five"), number("two hundred and fifty"), number("a dozen"), number("twice")
    (1200, 25, 250, 12, 2)
    """
    if text in _REPEATED:
        return _REPEATED[text]
    if text[0].isdigit():
        return int(text.replace(",", ""))
    if "dozen" in text:
        return {"half": 6, "a": 12, "one": 12, "two": 24}[text.split()[0]]
    if "single" in text:
        return 1
    total, part = 0, 0
    for word in re.split(r"[ -]", text):
        if word in ("hundred", "thousand"):
            total, part = total + max(part, 1) * (100 if word == "hundred" else 1000), 0
        else:
            part += 1 if word == "a" else _VALUES.get(word, 0)
    return total + part


_COMPARISON = one_line(
    r"""(?P<least>at (?:the |the very )?least|(?:a |the )?minimum(?: (?:length|number|total|count|word count
    |requirement))?(?: of| is|:)?|min\.?(?: of|:)?|(?:no|not|nothing) (?:fewer|less|shorter|lower) than
    |(?:not|never) (?:under|below)|>=|≥|=>)
    |(?P<most>at (?:the |the very )?most|(?:a |the )?maximum(?: (?:length|number|total|count|word count|limit))?
    (?: of| is|:)?|max\.?(?: of|:)?|up to|(?:no|not|nothing|never) (?:more|longer|greater|bigger|larger|higher) than
    |(?:not|never) (?:over|above|to exceed|exceed(?:ing)?)|no over|within(?: a limit of)?
    |(?:limit|restrict|cap|confine)(?:s|ed|ped|ing|ping)?(?: [a-z']+){0,6}? (?:to|at)(?: a maximum of| no more than)?
    |upper limit of|(?:a |the )?(?:[a-z]+ )?limit(?: of| is|:)|<=|≤|=<)
    |(?P<over>(?:more|greater|longer|larger) than|over|above|exceed(?:s|ing)?|upwards of|in excess of|beyond|>)
    |(?P<under>(?:fewer|less|shorter|smaller|lower) than|under|below|<)"""
)
_COMPARED = pattern(
    rf"""(?:{_COMPARISON}
    |(?P<exact>exactly|precisely|strictly|an exact(?: total| number| count)?|exact)|(?P<only>only|just)
    |(?P<about>about|around|approximately|approx\.?|roughly|nearly|almost|close to|some|~|circa|ca\.|an average of
    |on average|in the region of|or so)
    |(?P<between>(?:anywhere |somewhere )?between|(?:anywhere |ranging )?from|in the range of|range of))
    \s*(?:(?:a total of|a|an|the|of|is|be|:)\s+)?"""
)
_SECOND = re.compile(rf"\s*,?\s*(?:and|but|or)\s+(?:{_COMPARISON})\s*(?P<n>{NUMBER})\b")
_TO = re.compile(rf"\s*(?P<to>-|to|and|or|through)\s*(?P<n>{NUMBER})(?![\w%])")
_MORE = pattern(
    r"""\s*[(,]?\s*(?:\+|(?:or|and) (?:(?P<more>more|above|greater|longer|over|higher|up)
    |(?P<less>fewer|less|under|below|shorter|lower))\b(?! than)
    |(?P<max>max\b\.?|maximum|at (?:the )?most|tops|limit\b)|(?P<min>min\b\.?|minimum|at (?:the )?least))"""
)
_ANOTHER_UNIT = pattern(r"[\s-]+(?!(?:in|for|and|or|but|to|long|total|when|with|about|on|at|please|so|each)\b)[a-z]")
_MOST_WORDS = 7
"""Number of words before a number among which its comparison can start."""

Bounds = dict[str, int]


class Amount(NamedTuple):
    """A number with the words that bound it, from `start` to `end` in the text.

    `how` is "least", "most", "over", "under", "exact", "only", "about", "range", or "bare" for a number alone.
    """

    start: int
    end: int
    low: int | None
    high: int | None
    how: str

    @property
    def bounds(self) -> Bounds:
        """The arguments of a counting check."""
        return _arguments(self.low, self.high)

    @property
    def denied(self) -> Bounds | None:
        """The arguments under a negation ("not more than 50"), None where a negation leaves open what is required."""
        if self.how == "over" and self.low is not None and self.high is None:
            return {"at_most": self.low - 1}
        if self.how == "under" and self.high is not None and self.low is None:
            return {"at_least": self.high + 1}
        return None

    @property
    def several(self) -> Amount:
        """The amount for things of which there may be more than a bare number."""
        return self._replace(high=None) if self.how == "bare" else self

    def after_unit(self, text: str, position: int) -> Amount:
        """The amount with the words after its unit: "words or more", "words and at most 100"."""
        more = _MORE.match(text, position)
        if more and self.how in ("bare", "only"):
            return _bounded(self, more, more.end())
        second = _SECOND.match(text, position)
        if second and self.how != "bare" and not _ANOTHER_UNIT.match(text, second.end()):
            return _with_second(self, second) or self._replace(end=position)
        return self._replace(end=position)


def amount(text: str, match: re.Match[str], first: int = 0) -> Amount:
    """The amount of a number of a text, with the comparison before it (from `first` on) and the range after it. Its
    `end` is where a unit can start."""
    value = number(match.group())
    compared = _comparison(text, first, match.start())
    how = str(next((name for name, found in compared.groupdict().items() if found), "bare")) if compared else "bare"
    start = compared.start() if compared else match.start()
    other = _TO.match(text, match.end())
    if other and (other["to"] != "and" or how == "between") and number(other["n"]) > value:
        high = number(other["n"])
        clear = how in ("bare", "between") and not (other["to"] == "or" and high != value + 1)
        return Amount(start, other.end(), value, high, "range" if clear else "about")
    if how == "between":
        how = "bare"
    found = Amount(start, match.end(), *_bounds(how, value), how)
    if (more := _MORE.match(text, match.end())) and how in ("bare", "only"):
        return _bounded(found, more, more.end())
    second = _SECOND.match(text, match.end())
    return (second and _with_second(found, second)) or found


def _comparison(text: str, first: int, end: int) -> re.Match[str] | None:
    """The longest comparison that ends where a number starts."""
    longest, start = None, end
    for _ in range(_MOST_WORDS):
        start = max(text.rfind(" ", first, start - 1), text.rfind("(", first, start - 1), first - 1) + 1
        longest = _COMPARED.fullmatch(text, start, end) or longest
        if start == first:
            break
    return longest


def _bounded(found: Amount, more: re.Match[str], end: int) -> Amount:
    most = more["less"] or more["max"]
    low, high = (None, found.high) if most else (found.low, None)
    return found._replace(end=end, low=low, high=high, how="most" if most else "least")


def _with_second(found: Amount, second: re.Match[str]) -> Amount | None:
    """The amount with its other bound, if exactly one was given and the second fits."""
    how = next(name for name in ("least", "most", "over", "under") if second[name])
    low, high = _bounds(how, number(second["n"]))
    low = found.low if found.low is not None else low
    high = found.high if found.high is not None else high
    one = (found.low is None) != (found.high is None)
    if not one or low is None or high is None or low > high:
        return None
    return found._replace(end=second.end(), low=low, high=high, how="range")


def _bounds(how: str, value: int) -> tuple[int | None, int | None]:
    if how == "least":
        return value, None
    if how == "most":
        return None, value
    if how == "over":
        return value + 1, None
    return (None, value - 1) if how == "under" else (value, value)


def _arguments(low: int | None, high: int | None) -> Bounds:
    if low is not None and low == high:
        return {"exactly": low}
    return {name: value for name, value in (("at_least", low), ("at_most", high)) if value is not None}


def quantity(bounds: Mapping[str, int], thing: str) -> str:
    """Bounds in words: "at least 3 hashtags"."""
    low, high, exactly = bounds.get("at_least"), bounds.get("at_most"), bounds.get("exactly")
    if exactly is not None:
        return f"exactly {exactly} {thing}"
    if low is not None and high is not None:
        return f"between {low} and {high} {thing}"
    return f"at least {low} {thing}" if high is None else f"at most {high} {thing}"
