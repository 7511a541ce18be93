"""Checks on which words and signs a text uses: keywords, how often, forbidden words, letters."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from checklist_rewards.checks.base import Check, Counted, register_check

Phrase = Annotated[str, Field(min_length=1)]
Phrases = Annotated[tuple[Phrase, ...], Field(min_length=1)]


def occurrences(text: str, phrase: str, whole_words: bool = True, ignore_case: bool = True) -> int:
    """How often a phrase stands in a text, without overlaps."""
    pattern = re.escape(phrase)
    if whole_words:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return len(re.findall(pattern, text, re.IGNORECASE if ignore_case else 0))


@register_check
class Keywords(Check):
    """All (or any) of the phrases are there; case matters only on request."""

    summary = "All of the words or phrases occur in the text (with need 'any': one of them)."
    example = {"words": ["river", "old mill"]}
    type: Literal["keywords"] = "keywords"
    words: Phrases
    need: Literal["all", "any"] = "all"
    whole_words: bool = True
    ignore_case: bool = True

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        found = (occurrences(text, word, self.whole_words, self.ignore_case) > 0 for word in self.words)
        return all(found) if self.need == "all" else any(found)


@register_check
class Forbidden(Check):
    """None of the phrases is there."""

    summary = "None of the words or phrases occurs in the text."
    example = {"words": ["very", "in conclusion"]}
    type: Literal["forbidden"] = "forbidden"
    words: Phrases
    whole_words: bool = True
    ignore_case: bool = True

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        return not any(occurrences(text, word, self.whole_words, self.ignore_case) for word in self.words)


@register_check
class KeywordCount(Counted):
    """How often one phrase is there."""

    summary = "The word or phrase occurs so many times."
    example = {"word": "river", "at_least": 2}
    type: Literal["keyword_count"] = "keyword_count"
    word: Phrase
    whole_words: bool = True
    ignore_case: bool = True

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        return occurrences(text, self.word, self.whole_words, self.ignore_case)


@register_check
class Letters(Counted):
    """How often the given letters, digits or signs occur, all together; capitals count as small letters."""

    summary = "The given letters, digits or signs occur so many times, all together."
    example = {"letters": ",", "exactly": 0}
    type: Literal["letters"] = "letters"
    letters: str = Field(min_length=1)

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        lowered = text.lower()
        return sum(lowered.count(letter) for letter in set(self.letters.lower()))
