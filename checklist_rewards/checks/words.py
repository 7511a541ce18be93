"""Checks on the words and characters of a text: keywords, their number, forbidden words, letters.

They are registered after all others, and the order of the types is part of the prompts of writers that choose checks.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

import regex
from pydantic import Field
from typing_extensions import override

from checklist_rewards.checks import ifeval_text
from checklist_rewards.checks.base import UNCOUNTABLE, Bounds, Counted, register_check
from checklist_rewards.checks.builtin import IFEvalRules, Phrase, Phrases
from checklist_rewards.checks.text import occurrence_bounds
from checklist_rewards.errors import CheckError


class _Phrases(IFEvalRules):
    """Base class of checks that look for phrases. With `ifeval`, they are compared letter by letter, and every
    character that is no letter or digit separates words."""

    whole_words: bool = True
    ignore_case: bool = True

    def occurrences(self, text: str, phrase: str) -> Bounds:
        """How often a phrase occurs; see [`occurrence_bounds`]."""
        if self.ifeval:
            return (ifeval_text.occurrences(text, phrase, self.whole_words, self.ignore_case),) * 2
        return occurrence_bounds(text, phrase, self.whole_words, self.ignore_case)

    def all_or_any(self, text: str, phrases: Phrases, need: Literal["all", "any"]) -> bool:
        """Whether all or any of the phrases occur. Raises [`CheckError`] if that is not certain."""
        found = [self.occurrences(text, phrase) for phrase in phrases]
        decided = all if need == "all" else any
        if decided(fewest > 0 for fewest, _ in found):
            return True
        if decided(most > 0 for _, most in found):
            unsure = next(word for word, (few, most) in zip(phrases, found, strict=True) if few == 0 < most)
            raise CheckError(f"it is not certain that {unsure!r:.60} is a word of the text: {UNCOUNTABLE}")
        return False


@register_check
class Keywords(_Phrases):
    """All (or any) of the phrases occur in the text. Case is ignored by default."""

    summary = "All of the words or phrases occur in the text (with need 'any': at least one of them)."
    example = {"words": ["river", "old mill"]}
    type: Literal["keywords"] = "keywords"
    words: Phrases
    need: Literal["all", "any"] = "all"

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        return self.all_or_any(text, self.words, self.need)


@register_check
class Forbidden(_Phrases):
    """None of the phrases occur in the text. Case is ignored by default."""

    summary = "None of the words or phrases occur in the text."
    example = {"words": ["very", "in conclusion"]}
    type: Literal["forbidden"] = "forbidden"
    words: Phrases

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        return not self.all_or_any(text, self.words, "any")


@register_check
class KeywordCount(Counted, _Phrases):
    """Counts the occurrences of one phrase. Case is ignored by default."""

    summary = "The word or phrase occurs the required number of times."
    example = {"word": "river", "at_least": 2}
    type: Literal["keyword_count"] = "keyword_count"
    word: Phrase

    @override
    def bounds(self, text: str) -> Bounds:
        return self.occurrences(text, self.word)


@register_check
class Letters(Counted, IFEvalRules):
    """Counts all occurrences of the given letters, digits or punctuation marks, ignoring case. A letter with an accent
    is another letter, however it was typed (NFC)."""

    summary = "The given letters, digits or punctuation marks occur the required number of times in total."
    example = {"letters": ",", "exactly": 0}
    type: Literal["letters"] = "letters"
    letters: str = Field(min_length=1)

    @override
    def count(self, text: str) -> int:
        lowered, letters = text.lower(), self.letters.lower()
        if self.ifeval or (text.isascii() and letters.isascii()):
            return sum(lowered.count(letter) for letter in set(letters))
        lowered = unicodedata.normalize("NFC", lowered)
        return sum(lowered.count(one) for one in set(regex.findall(r"\X", unicodedata.normalize("NFC", letters))))
