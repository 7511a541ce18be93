"""Checks that count: words, sentences, paragraphs, bullets, highlights, sections, placeholders."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from checklist_rewards.checks.base import Counted, register_check
from checklist_rewards.checks.text import capitals_in, parts_of, sentences_of, words_of

# Patterns run over what a policy writes, so none may backtrack: each is linear in the text, whatever it repeats.
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_BULLET = re.compile(r"^[ \t]*[-*+•][ \t]+\S", re.MULTILINE)
_LOOSE_BULLET = re.compile(r"^[^\S\n]*(?:\*[^*]|-).*$", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^\n*]*\*\*")
_ITALIC = re.compile(r"\*[^\n*]*\*")


@register_check
class Words(Counted):
    """Words as runs of letters, digits and underscores."""

    summary = "The text has so many words."
    example = {"at_least": 50, "at_most": 100}
    type: Literal["words"] = "words"

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        return len(words_of(text))


@register_check
class Sentences(Counted):
    """Sentences by their punctuation, as [`sentences_of`] has them; with `list_numbers` the number before an item of
    a list counts as one (IFEval)."""

    summary = "The text has so many sentences."
    example = {"exactly": 3}
    type: Literal["sentences"] = "sentences"
    list_numbers: bool = False

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        return len(sentences_of(text, self.list_numbers))


@register_check
class Paragraphs(Counted):
    """Paragraphs between blank lines, or between separators such as `***`; a blank one between two separators is a
    fault, and the answer no."""

    summary = "The text has so many paragraphs, separated by blank lines or by the given mark."
    example = {"exactly": 2}
    type: Literal["paragraphs"] = "paragraphs"
    separator: str | None = Field(default=None, min_length=1)

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        return len([part for part in parts_of(text, self.separator) if part.strip()])

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        gap = self.separator is not None and not all(part.strip() for part in parts_of(text, self.separator)[1:-1])
        return not gap and super().holds(text, input)


@register_check
class Bullets(Counted):
    """Lines that begin with a bullet and a space. With `loose` every line that begins with `-`, or with one `*`,
    counts (IFEval: rules, list items without a space and italics at a line's start count as well)."""

    summary = "The text has so many bullet points (lines that begin with -, * or +)."
    example = {"exactly": 3}
    type: Literal["bullets"] = "bullets"
    loose: bool = False

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        return len((_LOOSE_BULLET if self.loose else _BULLET).findall(text))


@register_check
class Highlights(Counted):
    """Runs of text in Markdown emphasis, `*like this*` or `**like this**`."""

    summary = "The text has so many passages highlighted with *asterisks* or **double asterisks**."
    example = {"at_least": 2}
    type: Literal["highlights"] = "highlights"

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        runs = _ITALIC.findall(text) + _BOLD.findall(text)
        return sum(bool(run.strip("*").strip()) for run in runs)


@register_check
class Sections(Counted):
    """Sections that begin with a marker and a number, such as "Section 2"."""

    summary = "The text has so many numbered sections, each beginning with the marker and its number."
    example = {"marker": "Section", "at_least": 3}
    type: Literal["sections"] = "sections"
    marker: str = Field(min_length=1)

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        return len(re.findall(rf"{re.escape(self.marker)}\s?\d+", text))


@register_check
class Placeholders(Counted):
    """Placeholders in square brackets."""

    summary = "The text has so many placeholders in square brackets, such as [name]."
    example = {"at_least": 3}
    type: Literal["placeholders"] = "placeholders"

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        return len(_PLACEHOLDER.findall(text))


@register_check
class CapitalWords(Counted):
    """Words without a lower-case letter and with at least one capital."""

    summary = "So many words of the text are in capital letters throughout."
    example = {"at_least": 2}
    type: Literal["capital_words"] = "capital_words"

    def count(self, text: str) -> int:
        """See [`Counted`]."""
        return len(capitals_in(text))
