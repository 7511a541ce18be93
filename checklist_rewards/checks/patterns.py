"""A check with a regular expression, limited in size and time.

A checklist may come from a model or from a client of the reward server, so a pattern is untrusted input. Compiling a
pattern expands counted repeats: `(?:(?:(?:a{40}){40}){40}){40}` takes seconds and 700 MB. [`refusal`] therefore limits
the size before compilation. Matching may backtrack indefinitely, and `re` cannot be interrupted. Therefore the `regex`
package is used, whose searches accept a timeout. If it expires, the check fails and the item is unanswered.
"""

from __future__ import annotations

import re
from functools import lru_cache
from time import monotonic
from typing import Any, Literal

import regex
from pydantic import Field, field_validator
from typing_extensions import override

from checklist_rewards.checks.base import Counted, register_check
from checklist_rewards.errors import CheckError

SECONDS = 1.0
"""Time limit for all searches of one pattern in one text."""
MAX_LENGTH = 4000
"""Maximum length of a pattern in characters."""
MAX_GROUPS = 100
"""Maximum number of opening parentheses of a pattern, and so of its nesting."""
MAX_COPIES = 50_000
"""Maximum length of a pattern after expansion of its counted repeats. Compiling that much takes some hundredths of a
second."""

_REPEAT = re.compile(r"\{([0-9]{1,9})")
_VERBOSE = re.compile(r"\(\?[A-Za-z0-9-]*x")
_CALL = re.compile(r"\(\?(?:R|\d|&|P[>&]|[+-]\d)")


def refusal(pattern: str) -> str | None:
    """Why a pattern is too large to compile, or None if it is not.

    The size is an upper bound that does not depend on parsing, so no syntax can hide a repeat from it. It is the
    length, times the largest repeat of a character or set, times all repeats of groups (repeats that follow a `)`).
    """
    if len(pattern) > MAX_LENGTH:
        return f"it has {len(pattern)} characters; at most {MAX_LENGTH} are allowed"
    if pattern.count("(") > MAX_GROUPS:
        return f"it has {pattern.count('(')} groups; at most {MAX_GROUPS} are allowed"
    if _VERBOSE.search(pattern):
        return "the flag x (verbose) is not allowed; write the pattern without spaces and comments"
    if _CALL.search(pattern):
        return "recursive patterns and calls of groups are not allowed"
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
    """Counts matches without overlaps. Write flags in the pattern: `(?i)` ignores case, `(?m)` matches by line."""

    summary = "The regular expression (Python syntax) matches the required number of times."
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
            raise ValueError(f"not a valid regular expression ({error})") from None
        return pattern

    @override
    def count(self, text: str) -> int:
        end = monotonic() + SECONDS
        try:
            matches = 0
            # The timeout of finditer applies to each match, so the total is limited here.
            for _ in _compiled(self.pattern).finditer(text, timeout=SECONDS):
                matches += 1
                if monotonic() > end:
                    raise TimeoutError
        except TimeoutError:
            raise CheckError(f"the pattern {self.pattern!r:.60} did not finish within {SECONDS:g} s") from None
        return matches
