"""A prompt as the rules read it: masked, in clauses, with its quoted strings, each clause as symbols.

[`PromptText`] keeps positions: its `text` has the length of the prompt, in lower case, with every quoted string and
code block masked. So no rule reads an instruction inside quotation marks, and the position of a match is the evidence
in the prompt. A clause ends at the end of a sentence, a list item or a semicolon. Of nested quotations only the outer
one is a string. Clauses that are too long to be read are left out.

[`Clause.symbols`] has one letter for each word or phrase of the clause; see `lexicon.py`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from checklist_rewards.generators.constraints.amounts import joined, whole
from checklist_rewards.generators.constraints.lexicon import NOUNS, PHRASES, SYMBOLS, TRIGGERS

Spec = dict[str, Any]


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
"""Masks of quoted strings (with their quotation marks) and of code blocks and quoted lines."""
_STRAIGHT = str.maketrans(
    {**dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‘’‚", "'"), **dict.fromkeys("–—‑−", "-"), "\xa0": " "}
)
_BLOCKS = {
    "```": re.compile(r"```.*?(?:```|\Z)", re.DOTALL),
    ">": re.compile(r"^>[ \t]*[^\s\d].*", re.MULTILINE),
}
"""Code blocks, and lines that quote a message."""
# Each starts with its quotation mark, so that a search skips to it.
_CURLY = re.compile(r"“([^“”]{1,400})”")
_QUOTED = {
    '"': re.compile(r'"(?<!\w")(?=\S)([^"]{1,400})(?<=\S)"(?!\w)'),
    "'": re.compile(r"'(?<![\w'\"]')(?=[^\s'])((?:[^'\n]|'(?=\w)){1,200}?)(?<=\S)'(?![\w'])"),
    "`": re.compile(r"`([^`\n]{1,200})`"),
}
_JOINED = re.compile(
    r"\s*(?:[,;/&|]\s*)?(?:\n\s*)?(?:[-*•]\s+|\d+[.)]\s+)?(?:(?:and/or|and|or|nor|as well as)\s+)?"
    r"(?:(?:also|then)\s+)?(?:the\s+)?(?:(?:key)?(?:word|phrase|letter|term)\s+)?"
)
_END = re.compile(r"[.!?;](?=[\s\x01\"')]|$)|\n(?!\s?[a-z])|(?<=P\.S)\s(?=[A-Z])")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|p\.s|p\.p\.s|max|min|approx|etc|vs|ca|no)\Z")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*•]|\(?(?:\d{1,2}|[a-z])[.)])[ \t]")
_NEW_SENTENCE = re.compile(r"\s+[A-Z](?=[\sa-z])")
_APART = bytes(n if n < 128 and (chr(n).isalnum() or n in (1, 39)) else 32 for n in range(256))
"""Every character that no word contains becomes a space."""
_TOKEN = re.compile(
    r"(?!(?:e\.g|i\.e|p\.\s?[ps])\b)[^\W\d_][\w'#]*(?:\+\+)?|[$€£#]?\d+(?:[.,:]\d+)*(?:%|\w+)?|\x01+|\x02+|\*+"
    r"|<<[^<>\n]{0,60}>>|(?:e\.g|i\.e|p\.\s?p\.\s?s|p\.\s?s)\b\.?|[<>=]=?|[-,:;()\n+≤≥/~\[\]]"
)
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


class Token(NamedTuple):
    """A word or phrase of a clause, or an enumeration of quoted strings: from `start` to `end` of the prompt."""

    start: int
    end: int
    value: Any
    """Its text, the value of a number, or the [`Strings`]."""


class Clause:
    """A clause of a prompt, from `start` to `end`."""

    def __init__(self, view: PromptText, start: int, end: int):
        self.view, self.start, self.end = view, start, end
        self.text = view.text[start:end]
        self.words = frozenset(self.text.encode("ascii", "replace").translate(_APART).decode().split())

        self.tokens: list[Token] = []
        """The words and phrases, of a clause that [`PromptText.triggered`] returned."""
        self.symbols = ""
        """One letter for each token."""

    def at(self, place: int) -> int:
        """The number of the first token at or after a place of the clause."""
        return bisect_left(self.tokens, self.start + place, key=lambda token: token.start)

    def given(self, at: int) -> str:
        """A token as it stands in the prompt, without quotation marks."""
        token = self.tokens[at]
        return token.value.values[0] if isinstance(token.value, Strings) else self.view.prompt[token.start : token.end]

    @cached_property
    def header(self) -> str:
        """The symbols of the line that introduces the list item of this clause ("Each tweet should:")."""
        text = self.view.text
        line = text.rfind("\n", 0, self.start + len(self.text) - len(self.text.lstrip())) + 1
        if line == 0 or not _LIST_ITEM.match(text, line):
            return ""
        end = line
        while line and self.start - line < _LONGEST_HEADER and (_LIST_ITEM.match(text, line) or text[line] == "\n"):
            end = line - 1
            line = text.rfind("\n", 0, end) + 1
        header = text[line:end].rstrip()
        if not header.endswith(":"):
            return ""
        return tokens_of(self.view, line + max(header.rfind(". "), 0), line + len(header))[1]


_NO_LETTER = re.compile(r"K(?![:,]?[Q1D@])")
"""A letter between other people."""


def tokens_of(view: PromptText, start: int, end: int) -> tuple[list[Token], str]:
    """The tokens of a part of a prompt, and their symbols."""
    text, quoted = view.text, view.quoted
    found: list[tuple[str, int, int]] = []
    skip = start
    for match in _TOKEN.finditer(text, start, end):
        at, stop = match.span()
        if at >= skip:
            if text[at] == QUOTE and at in quoted:
                skip = stop = quoted[at].end
            found.append((text[at:stop], at, stop))
    tokens: list[Token] = []
    symbols: list[str] = []
    n, size = 0, len(found)
    while n < size:
        word, at, stop = found[n]
        value: Any = word
        last, symbol = n, SYMBOLS.get(word, "u")
        if (seconds := PHRASES.get(word)) and n + 1 < size and (phrases := seconds.get(found[n + 1][0])):
            for rest, phrase in phrases:
                after = n + 1 + len(rest)
                if [one[0] for one in found[n + 1 : after]] == list(rest):
                    last, symbol, value = after - 1, phrase, " ".join((word, *rest))
                    break
        if symbol == "u":
            if word[0] == QUOTE:
                symbol, value = ("Q", quoted[at]) if at in quoted else ("u", word)
            elif len(word) == 1 and word.isalpha():
                symbol = "1"
            elif word[:2] == "<<":
                symbol = "&"
            elif (number := whole(word)) is not None:
                symbol, value = "#", number
        elif symbol == "#":
            value, last = joined(found, n, last, value)
        elif last == n and word in NOUNS and symbol in "t5jo<>z6c" and symbols and symbols[-1] in "dDgurW-":
            symbol = "r"
        tokens.append(Token(at, found[last][2], value))
        symbols.append(symbol)
        n = last + 1
    joint = "".join(symbols)
    if "K" in joint:
        joint = _NO_LETTER.sub(lambda one: "p" if tokens[one.start()].value == "letters" else "r", joint)
    return tokens, joint


class PromptText:
    """A prompt with its quoted strings, code blocks and quoted lines masked."""

    def __init__(self, prompt: str):
        self.prompt = prompt
        quoted: list[tuple[int, int]] = []
        cased = prompt
        if "“" in cased:
            cased = _masked(_CURLY, cased, quoted)
        if not cased.isascii():
            cased = cased.translate(_STRAIGHT)
        for mark, block in _BLOCKS.items():
            if mark in cased:
                cased = block.sub(lambda match: CODE * len(match.group()), cased)
        for mark, quotation in _QUOTED.items():
            if mark in cased:
                cased = _masked(quotation, cased, quoted)
        lower = cased.lower()
        if len(lower) != len(prompt):  # a few letters have no lower case of the same length
            lower = "".join(c if len(c.lower()) > 1 else c.lower() for c in cased)
        self.text = lower
        self._cased = cased
        self._found: dict[int, re.Match[str] | None] = {}
        outer: list[tuple[int, int, str]] = []
        for start, end in sorted(quoted, key=lambda span: (span[0], -span[1])):
            value = prompt[start + 1 : end - 1].strip().rstrip(",;")
            if value and not (outer and start < outer[-1][1]):
                outer.append((start, end, value))
        self.quoted = {strings.start: strings for strings in self._enumerations(outer)}
        self._ends = self._ends_of_clauses(outer)

    def search(self, expression: re.Pattern[str], words: frozenset[str] = frozenset()) -> re.Match[str] | None:
        """The first match of a pattern in the masked text, which is searched once, if one of the words occurs."""
        key = id(expression)  # the hash of a pattern takes as long as a search
        if key not in self._found:
            occurs = not words or any(not words.isdisjoint(clause.words) for clause in self.clauses)
            self._found[key] = expression.search(self.text) if occurs else None
        return self._found[key]

    @cached_property
    def clauses(self) -> list[Clause]:
        """The clauses that can be read, in order."""
        starts = [0, *self._ends]
        ends = [*self._ends, len(self.text)]
        return [
            Clause(self, start, end)
            for start, end in zip(starts, ends, strict=True)
            if 1 < end - start <= LONGEST_CLAUSE
        ]

    def triggered(self) -> Iterator[Clause]:
        """The clauses that contain a word with which a requirement can start."""
        for clause in self.clauses:
            if not TRIGGERS.isdisjoint(clause.words) or (
                QUOTE in clause.text or "**" in clause.text or "<<" in clause.text
            ):
                clause.tokens, clause.symbols = tokens_of(self, clause.start, clause.end)
                yield clause

    def _ends_of_clauses(self, quoted: list[tuple[int, int, str]]) -> list[int]:
        ends = [
            match.end()
            for match in _END.finditer(self._cased)
            if match.group() != "."
            or not (short := _ABBREVIATED.search(self.text, max(match.start() - 6, 0), match.start()))
            or (short.group() not in ("e.g", "i.e", "vs") and _NEW_SENTENCE.match(self._cased, match.end()))
        ]
        # A sentence may end inside a quotation.
        ends += [end for _, end, value in quoted if value[-1] in ".!?" and _NEW_SENTENCE.match(self._cased, end)]
        return sorted(ends)

    def _enumerations(self, quoted: list[tuple[int, int, str]]) -> Iterator[Strings]:
        values: list[str] = []
        first = last = 0
        either = False
        for start, end, value in quoted:
            between = self.text[last:start] if values else ""
            if not between.strip() or not _JOINED.fullmatch(between):
                if values:
                    yield Strings(tuple(values), first, last, either)
                values, first, either = [], start, False
            elif re.search(r"\bn?or\b", between):
                either = True
            values.append(value)
            last = end
        if values:
            yield Strings(tuple(values), first, last, either)


def _masked(quotation: re.Pattern[str], text: str, quoted: list[tuple[int, int]]) -> str:
    """The text with its quotations masked. Their spans are added to `quoted`."""
    pieces, done = [], 0
    for match in quotation.finditer(text):
        quoted.append(match.span())
        pieces += [text[done : match.start()], QUOTE * len(match.group())]
        done = match.end()
    return "".join((*pieces, text[done:]))
