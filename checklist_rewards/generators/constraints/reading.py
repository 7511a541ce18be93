"""A prompt as the rules read it, and what they find in it.

[`PromptText`] keeps positions: its `text` has the length of the prompt, in lower case, with every quoted string and
code block masked. So no rule reads an instruction inside quotation marks, and the position of a match is the evidence
in the prompt. Clauses end at the end of a sentence, a list item or a semicolon.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from checklist_rewards.checks.ifeval import question_of_instruction

Spec = dict[str, Any]


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern written over several lines. A line break and the spaces after it are not part of it."""
    return re.compile(one_line(text), flags)


def one_line(text: str) -> str:
    """The text of a pattern written over several lines; see [`pattern`]."""
    return re.sub(r"\n\s*", "", text)


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


def required(start: int, end: int, check: Spec, question: str = "") -> Requirement:
    """A requirement with its check, and the question of the check if none is given."""
    return Requirement(start, end, check, question or question_of_instruction(check))


def unexpressed(start: int, end: int, reason: str) -> Requirement:
    """A requirement that no check expresses."""
    return Requirement(start, end, None, reason=reason)


A_PART = "it is about a part of the response"
CONDITIONAL = "it holds only under a condition"
APPROXIMATE = "the number is approximate"


def regex_check(expression: str, **bounds: int) -> Spec:
    """The specification of a check with a regular expression."""
    return {"type": "regex", "pattern": expression, **bounds}


QUOTE, CODE = "\x01", "\x02"
"""Masks of quoted strings (with their quotation marks) and of code blocks."""
_STRAIGHT = str.maketrans(
    {**dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‘’‚", "'"), **dict.fromkeys("–—‑−", "-"), "\xa0": " "}
)
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Each starts with its quotation mark, so that a search skips to it.
_QUOTED = {
    '"': re.compile(r'"(?<!\w")(?=\S)([^"]{1,400})(?<=\S)"(?!\w)'),
    "'": re.compile(r"'(?<![\w'\"]')(?=[^\s'])((?:[^'\n]|'(?=\w)){1,200}?)(?<=\S)'(?![\w'])"),
    "`": re.compile(r"`([^`\n]{1,200})`"),
}
_JOINED = pattern(
    r"""\s*(?:[,;/&|]\s*)?(?:\n\s*)?(?:[-*•]\s+|\d+[.)]\s+)?(?:(?:and/or|and|or|as well as)\s+)?(?:(?:also|then)\s+)?
    (?:the\s+)?(?:(?:key)?(?:word|phrase|letter|term)\s+)?"""
)
_END = re.compile(r"[.!?;](?=[\s\x01\"')]|$)|\n(?!\s?[a-z])")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|p\.s|p\.p\.s|max|min|approx|etc|vs|ca|no)\Z")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*•]|\(?(?:\d{1,2}|[a-z])[.)])[ \t]")
_NEW_SENTENCE = re.compile(r"\s+[A-Z]")


LONGEST_CLAUSE = 500
"""Number of characters of a clause that rules read around a position, so that long prompts take linear time."""


class Strings(NamedTuple):
    """Quoted strings of one enumeration, such as "a", "b" or "c"."""

    values: tuple[str, ...]
    start: int
    end: int
    either: bool
    """The strings are joined by "or"."""

    @property
    def one(self) -> str | None:
        """The string, if there is only one."""
        return self.values[0] if len(self.values) == 1 else None


class PromptText:
    """A prompt with its quoted strings and code blocks masked."""

    def __init__(self, prompt: str):
        self.prompt = prompt
        cased = prompt.translate(_STRAIGHT)
        if "```" in cased:
            cased = _FENCED.sub(lambda match: CODE * len(match.group()), cased)
        quoted: list[tuple[int, int, str]] = []
        for mark, quotation in _QUOTED.items():
            if mark in cased:
                found = [(*match.span(), prompt[slice(*match.span(1))].strip()) for match in quotation.finditer(cased)]
                for start, end, _ in found:
                    cased = f"{cased[:start]}{QUOTE * (end - start)}{cased[end:]}"
                quoted += [(start, end, value.rstrip(",;")) for start, end, value in found if value.rstrip(",;")]
        quoted.sort()
        lower = cased.lower()
        if len(lower) != len(prompt):  # a few letters have no lower case of the same length
            lower = "".join(c if len(c.lower()) > 1 else c.lower() for c in cased)
        self.text = lower
        self._ends = self._ends_of_clauses(cased, quoted)
        self.strings = tuple(self._enumerations(quoted))
        self._found: dict[re.Pattern[str], re.Match[str] | None] = {}

    def anywhere(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """The first match of a pattern in the whole prompt, which is searched once."""
        if expression not in self._found:
            self._found[expression] = expression.search(self.prompt)
        return self._found[expression]

    def start_of_clause(self, position: int) -> int:
        """Where the clause around a position starts, at most `LONGEST_CLAUSE` characters before it."""
        after = bisect_right(self._ends, position)
        return max(self._ends[after - 1] if after else 0, position - LONGEST_CLAUSE)

    def end_of_clause(self, position: int) -> int:
        """Where the clause around a position ends, at most `LONGEST_CLAUSE` characters after it."""
        after = bisect_left(self._ends, position)
        return min(self._ends[after] if after < len(self._ends) else len(self.text), position + LONGEST_CLAUSE)

    def before(self, position: int, most: int = 120) -> str:
        """The text of the clause before a position, at most its last `most` characters."""
        return self.text[max(self.start_of_clause(position), position - most) : position]

    def after(self, position: int, most: int = 100) -> str:
        """The text of the clause from a position on, at most `most` characters."""
        return self.text[position : min(self.end_of_clause(position), position + most)]

    def header(self, position: int) -> str:
        """The line that introduces the list item at a position ("Each tweet should:"), "" outside a list."""
        line = self.text.rfind("\n", 0, position) + 1
        if line == 0 or not _LIST_ITEM.match(self.text, line):
            return ""
        end = line
        while (
            line
            and position - line < LONGEST_CLAUSE
            and (_LIST_ITEM.match(self.text, line) or self.text[line] == "\n")
        ):
            end = line - 1
            line = self.text.rfind("\n", 0, end) + 1
        header = self.text[line:end].rstrip()
        return header[max(header.rfind(". "), 0) :] if header.endswith(":") else ""

    def strings_at(self, position: int) -> Strings | None:
        """The quoted strings around a position."""
        return next((strings for strings in self.strings_in(position, position) if position < strings.end), None)

    def strings_in(self, start: int, end: int) -> tuple[Strings, ...]:
        """The quoted strings that start before `end`, from the last one that starts at or before `start`."""
        first = max(bisect_right(self.strings, start, key=lambda strings: strings.start) - 1, 0)
        return self.strings[first : bisect_right(self.strings, end, key=lambda strings: strings.start)]

    def _ends_of_clauses(self, cased: str, quoted: list[tuple[int, int, str]]) -> list[int]:
        ends = [
            match.end()
            for match in _END.finditer(cased)
            if match.group() != "." or not _ABBREVIATED.search(self.text, max(match.start() - 6, 0), match.start())
        ]
        # A sentence may end inside a quotation.
        ends += [end for _, end, value in quoted if value[-1] in ".!?" and _NEW_SENTENCE.match(cased, end)]
        return sorted(ends)

    def _enumerations(self, quoted: list[tuple[int, int, str]]) -> Iterator[Strings]:
        joined: Strings | None = None
        for start, end, value in quoted:
            between = "" if joined is None else self.text[joined.end : start]
            if joined is not None and between.strip() and _JOINED.fullmatch(between):
                either = joined.either or re.search(r"\bor\b", between) is not None
                joined = Strings((*joined.values, value), joined.start, end, either)
            else:
                if joined is not None:
                    yield joined
                joined = Strings((value,), start, end, False)
        if joined is not None:
            yield joined


NEGATION = one_line(
    r"""\b(?:do not|don't|dont|does not|doesn't|did not|never|not|no|without|avoid(?:ing)?|cannot|can't|must ?n't|
    shouldn't|won't|isn't|aren't|refrain(?:ing)? from|exclud(?:e|ing)|omit(?:ting)?|leav(?:e|ing) out|nor|free of|
    devoid of|forbidden|prohibited|ban(?:ned)?|skip(?:ping)?|neither)\b
    (?!\s+(?:only|just|forget|fail|hesitate|neglect|worry|limited|necessarily|matter)\b)"""
)
_NEGATED = re.compile(NEGATION + r"(?:\s+(?!and\b|but\b|then\b)[a-z'/]+){0,5}\s*$")
_CONDITION = pattern(
    r"""\b(?:if|when|whenever|unless|in case|whether|assuming)\b
    (?! (?:possible|needed|necessary|you can|(?:you )?(?:writ|respond|answer|reply)\w*))"""
)


# A search takes ten times as long as a look for its words, which most texts do not contain.
_NEGATIONS = (
    "free of",
    *"no n't dont avoid refrain exclud omit leav devoid forbid never prohibit ban skip neither without".split(),
)
_CONDITIONS = ("if", "when", "unless", "in case", "whether", "assuming")


def contains(text: str, words: tuple[str, ...]) -> bool:
    """Whether any of the words occurs in a text."""
    for word in words:
        if word in text:
            return True
    return False


def negation(before: str) -> re.Match[str] | None:
    """The negation with at most five words after it at the end of a text."""
    return _NEGATED.search(before) if contains(before, _NEGATIONS) else None


def negated(before: str) -> bool:
    """Whether a text ends with a negation and at most five words after it."""
    return negation(before) is not None


def conditional(before: str) -> bool:
    """Whether a text contains the start of a condition."""
    return contains(before, _CONDITIONS) and _CONDITION.search(before) is not None


RESPONSE = one_line(
    r"""(?:responses?|answers?|repl(?:y|ies)|outputs?|essay|text|story|poem|letter|e-?mail|article|blog(?: ?post)?
    |post|
    summary|paragraph|description|message|review|speech|script|song|report|content|writing|tweet|caption|rap|haiku|
    limerick|joke|riddle|list|note|proposal|resume|explanation|translation|whole thing|everything|entire thing|it|this|
    that|which|you|document|piece|submission|completion|dialogue|conversation|monologue|memo|advert(?:isement)?|ad|
    slogan|product|pitch|bio|biography|abstract|outline|plan|guide|recipe|narrative|passage|composition|analysis|
    itinerary|lyrics|announcement|rubric|quiz|template|brochure|statement|verse|length|total)"""
)
"""Nouns that stand for the response as a whole."""
PART = one_line(
    r"""(?:titles?|headlines?|headings?|subject(?: line)?|introductions?|intro|conclusions?|abstract|chorus|verses?|
    refrain|scenes?|acts?|slides?|descriptions|summaries|biographies|definitions|explanations|lines|sentences
    |paragraphs|
    bullets?|bullet points|points|stanzas|steps|items|sections|chapters|questions|examples|(?:first|second|third
    |fourth|
    fifth|last|final|opening|closing|introductory|concluding)(?: [a-z]+)? (?:paragraph|sentence|line|section|part|
    stanza|bullet|word|half))"""
)
"""Nouns that stand for a part of the response."""
EACH_WORDS = ("each", "every", "per")
_EACH = pattern(
    r"""\b(?:each|every|per)\b(?! of (?:the|these|those)(?: following)? (?:key ?)?(?:words|terms|phrases|letters)
    | (?:response|answer|reply|output)\b| (?:separated|divided)\b)"""
)


def each(text: str) -> bool:
    """Whether a text speaks of each of several parts."""
    return contains(text, EACH_WORDS) and _EACH.search(text) is not None


_PART_FIRST = re.compile(
    rf"[\s\W\d]*(?:(?:in|for|the|your|its|of|and|then|limit|keep)\s+)*(?:[a-z]+ )?{PART}\b"
    r"(?!,? (?:and|with|in|of|using|without)\b)"
)
_REPORTS = ("said", "says", "told", "taught", "heard", "claim", "believe", "think")
_REPORTED = re.compile(
    r"\b(?:said|says|told me|(?:was|were|am|been) told|taught|heard|claim(?:s|ed)|believes?|thinks?)\b"
)


def of_a_part(view: PromptText, position: int) -> bool:
    """Whether the clause before a position, or the header of its list, speaks of a part of the response."""
    before = view.text[view.start_of_clause(position) : position]
    return each(before) or _PART_FIRST.match(before) is not None or each(view.header(position))


def reported(view: PromptText, position: int) -> bool:
    """Whether the clause before a position reports what somebody said."""
    before = view.before(position)
    return contains(before, _REPORTS) and _REPORTED.search(before) is not None


def listed(values: Any) -> str:
    """Strings in quotation marks, joined by "and"."""
    return " and ".join(f'"{value}"' for value in values)
