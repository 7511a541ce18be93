"""A prompt as the rules read it: masked, in clauses, each as basic words.

[`PromptText`] keeps positions: its `text` has the length of the prompt, in lower case, with quoted strings, code and
texts that a request or a label announces ("Translate the text below.") masked. So no rule reads an instruction that is
material, and the position of a word is the evidence in the prompt. A clause ends at the end of a sentence or a list
item. Of nested quotations only the outer one is a string. Clauses that are too long to be read are left out.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from checklist_rewards.generators.constraints.lexicon import (
    ANCHORS,
    BASIC_WORDS,
    BEFORE_NOUNS,
    CODE,
    COUNTED,
    NOUNS,
    NUMBERS,
    PHRASES,
    QUOTE,
    VERBS,
)

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


_STRAIGHT = str.maketrans(
    {**dict.fromkeys("“”„‟«»", '"'), **dict.fromkeys("‘’‚", "'"), **dict.fromkeys("–—‑−", "-"), "\xa0": " "}
)
_BLOCKS = {
    "```": re.compile(r"```.*?(?:```|\Z)", re.DOTALL),
    ">": re.compile(r"^>[ \t]*[^\s\d].*", re.MULTILINE),
    '{"': re.compile(r'\{"[^"\n]{1,60}":[^}]{0,999}\}'),
    "---\n": re.compile(r"(?ms)^-{3,}\n.*?\n-{3,}$"),
    "[BEGIN": re.compile(r"(?s)\[BEGIN[^\]\n]{0,40}\].*?(?:\[END|\Z)"),
    "B": re.compile(
        r"(?ms)A(?:(?<!\wA)\)|(?<=^A)\.) .{0,300}?(?:\bB\)|^B\.) [^\n.?!]*"
        r"(?:[.?!]?\s*(?:\(?[C-H]\)|^[C-H]\.) [^\n.?!]*)*"
    ),
}
"""Code, quoted lines, texts between lines and options of a question, each with a string that the text needs."""
_TREATS = re.compile(
    r"(?:^|[.!?:]\s+)\W*(?:(?:please|kindly|can you|could you) )*(?:fix|correct|translate|improve|proofread|edit"
    r"|summari[sz]e|classify|convert|paraphrase|rephrase|rewrite|reword|rate|evaluate|analy[sz]e|critique|check|review"
    r"|shorten|simplify|rank|judge|grade|parse|turn|continue|compare|add|make|tell me|which (?:of|one)|is the|answer"
    r"|reply|respond|below|here(?:'s| is| are)(?! (?:the|my|some) (?:rule|requirement|constraint|guideline)s:))\b"
)
_ANNOUNCES = re.compile(r"\b(?:below|above|following|these|this|my|here are|paste)\b|^\W*\w+ (?:in)?to \w+\W*$")
"""With [`_TREATS`] or a colon: a line before a text to work on."""
_RULES = re.compile(
    r"\b(?:rule|requirement|constraint|instruction|guideline|criteri|format|(?:key)?word|phrase|must|should|follow\b"
    r"|us(?:e|ing)\b|includ|response|answer|reply|question|style|structure|section|separat|like\b)"
)
"""Words of a line before requirements, not before a text."""
_GIVEN = re.compile(
    r"[^\n:]{0,200}\b(?:(?:this|these|following|my|a system) (?:prompt|request|instruction|requirement|rule"
    r"|constraint|assignment|brief)s?\b[^\n:.?]{0,80}(?::(?=[ \t])|\?)"
    r"|(?:this|next|following) (?:prompt|sentence)\b[^\n:.?]{0,80}[.?]"
    r"|(?:summari[sz]e|paraphrase|rephrase|shorten|condense)\b[^\n:.?]{0,200}:(?=[ \t])"
    r"(?! (?:max|min|in|at|no|use|under|up|less|fewer|keep|write|only|[\d\"'“])))"
)
"""What stands before another prompt in its line, often a question about it."""
_GIVING = (
    *"prompt request instruction requirement rule constraint assignment brief sentence".split(),
    *"summari paraphrase rephrase shorten condense".split(),
)
"""Words of which [`_GIVEN`] needs one."""
_LABEL = re.compile(
    r"\W{0,6}(?:(?P<text>(?:input|text|review|article|passage|document|email|message|transcript|draft|comment|user"
    r"|assistant|[qa])s?\W{0,3}(?::|$))|(?:task|instruction|constraint|requirement|rule|question|format|output|note)s?\b)"
)
OF_RESPONSE = re.compile(
    r"\b(?:your|the|this)(?: (?:entire|whole|full|complete|final))? (?:response|answer|reply|(?<!the )output)\b"
)
_QUOTED = {
    "“": re.compile(r"“([^“”]{1,400})”"),
    '"': re.compile(r'"(?<!\w")(?=\S)([^"]{1,400})(?<=\S)"(?!\w)'),
    "'": re.compile(r"'(?<![\w'\"]')(?=[^\s'])((?:[^'\n]|'(?=\w)){1,200}?)(?<=\S)'(?![\w'])"),
    "`": re.compile(r"`([^`\n]{1,200})`"),
}
_JOINED = re.compile(
    r"\s*(?:[,;/&|]\s*)?(?:\n\s*)?(?:[-*•]\s+|\d+[.)]\s+)?(?:(?:and/or|and|or|nor|as well as)\s+)?"
    r"(?:(?:also|then)\s+)?(?:the\s+)?(?:(?:key)?(?:word|phrase|letter|term)\s+)?"
)
"""What stands between the quoted strings of an enumeration."""
_END = re.compile(
    r"[.!?\n](?<!(?i:max|min).(?! [A-Z]))(?!(?<=(?i:p\.s\.)) [a-z])"
    r"(?:(?<=\n)(?!\s?[a-z])|(?<!\n)(?=[\s\x01\"')]|$)|(?<=P\.)S\s(?=[A-Z]))"
)
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*•]|\(?(?:\d{1,2}|[a-z])[.)])[ \t]")
_NEW_SENTENCE = re.compile(r"\s+[A-Z](?=[\sa-z])")
_TOKEN = re.compile(
    r"((?![ .!?\"])(?:[^\W\d_](?!\.)[\w'#]*|(?:e\.g|i\.e|p\.\s?p\.\s?s|p\.\s?s)\b\.?|[^\W\d_]|[$€£#]?\d+(?:[.,:]\d+)*"
    r"(?:%|\w+)?|\x01+|\x02+|\*+|<<[^<>\n]{0,60}>>|[<>=]=?|[-,:;()\n+≤≥≈±/~\[\]]))"
)
_DIGIT = re.compile(r"\d")
_QUESTIONS = frozenset("do does did was were have which when am".split())
LONGEST_CLAUSE = 700
"""Number of characters of a clause that rules read. A longer one gives no item, so prompts take linear time."""
_LONGEST_HEADER = 2000
_PADDING = [""] * 4
"""Empty words behind a clause, so that rules may look behind its end; those before it are the same."""


class Strings(NamedTuple):
    """Quoted strings of one enumeration, such as "a", "b" or "c"."""

    values: tuple[str, ...]
    start: int
    end: int
    either: bool = False
    """The strings are joined by "or"."""


class Clause:
    """A clause of a prompt, from `start` to `end`.

    `tokens` are its basic words, `words` the words or phrases of the prompt in lower case, `starts` and `ends` their
    places in the prompt. `plain` has all basic words, each followed by a space.
    """

    def __init__(self, view: PromptText, start: int, end: int):
        self.view, self.start, self.end, self.text = view, start, end, view.text[start:end]
        self.tokens, self.words, self.starts, self.ends = basic_words(self.text, start)
        self.length, self.plain = len(self.tokens), " ".join(self.tokens) + " "
        self._offsets = [0, *itertools.accumulate(map(len, self.tokens))]
        self.tokens, self.words = self.tokens + _PADDING, self.words + _PADDING
        self.header = self._header(view.text) if view.has_headers else ""
        """The basic words of the line that introduces the list item of the clause: "Each tweet should:"."""

    def _header(self, text: str) -> str:
        line = text.rfind("\n", 0, self.end - len(self.text.lstrip())) + 1
        end = text.rfind(":\n", max(line - _LONGEST_HEADER, 0), line)
        if end < 0 or not _LIST_ITEM.match(text, line):
            return ""
        first = max(text.rfind("\n", 0, end), text.rfind(". ", 0, end)) + 1
        return " ".join(basic_words(text[first : end + 1])[0])

    def asks(self) -> bool:
        """Whether it is a question, not a request."""
        if not self.text.rstrip().endswith("?"):
            return False
        first = next((n for n, token in enumerate(self.tokens) if token not in (",", "and")), 0)
        return self.tokens[first] in ("how", "is", "says", "may", "must", "mustnt") or self.words[first] in _QUESTIONS

    def of_response(self) -> bool:
        """Whether it names the response: "your answer"."""
        return OF_RESPONSE.search(self.text) is not None

    def span(self, match: re.Match[str], group: int | str = 0) -> tuple[int, int]:
        """The basic words from which and up to which a match in `plain` reaches."""
        start, end = match.span(group)
        first = self.plain.count(" ", 0, start)
        return first, first + self.plain.count(" ", start, end)

    def around(self, start: int, end: int) -> tuple[str, str]:
        """The basic words before and after those from `start` to `end`."""
        return self.plain[: self._offsets[start] + start], self.plain[self._offsets[end] + end :]

    def at(self, place: int) -> int:
        """The number of the first word at or after a place of the text of the clause."""
        return bisect_left(self.starts, self.start + place)

    def given(self, index: int) -> Strings:
        """The enumeration at a place; a word that is not quoted is one of a single string."""
        start, end = self.starts[index], self.ends[index]
        return self.view.quoted.get(start) or Strings((self.view.prompt[start:end],), start, end)


def basic_words(text: str, start: int = 0) -> tuple[list[str], list[str], list[int], list[int]]:
    """The basic words of a text, with the words or phrases that they stand for, and where these start and end, counted
    from `start`. Words of politeness are omitted."""
    parts = _TOKEN.split(text)
    places = list(itertools.accumulate(map(len, parts), initial=start))
    words, starts, ends = parts[1::2], places[1:-1:2], places[2::2]
    tokens = list(map(BASIC_WORDS.__getitem__, words))
    after = 0
    for n in itertools.compress(itertools.count(), map(PHRASES.__contains__, itertools.pairwise(words))):
        for phrase, name, basic in PHRASES[words[n], words[n + 1]] if n >= after else ():
            if words[n : n + len(phrase)] == phrase:
                after = n + len(phrase)
                words[n], tokens[n], ends[n] = name, basic, ends[after - 1]
                tokens[n + 1 : after] = [""] * (len(phrase) - 1)
                break
    if "" in tokens:
        words = list(itertools.compress(words, tokens))
        starts, ends = list(itertools.compress(starts, tokens)), list(itertools.compress(ends, tokens))
        tokens = list(filter(None, tokens))
    if not NOUNS.isdisjoint(words):
        for n in [n for n, word in enumerate(words) if word in NOUNS]:
            if n and tokens[n - 1] in BEFORE_NOUNS and tokens[n] in VERBS:
                tokens[n] = "response"
    for n in [n for n, token in enumerate(tokens) if token == "letter"] if "letter" in tokens else ():
        after = n + 1 + (tokens[n + 1 : n + 2] in ([","], [":"]))
        if tokens[after : after + 1] not in (["string"], ["char"], ["a"], ["they"]):  # "a" and "I" are letters
            tokens[n] = "part" if words[n] == "letters" else "response"
    return tokens, words, starts, ends


def numbers(text: str) -> set[int]:
    """The whole numbers of a text in lower case, without decimal numbers, prices and percentages."""
    return {int(token.rstrip("x")) for token in basic_words(text)[0] if token[:1].isdigit()}


_APART = bytes(n if chr(n).isalnum() else 32 for n in range(256))
"""A space in place of every character of Latin-1 but letters and digits."""


class PromptText:
    """A prompt with its quoted strings, code and material masked."""

    def __init__(self, prompt: str):
        self.prompt = cased = prompt
        quoted: list[tuple[int, int]] = []
        if not prompt.isascii():
            cased = _masked(_QUOTED["“"], cased, quoted).translate(_STRAIGHT)
        for mark, block in _BLOCKS.items():
            if mark in cased:
                cased = block.sub(lambda match: CODE * len(match.group()), cased)
        cased = "".join(_without_material(cased))
        for mark, quotation in _QUOTED.items():
            if mark in cased:
                cased = _masked(quotation, cased, quoted)
        outer: list[tuple[int, int, str]] = []
        for start, end in sorted(quoted, key=lambda span: (span[0], -span[1])):
            if not (outer and start < outer[-1][1]):
                outer.append((start, end, prompt[start + 1 : end - 1].strip().rstrip(",;")))
        self.quoted = {strings.start: strings for strings in _enumerations(cased, outer)} if quoted else {}
        """The enumerations of quoted strings by their places."""
        for strings in self.quoted.values():
            mask = QUOTE if strings.values[0] else CODE
            cased = cased[: strings.start] + mask * (strings.end - strings.start) + cased[strings.end :]
        self.text = _lower(cased)
        self.ends = [match.end() for match in _END.finditer(cased)]
        """The ends of the clauses, without that of the text. A sentence may end inside a quotation."""
        for _, end, value in outer:
            if value.endswith((".", "!", "?")) and _NEW_SENTENCE.match(cased, end):
                insort(self.ends, end)
        self._apart = self.text.encode("latin-1", "replace").translate(_APART).decode("latin-1")
        """The text with spaces in place of everything but letters and digits."""
        self.has_headers = ":\n" in self.text
        self._marks = [mark for mark in (QUOTE, "**", "<<", "p.") if mark in self.text]
        self._found: dict[int, int] = {}

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the masked text."""
        return frozenset(self._apart.split())

    def last(self, expression: re.Pattern[str], words: Iterable[str]) -> int:
        """Where a pattern, which needs one of the words, matches for the last time in the masked text, -1 for nowhere.
        The text is searched once."""
        if self.words.isdisjoint(words):
            return -1
        key = id(expression)  # the hash of a pattern takes as long as a search
        if key not in self._found:
            self._found[key] = max((match.start() for match in expression.finditer(self.text)), default=-1)
        return self._found[key]

    def clauses(self) -> Iterator[Clause]:
        """The clauses that contain a word with which a requirement can start."""
        start = 0
        for end in [*self.ends, len(self.text)]:
            words = self._apart[start:end].split()
            if end - start <= LONGEST_CLAUSE and (
                not ANCHORS.isdisjoint(words)
                or (not COUNTED.isdisjoint(words) and self._has_number(words, start, end))
                or (self._marks and any(self.text.find(mark, start, end) >= 0 for mark in self._marks))
            ):
                yield Clause(self, start, end)
            start = end

    def _has_number(self, words: list[str], start: int, end: int) -> bool:
        return not NUMBERS.isdisjoint(words) or _DIGIT.search(self.text, start, end) is not None


def _without_material(text: str) -> Iterator[str]:
    """The lines of a text, where those that are material for a task are masked: what follows "Translate this text." or
    a label such as "Input:", up to a label such as "Task:" or a line about the response."""
    lines, lower, above = text.splitlines(keepends=True), _lower(text), 0
    if len(lines) == 1 and not any(map(lower.__contains__, (":", "?", "prompt", "sentence"))):
        yield text  # it has nothing that ends what stands before another prompt
        return
    plain = lower.splitlines(keepends=True)
    if "above" in text:
        above = max((n for n, line in enumerate(lines) if "above" in line and _TREATS.search(plain[n])), default=0)
    inside = begun = False
    for n, (line, lower) in enumerate(zip(lines, plain, strict=True)):
        label = _LABEL.match(lower) if len(lines) > 1 else None
        if label or (begun and OF_RESPONSE.search(lower)):
            inside, begun = bool(label and label["text"]), False
        given = _GIVEN.match(lower) if any(map(lower.__contains__, _GIVING)) else None
        kept = 0 if n < above or inside else given.end() if given else len(line)
        yield line if kept == len(line) else line[:kept] + re.sub(".", CODE, line[kept:])
        begun = inside and (begun or bool(line.strip() and not label))
        inside = inside and not line.startswith('"')  # a quotation is masked as such
        if not inside and n + 1 < len(lines):
            announced = (line.rstrip().endswith(":") and not _RULES.search(lower)) or _TREATS.search(lower)
            asked = given and given[0][-1] in ".?" and given.end() == len(line.rstrip())
            inside = bool(asked or (announced and '"' not in line and _ANNOUNCES.search(lower)))


def _lower(text: str) -> str:
    """The text in lower case, with the same length: a few letters have no lower case of their length."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c if len(c.lower()) > 1 else c.lower() for c in text)


def _enumerations(text: str, quoted: list[tuple[int, int, str]]) -> Iterator[Strings]:
    """The quoted strings, with those that a comma, "and" or "or" joins as one."""
    strings: Strings | None = None
    for start, end, value in quoted:
        between = text[strings.end : start].lower() if strings else ""
        if strings and between.strip() and _JOINED.fullmatch(between) and "" not in (value, strings.values[-1]):
            either = strings.either or re.search(r"\bn?or\b", between) is not None
            strings = Strings((*strings.values, value), strings.start, end, either)
        else:
            if strings:
                yield strings
            strings = Strings((value,), start, end)
    if strings:
        yield strings


def _masked(quotation: re.Pattern[str], text: str, quoted: list[tuple[int, int]]) -> str:
    """The text with its quotations masked. Their spans are added to `quoted`."""

    def mask(match: re.Match[str]) -> str:
        quoted.append(match.span())
        return QUOTE * len(match.group())

    return quotation.sub(mask, text)
