"""Numbers in a prompt with the words that bound them: "no more than 50", "between 3 and 5", "twice or more"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from checklist_rewards.generators.constraints.reading import (
    PromptText,
    conditional,
    contains,
    negation,
    one_line,
    pattern,
)

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
_NUMBER = re.compile(rf"(?:{NUMBER}|{'|'.join(_REPEATED)})(?!\w|[.,]\d|%)")
_DIGITS = re.compile(r"\d+")
_FIRST_WORDS = (*_UNITS, *_TENS, *_REPEATED)
_LAST_WORDS = re.compile(r"\b(?:(?:half )?a dozen|a (?:hundred|thousand|single)|single)\b")


def numbers(text: str) -> list[re.Match[str]]:
    """The whole numbers of a text in lower case, without decimal numbers, prices and percentages."""
    starts = [match.start() for match in _DIGITS.finditer(text)]
    for word in _FIRST_WORDS:
        at = text.find(word)
        while at >= 0:
            starts.append(at)
            at = text.find(word, at + 1)
    if "dozen" in text or "hundred" in text or "thousand" in text or "single" in text:
        starts += [match.start() for match in _LAST_WORDS.finditer(text)]
    found, end = [], 0
    for start in sorted(starts):
        if start < end or (start and (text[start - 1].isalnum() or text[start - 1] in "_.,$€£#/'")):
            continue
        if match := _NUMBER.match(text, start):
            found.append(match)
            end = match.end()
    return found


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


_LEAST = one_line(
    r"""at (?:the very |the )?least|(?:a |the )?minimum(?: (?:length|number|total|count|word count
    |requirement))?(?: of| is|:)?
    |min\.?(?: of|:)?|(?:no|not|nothing) (?:fewer|less|shorter|lower) than|(?:not|never) (?:under|below)|>=|≥|=>"""
)
_MOST = one_line(
    r"""at (?:the very |the )?most|(?:a |the )?maximum(?: (?:length|number|total|count|word count|limit))?(?: of| is
    |:)?
    |max\.?(?: of|:)?|up to|(?:no|not|nothing|never) (?:more|longer|greater|bigger|larger|higher) than
    |(?:not|never) (?:over|above|to exceed|exceed(?:ing)?)|no over
    |(?:limit|restrict|cap|confine)(?:s|ed|ped|ing|ping)?(?: [a-z']+){0,6}? (?:to|at)(?: a maximum of| no more than)?
    |within(?: a limit of)?|upper limit of|(?:a |the )?(?:[a-z]+ )?limit (?:of|is)|<=|≤|=<"""
)
_OVER = "more than|greater than|longer than|larger than|over|above|exceed(?:s|ing)?|upwards of|in excess of|beyond|>"
_UNDER = "fewer than|less than|shorter than|smaller than|lower than|under|below|<"
_COMPARISON = rf"(?P<least>{_LEAST})|(?P<most>{_MOST})|(?P<over>{_OVER})|(?P<under>{_UNDER})"
_COMPARED = pattern(
    rf"""(?:^|(?<=[\W_]))(?:{_COMPARISON}
    |(?P<exact>exactly|precisely|strictly|an exact(?: total| number| count)?|exact)|(?P<only>only|just)
    |(?P<about>about|around|approximately|approx\.?|roughly|nearly|almost|close to|some|~|circa|ca\.|an average of
    |on average|in the region of|or so)
    |(?P<between>(?:anywhere |somewhere )?between|(?:anywhere |ranging )?from|in the range of|range of))
    \s*(?:(?:a total of|a|an|the|of|is|be|:)\s+)?$"""
)
_SECOND = re.compile(rf"\s*,?\s*(?:and|but|or)\s+(?:{_COMPARISON})\s*(?P<n>{NUMBER})\b")
_TO = re.compile(rf"\s*(?P<to>-|to|and|or|through)\s*(?P<n>{NUMBER})(?![\w%])")
_MORE = pattern(
    r"""\s*(?:\+|(?:or|and) (?:(?P<more>more|above|greater|longer|over|higher|up)
    |(?P<less>fewer|less|under|below|shorter|lower))\b)"""
)
_AFTER = pattern(
    r"""\s*[(,]?\s*(?:(?:or|and) (?:(?P<more>more|above|greater|longer|over|up)|(?P<less>fewer|less|under|below
    |shorter))\b
    |(?P<max>max\b\.?|maximum|at (?:the )?most|tops|or under|limit\b)|(?P<min>min\b\.?|minimum|at (?:the )?least))"""
)
_ANOTHER_UNIT = pattern(
    r"""[\s-]+(?!(?:in|for|and|or|but|to|long|total|when|while|with|about|on|at|please|so)\b)[a-z]"""
)
_LONG, _SHORT = 70, 42
"""Number of characters before a number that are searched for a comparison, with and without "limit ... to"."""
_LIMITS = ("limit", "restrict", "cap", "confine")


@dataclass(slots=True)
class Amount:
    """A number with the words that bound it, from `start` to `end` in the prompt.

    `low` and `high` are the bounds, None where there is none. A `bare` number has no bound in words; `only` and
    `about` are set for these and similar words, `conditional` after an "if".
    """

    start: int
    end: int
    low: int | None = None
    high: int | None = None
    bare: bool = False
    only: bool = False
    about: bool = False
    conditional: bool = False

    @property
    def bounds(self) -> dict[str, int]:
        """The arguments of a counting check."""
        if self.low is not None and self.low == self.high:
            return {"exactly": self.low}
        given = {"at_least": self.low, "at_most": self.high}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def at_least(self) -> dict[str, int]:
        """The bounds for things of which there may be more than an exact or bare number."""
        return {"at_least": self.low} if self.low is not None and self.low == self.high else self.bounds

    @property
    def unclear(self) -> bool:
        """Whether the number is approximate or under a condition."""
        return self.about or self.conditional

    def with_words_after(self, view: PromptText, position: int) -> int:
        """Take words after the unit into account ("words or more", "words and at most 100"). Returns the new end."""
        suffix = _AFTER.match(view.text, position)
        value = self.low if self.low is not None else self.high
        if suffix and (self.bare or self.only) and value is not None:
            self._set(None, value) if suffix["less"] or suffix["max"] else self._set(value, None)
            return suffix.end()
        second = _SECOND.match(view.text, position)
        if second and not self.bare and not _ANOTHER_UNIT.match(view.text, second.end()) and self._complete(second):
            return second.end()
        return position

    def _set(self, low: int | None, high: int | None) -> None:
        self.low, self.high, self.bare, self.only = low, high, False, False

    def _complete(self, second: re.Match[str]) -> bool:
        """Add the other bound, if exactly one is given."""
        if (self.low is None) == (self.high is None):
            return False
        low, high = _bounds(second, number(second["n"]), False)
        if self.low is None and low is not None and low <= (self.high or 0):
            self.low = low
            return True
        if self.high is None and high is not None and high >= (self.low or 0):
            self.high = high
            return True
        return False


def end_of_amount(view: PromptText, match: re.Match[str]) -> int:
    """Where the unit of a number can start: after a range, "or more", "but no more than 5"."""
    for after in (_TO, _MORE, _SECOND):
        if found := after.match(view.text, match.end()):
            return found.end()
    return match.end()


def amount(view: PromptText, match: re.Match[str]) -> Amount:
    """The amount of a number, with the comparison before it and the range after it."""
    value, before = number(match.group()), view.before(match.start(), _LONG)
    compared = _COMPARED.search(before, 0 if contains(before, _LIMITS) else max(len(before) - _SHORT, 0))
    found = Amount(match.start(), match.end(), conditional=conditional(view.before(match.start())))
    head = before
    if compared:
        head = before[: compared.start()]
        found.start = match.start() - len(before) + compared.start()
    between = bool(compared and compared["between"])
    other = _TO.match(view.text, match.end())
    if other and (other["to"] != "and" or between) and number(other["n"]) > value:
        found.low, found.high, found.end = value, number(other["n"]), other.end()
        found.bare = other["to"] == "or" and found.high != value + 1
        found.about = bool(compared and compared["about"])
        return found
    if compared and not between:
        _compare(found, compared, value, head)
    else:
        found.low = found.high = value
        found.bare = True
    more, second = _MORE.match(view.text, match.end()), _SECOND.match(view.text, match.end())
    if more:
        found.end = more.end()
        if found.bare or found.only:
            found._set(None, value) if more["less"] else found._set(value, None)
    elif second and found._complete(second):
        found.end = second.end()
    return found


def _compare(found: Amount, compared: re.Match[str], value: int, head: str) -> None:
    refused = negation(head)
    if compared["exact"] or compared["only"]:
        found.low = found.high = value
        found.bare, found.only = refused is not None, bool(compared["only"])
    elif compared["about"]:
        found.about, found.low, found.high = True, value, value
    else:
        found.low, found.high = _bounds(compared, value, refused is not None)
        found.bare = refused is not None and bool(compared["least"] or compared["most"])
    if refused is not None:
        found.start -= len(head) - refused.start()


def _bounds(compared: re.Match[str], value: int, refused: bool) -> tuple[int | None, int | None]:
    """(low, high) of a comparison with a number."""
    if compared["least"]:
        return value, None
    if compared["most"]:
        return None, value
    if compared["over"]:
        return (None, value) if refused else (value + 1, None)
    return (value, None) if refused else (None, value - 1)


def quantity(bounds: Mapping[str, int], thing: str) -> str:
    """Bounds in words: "at least 3 hashtags"."""
    low, high, exactly = bounds.get("at_least"), bounds.get("at_most"), bounds.get("exactly")
    if exactly is not None:
        return f"exactly {exactly} {thing}"
    if low is not None and high is not None:
        return f"between {low} and {high} {thing}"
    return f"at least {low} {thing}" if high is None else f"at most {high} {thing}"
