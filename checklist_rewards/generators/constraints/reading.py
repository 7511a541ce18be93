"""A prompt as the rules read it: masked, in clauses, with its quoted strings.

[`PromptText`] keeps positions: its `text` has the length of the prompt, in lower case, with every quoted string and
code block masked. So no rule reads an instruction inside quotation marks, and the position of a match is the evidence
in the prompt. A clause ends at the end of a sentence, a list item or a semicolon. Of nested quotations only the outer
one is a string. Clauses that are too long to be read are left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

Spec = dict[str, Any]


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern written over several lines. A line break and the spaces after it are not part of it."""
    return re.compile(one_line(text), flags)


def one_line(text: str) -> str:
    """The text of a pattern written over several lines; see [`pattern`]."""
    return re.sub(r"\n\s*", "", text)


_APART = bytes.maketrans(
    *(bytes(codes) for codes in zip(*((n, 32) for n in range(128) if not chr(n).isalnum() and n != 39), strict=True))
)
"""Every character that no word contains becomes a space."""


_SIGNS = ("\x01", "***", "<<")


def starts(words: str) -> frozenset[str]:
    """The first four letters of some words, by which [`Clause.has`] looks for them and for their forms."""
    return frozenset(word[:4] for word in words.split())


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of a prompt.

    `prompt[start:end]` is the text that states it. `check` is None if no check expresses it; `reason` then says why.
    """

    start: int
    end: int
    check: Mapping[str, Any] | None
    question: str = ""
    reason: str = ""


QUOTE, CODE = "\x01", "\x02"
"""Masks of quoted strings (with their quotation marks) and of code blocks."""
_STRAIGHT = str.maketrans(
    {**dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‘’‚", "'"), **dict.fromkeys("–—‑−", "-"), "\xa0": " "}
)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Each starts with its quotation mark, so that a search skips to it.
_CURLY = re.compile(r"“([^“”]{1,400})”")
_QUOTED = {
    '"': re.compile(r'"(?<!\w")(?=\S)([^"]{1,400})(?<=\S)"(?!\w)'),
    "'": re.compile(r"'(?<![\w'\"]')(?=[^\s'])((?:[^'\n]|'(?=\w)){1,200}?)(?<=\S)'(?![\w'])"),
    "`": re.compile(r"`([^`\n]{1,200})`"),
}
_JOINED = pattern(
    r"""\s*(?:[,;/&|]\s*)?(?:\n\s*)?(?:[-*•]\s+|\d+[.)]\s+)?(?:(?:and/or|and|or|nor|as well as)\s+)?
    (?:(?:also|then)\s+)?(?:the\s+)?(?:(?:key)?(?:word|phrase|letter|term)\s+)?"""
)
_END = re.compile(r"[.!?;](?=[\s\x01\"')]|$)|\n(?!\s?[a-z])")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|p\.s|p\.p\.s|max|min|approx|etc|vs|ca|no)\Z")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*•]|\(?(?:\d{1,2}|[a-z])[.)])[ \t]")
_NEW_SENTENCE = re.compile(r"\s+[A-Z]")
LONGEST_CLAUSE = 700
"""Number of characters of a clause that rules read. A longer one gives no item, so prompts take linear time."""
_LONGEST_HEADER = 2000


class Strings(NamedTuple):
    """Quoted strings of one enumeration, such as "a", "b" or "c"."""

    values: tuple[str, ...]
    start: int
    end: int
    either: bool = False
    """The strings are joined by "or"."""

    @property
    def one(self) -> str | None:
        """The string, if there is only one."""
        return self.values[0] if len(self.values) == 1 else None


class Clause:
    """A clause of a prompt. Positions in `text` and in `strings` count from `start`."""

    def __init__(self, view: PromptText, start: int, end: int):
        self.view, self.start, self.end = view, start, end
        self.text = view.text[start:end]
        words = self.text.encode("ascii", "replace").translate(_APART).decode().split()
        self.starts = {word[:4] for word in words}
        self.starts.update(sign for sign in _SIGNS if sign in self.text)

    def has(self, words: frozenset[str]) -> bool:
        """Whether words with one of these first letters occur. A search by a pattern takes ten times as long."""
        return not self.starts.isdisjoint(words)

    @cached_property
    def strings(self) -> list[Strings]:
        """The enumerations of quoted strings that start in this clause."""
        moved = []
        first = bisect_left(self.view.strings, self.start, key=lambda strings: strings.start)
        for strings in self.view.strings[first:]:
            if strings.start >= self.end:
                break
            moved.append(strings._replace(start=strings.start - self.start, end=strings.end - self.start))
        return moved

    @cached_property
    def header(self) -> str:
        """The line that introduces the list item of this clause ("Each tweet should:"), "" outside a list."""
        text = self.view.text
        line = text.rfind("\n", 0, self.start + len(self.text) - len(self.text.lstrip())) + 1
        if line == 0 or not _LIST_ITEM.match(text, line):
            return ""
        end = line
        while line and self.start - line < _LONGEST_HEADER and (_LIST_ITEM.match(text, line) or text[line] == "\n"):
            end = line - 1
            line = text.rfind("\n", 0, end) + 1
        header = text[line:end].rstrip()
        return header[max(header.rfind(". "), 0) :] if header.endswith(":") else ""

    def prompt(self, start: int, end: int) -> str:
        """A part of the prompt as it was written."""
        return self.view.prompt[self.start + start : self.start + end]


class PromptText:
    """A prompt with its quoted strings and code blocks masked."""

    def __init__(self, prompt: str):
        self.prompt = prompt
        quoted: list[tuple[int, int]] = []
        cased = prompt
        if "“" in cased:
            cased = _masked(_CURLY, cased, quoted)
        if not cased.isascii():
            cased = cased.translate(_STRAIGHT)
        if "```" in cased:
            cased = _FENCED.sub(lambda match: CODE * len(match.group()), cased)
        for mark, quotation in _QUOTED.items():
            if mark in cased:
                cased = _masked(quotation, cased, quoted)
        lower = cased.lower()
        if len(lower) != len(prompt):  # a few letters have no lower case of the same length
            lower = "".join(c if len(c.lower()) > 1 else c.lower() for c in cased)
        self.text = lower
        self._cased = cased
        self._found: dict[re.Pattern[str], re.Match[str] | None] = {}
        outer: list[tuple[int, int, str]] = []
        for start, end in sorted(quoted, key=lambda span: (span[0], -span[1])):
            value = prompt[start + 1 : end - 1].strip().rstrip(",;")
            if value and not (outer and start < outer[-1][1]):
                outer.append((start, end, value))
        self.strings = tuple(self._enumerations(outer))
        self._ends = self._ends_of_clauses(outer)

    def anywhere(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """The first match of a pattern in the prompt as it was written, which is searched once."""
        if expression not in self._found:
            self._found[expression] = expression.search(self.prompt)
        return self._found[expression]

    def in_text(self, expression: re.Pattern[str], words: tuple[str, ...]) -> re.Match[str] | None:
        """The first match of a pattern in the masked text, which is searched once, if it contains one of the words."""
        if expression not in self._found:
            some = any(word in self.text for word in words)
            self._found[expression] = expression.search(self.text) if some else None
        return self._found[expression]

    def clauses(self) -> Iterator[Clause]:
        """The clauses that can be read, in order."""
        start = 0
        for end in (*self._ends, len(self.text)):
            if 1 < end - start <= LONGEST_CLAUSE:
                yield Clause(self, start, end)
            start = end

    def _ends_of_clauses(self, quoted: list[tuple[int, int, str]]) -> list[int]:
        ends = [
            match.end()
            for match in _END.finditer(self._cased)
            if match.group() != "." or not _ABBREVIATED.search(self.text, max(match.start() - 6, 0), match.start())
        ]
        # A sentence may end inside a quotation.
        ends += [end for _, end, value in quoted if value[-1] in ".!?" and _NEW_SENTENCE.match(self._cased, end)]
        return sorted(ends)

    def _enumerations(self, quoted: list[tuple[int, int, str]]) -> Iterator[Strings]:
        joined: Strings | None = None
        for start, end, value in quoted:
            between = "" if joined is None else self.text[joined.end : start]
            if joined is not None and between.strip() and _JOINED.fullmatch(between):
                either = joined.either or re.search(r"\bn?or\b", between) is not None
                joined = Strings((*joined.values, value), joined.start, end, either)
            else:
                if joined is not None:
                    yield joined
                joined = Strings((value,), start, end)
        if joined is not None:
            yield joined


def _masked(quotation: re.Pattern[str], text: str, quoted: list[tuple[int, int]]) -> str:
    """The text with its quotations masked. Their spans are added to `quoted`."""
    pieces, done = [], 0
    for match in quotation.finditer(text):
        quoted.append(match.span())
        pieces += [text[done : match.start()], QUOTE * len(match.group())]
        done = match.end()
    return "".join((*pieces, text[done:]))
