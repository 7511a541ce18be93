"""The check by a regular expression, with limits on its size and its time.

A checklist may come from a model or from a client of the reward server, so a pattern is hostile input twice. Compiling
it copies what a counted repeat repeats: `(?:(?:(?:a{40}){40}){40}){40}` takes seconds and 700 MB. So [`refusal`]
bounds the size before anything is compiled. Matching may backtrack without end, and `re` cannot be interrupted. So
patterns run on the `regex` package, whose searches take a timeout: past it the check breaks, and its item is
unanswered.
"""

from __future__ import annotations

import re
from functools import lru_cache
from time import monotonic
from typing import Any, Literal

import regex
from pydantic import Field, field_validator

from checklist_rewards.checks.base import Counted, register_check
from checklist_rewards.errors import CheckError

SECONDS = 1.0
"""What all searches of one pattern in one text may take together."""
MAX_LENGTH = 4000
"""Characters of a pattern."""
MAX_GROUPS = 100
"""Opening parentheses of a pattern, and so its nesting."""
MAX_COPIES = 50_000
"""Characters of a pattern once its counted repeats are written out; they compile in some hundredths of a second."""

_REPEAT = re.compile(r"\{([0-9]{1,9})")
_VERBOSE = re.compile(r"\(\?[A-Za-z0-9-]*x")
_CALL = re.compile(r"\(\?(?:R|\d|&|P[>&]|[+-]\d)")


def refusal(pattern: str) -> str | None:
    """Why a pattern is too large to be compiled; None if it is not.

    The size is an upper bound that needs no parser, so no syntax can hide a repeat from it: the length, times the
    largest repeat of one character or set, times every repeat of a group: those that follow a `)`.
    """
    if len(pattern) > MAX_LENGTH:
        return f"it has {len(pattern)} characters; at most {MAX_LENGTH} are allowed"
    if pattern.count("(") > MAX_GROUPS:
        return f"it has {pattern.count('(')} groups; at most {MAX_GROUPS} are allowed"
    if _VERBOSE.search(pattern):
        return "the flag x (verbose) is not allowed; write the pattern without spaces and comments"
    if _CALL.search(pattern):
        return "a pattern that calls itself or one of its groups is not allowed"
    one, groups = 1, 1
    for repeat in _REPEAT.finditer(pattern):
        count = max(1, int(repeat.group(1)))
        if pattern.endswith(")", 0, repeat.start()):
            groups *= count
        else:
            one = max(one, count)
    if len(pattern) * one * groups > MAX_COPIES:
        return f"its counted repeats make it longer than {MAX_COPIES} characters; use smaller counts"
    return None


@lru_cache(maxsize=128)
def _compiled(pattern: str) -> Any:
    return regex.compile(pattern, cache_pattern=False)


@register_check
class Regex(Counted):
    """Matches without overlaps. Flags stand in the pattern, such as `(?i)` for any case and `(?m)` for lines."""

    summary = "The regular expression (Python's syntax) matches so many times."
    example = {"pattern": "(?m)^Step [0-9]+:", "at_least": 1}
    type: Literal["regex"] = "regex"
    pattern: str = Field(min_length=1)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        too_large = refusal(pattern)
        if too_large is not None:
            raise ValueError(f"the regular expression cannot be used: {too_large}")
        try:
            _compiled(pattern)
        except (regex.error, RecursionError) as error:
            raise ValueError(f"no regular expression ({error})") from None
        return pattern

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        end = monotonic() + SECONDS
        try:
            matches = 0
            # finditer's own timeout is of each match; many slow ones must not add up either.
            for _ in _compiled(self.pattern).finditer(text, timeout=SECONDS):
                matches += 1
                if monotonic() > end:
                    raise TimeoutError
        except TimeoutError:
            raise CheckError(f"the pattern {self.pattern!r:.60} was not through within {SECONDS:g} s") from None
        return matches
