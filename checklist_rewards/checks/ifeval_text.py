"""How IFEval, open-instruct and IFBench cut a text into words and sentences.

These rules are for English. They stay as they are, odd cases included, so that the checks of imported instructions
agree with the verdicts of the benchmarks. The rules of all other checks are in `text.py`.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_END = re.compile(r"""(?<![.?!])([.?!]++)(["'”’)\]}*_]*+)(?=\s++(\S)|\s*\Z)""")
_LONGEST = 80
"""Number of characters before a full stop that are inspected."""
_QUOTES = "\"'”’"
ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e eg ie al approx dept est fig inc ltd co corp no vol p pp ca cf "
    "a.m p.m u.s u.k u.s.a ph.d b.a m.a b.s m.s jan feb mar apr jun jul aug sep sept oct nov dec gen col lt sgt capt "
    "rev hon gov sen rep mt ft".split()
)


def words_of(text: str) -> list[str]:
    """Runs of letters, digits and underscores. An apostrophe or a hyphen separates two words."""
    return _WORD.findall(text)


def sentences_of(text: str, list_numbers: bool = False) -> list[str]:
    """The sentences of a text. A sentence ends with a full stop, question mark or exclamation mark, optional closing
    quotation marks, and white space.

    The full stop of an abbreviation does not end a sentence. Neither does a mark inside quotation marks before a
    lower-case letter ("Why?" he asked.). With `list_numbers`, the full stop after a number at the start of a line
    (1. First) ends a sentence.
    """
    sentences, start = [], 0
    for match in _END.finditer(text):
        mark, closing, following = match.groups()
        before = text[max(start, match.start() - _LONGEST) : match.start()]
        if following and _goes_on(before, mark, closing, following, list_numbers):
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


def _goes_on(before: str, mark: str, closing: str, following: str, list_numbers: bool) -> bool:
    words = before.split()
    last = words[-1].lstrip("\"'“‘([*_") if words else ""
    if mark == "." and not closing:
        initial = len(last) == 1 and last.isupper() and last != "I"
        if initial or last.casefold() in ABBREVIATIONS:
            return True
        opens_line = before.rpartition("\n")[2].strip() == last
        if last.isdigit() and (following.islower() or (opens_line and not list_numbers)):
            return True
    return any(quote in closing for quote in _QUOTES) and following.islower()


def first_word(text: str) -> str:
    """The first word in lower case, without quotation marks before it or punctuation after it."""
    words = text.split()
    match = re.match(r"[^.,?!'\"]*", words[0].lstrip("\"'“‘")) if words else None
    return match.group().lower() if match else ""


_TOKEN = re.compile(r"[^\s()\[\]{}<>\"“”,;:!?`]+")


def capitals_in(text: str) -> list[str]:
    """Words with at least one capital letter and no lower-case letter. A hyphen does not end a word."""
    return [token for token in _TOKEN.findall(text) if token.isupper()]


def occurrences(text: str, phrase: str, whole_words: bool = True, ignore_case: bool = True) -> int:
    """Number of occurrences of a phrase in a text, without overlaps."""
    pattern = re.escape(phrase)
    if whole_words:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return len(re.findall(pattern, text, re.IGNORECASE if ignore_case else 0))
