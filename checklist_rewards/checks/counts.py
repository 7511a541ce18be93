"""Checks that count: words, sentences, paragraphs, bullets, highlights, sections, placeholders."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field
from typing_extensions import override

from checklist_rewards.checks.base import Counted, register_check
from checklist_rewards.checks.text import capitals_in, parts_of, sentences_of, words_of

# These patterns run on text written by a policy, so none may backtrack: each takes linear time on any text.
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_BULLET = re.compile(r"^[ \t]*[-*+•][ \t]+\S", re.MULTILINE)
_LOOSE_BULLET = re.compile(r"^[^\S\n]*(?:\*[^*]|-).*$", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^\n*]*\*\*")
_ITALIC = re.compile(r"\*[^\n*]*\*")


@register_check
class Words(Counted):
    """Counts words: runs of letters, digits and underscores."""

    summary = "The text has the required number of words."
    example = {"at_least": 50, "at_most": 100}
    type: Literal["words"] = "words"

    @override
    def count(self, text: str) -> int:
        return len(words_of(text))


@register_check
class Sentences(Counted):
    """Counts sentences by their punctuation, as [`sentences_of`] does. With `list_numbers`, the number before a list
    item counts as a sentence (IFEval)."""

    summary = "The text has the required number of sentences."
    example = {"exactly": 3}
    type: Literal["sentences"] = "sentences"
    list_numbers: bool = False

    @override
    def count(self, text: str) -> int:
        return len(sentences_of(text, self.list_numbers))


@register_check
class Paragraphs(Counted):
    """Counts paragraphs between blank lines, or between separators such as `***`. If a paragraph between two
    separators is blank, the answer is no."""

    summary = "The text has the required number of paragraphs, separated by blank lines or by the given separator."
    example = {"exactly": 2}
    type: Literal["paragraphs"] = "paragraphs"
    separator: str | None = Field(default=None, min_length=1)

    @override
    def count(self, text: str) -> int:
        return len([part for part in parts_of(text, self.separator) if part.strip()])

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        gap = self.separator is not None and not all(part.strip() for part in parts_of(text, self.separator)[1:-1])
        return not gap and super().holds(text, input)


@register_check
class Bullets(Counted):
    """Counts lines that start with a bullet and a space. With `loose`, every line that starts with `-` or with a
    single `*` counts (IFEval). This includes horizontal rules, list items without a space, and italics at the start of
    a line."""

    summary = "The text has the required number of bullet points (lines starting with -, * or +)."
    example = {"exactly": 3}
    type: Literal["bullets"] = "bullets"
    loose: bool = False

    @override
    def count(self, text: str) -> int:
        return len((_LOOSE_BULLET if self.loose else _BULLET).findall(text))


@register_check
class Highlights(Counted):
    """Counts passages in Markdown emphasis, `*like this*` or `**like this**`."""

    summary = "The text has the required number of passages highlighted with *asterisks* or **double asterisks**."
    example = {"at_least": 2}
    type: Literal["highlights"] = "highlights"

    @override
    def count(self, text: str) -> int:
        runs = _ITALIC.findall(text) + _BOLD.findall(text)
        return sum(bool(run.strip("*").strip()) for run in runs)


@register_check
class Sections(Counted):
    """Counts sections that start with a marker and a number, such as "Section 2"."""

    summary = "The text has the required number of sections, each starting with the marker and its number."
    example = {"marker": "Section", "at_least": 3}
    type: Literal["sections"] = "sections"
    marker: str = Field(min_length=1)

    @override
    def count(self, text: str) -> int:
        return len(re.findall(rf"{re.escape(self.marker)}\s?\d+", text))


@register_check
class Placeholders(Counted):
    """Counts placeholders in square brackets."""

    summary = "The text has the required number of placeholders in square brackets, such as [name]."
    example = {"at_least": 3}
    type: Literal["placeholders"] = "placeholders"

    @override
    def count(self, text: str) -> int:
        return len(_PLACEHOLDER.findall(text))


@register_check
class CapitalWords(Counted):
    """Counts words that have at least one capital letter and no lower-case letter."""

    summary = "The required number of words are written entirely in capital letters."
    example = {"at_least": 2}
    type: Literal["capital_words"] = "capital_words"

    @override
    def count(self, text: str) -> int:
        return len(capitals_in(text))
