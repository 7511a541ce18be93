"""Checks on the words and characters of a text: keywords, their number, forbidden words, letters.

They are registered after all others, and the order of the types is part of the prompts of writers that choose checks.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from typing_extensions import override

from checklist_rewards.checks.base import Check, Counted, register_check
from checklist_rewards.checks.builtin import (
    Phrase,
    Phrases,
    occurrences,
)


@register_check
class Keywords(Check):
    """All (or any) of the phrases occur in the text. Case is ignored by default."""

    summary = "All of the words or phrases occur in the text (with need 'any': at least one of them)."
    example = {"words": ["river", "old mill"]}
    type: Literal["keywords"] = "keywords"
    words: Phrases
    need: Literal["all", "any"] = "all"
    whole_words: bool = True
    ignore_case: bool = True

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        occurs = (occurrences(text, word, self.whole_words, self.ignore_case) > 0 for word in self.words)
        return all(occurs) if self.need == "all" else any(occurs)


@register_check
class Forbidden(Check):
    """None of the phrases occur in the text. Case is ignored by default."""

    summary = "None of the words or phrases occur in the text."
    example = {"words": ["very", "in conclusion"]}
    type: Literal["forbidden"] = "forbidden"
    words: Phrases
    whole_words: bool = True
    ignore_case: bool = True

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        return not any(occurrences(text, word, self.whole_words, self.ignore_case) for word in self.words)


@register_check
class KeywordCount(Counted):
    """Counts the occurrences of one phrase. Case is ignored by default."""

    summary = "The word or phrase occurs the required number of times."
    example = {"word": "river", "at_least": 2}
    type: Literal["keyword_count"] = "keyword_count"
    word: Phrase
    whole_words: bool = True
    ignore_case: bool = True

    @override
    def count(self, text: str) -> int:
        return occurrences(text, self.word, self.whole_words, self.ignore_case)


@register_check
class Letters(Counted):
    """Counts all occurrences of the given letters, digits or punctuation marks, ignoring case."""

    summary = "The given letters, digits or punctuation marks occur the required number of times in total."
    example = {"letters": ",", "exactly": 0}
    type: Literal["letters"] = "letters"
    letters: str = Field(min_length=1)

    @override
    def count(self, text: str) -> int:
        lowered = text.lower()
        return sum(lowered.count(letter) for letter in set(self.letters.lower()))
