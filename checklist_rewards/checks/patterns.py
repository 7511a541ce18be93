"""The check by a regular expression, with a limit on its time.

A pattern that backtracks without end must not stop a run, and `re` cannot be interrupted. So patterns run on the
`regex` package (it comes with transformers), whose searches take a timeout: past it the check breaks, and its item is
unanswered.
"""

from __future__ import annotations

from functools import lru_cache
from time import monotonic
from typing import Any, Literal

import regex
from pydantic import Field, field_validator

from checklist_rewards.checks.base import Counted, register_check
from checklist_rewards.errors import CheckError

SECONDS = 2.0
"""What all searches of one pattern in one text may take together."""


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    return regex.compile(pattern)


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
        try:
            _compiled(pattern)
        except regex.error as error:
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
