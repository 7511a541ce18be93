"""How a text falls into words, sentences, paragraphs and parts: plain rules without models or data files."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_END = re.compile(r"""(?<![.?!])([.?!]++)(["'”’)\]}*_]*+)(?=\s++(\S)|\s*\Z)""")
_LONGEST = 80
"""Characters before a full stop that are looked at."""
_QUOTES = "\"'”’"
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e eg ie al approx dept est fig inc ltd co corp no vol p pp ca cf "
    "a.m p.m u.s u.k u.s.a ph.d b.a m.a b.s m.s jan feb mar apr jun jul aug sep sept oct nov dec gen col lt sgt capt "
    "rev hon gov sen rep mt ft".split()
)


def words_of(text: str) -> list[str]:
    """Runs of letters, digits and underscores; what stands around an apostrophe or a hyphen is two words."""
    return _WORD.findall(text)


def sentences_of(text: str, list_numbers: bool = False) -> list[str]:
    """Sentences end with a full stop, a question or an exclamation mark, closing quotation marks and white space.

    The full stop of an abbreviation ends none, nor does a mark in quotation marks before a small letter ("Why?" he
    asked.), nor, unless `list_numbers`, that of a number at the beginning of a line (1. First).
    """
    found, start = [], 0
    for match in _END.finditer(text):
        mark, closing, following = match.groups()
        before = text[max(start, match.start() - _LONGEST) : match.start()]
        if following and _goes_on(before, mark, closing, following, list_numbers):
            continue
        found.append(text[start : match.end()].strip())
        start = match.end()
    return [sentence for sentence in (*found, text[start:].strip()) if sentence]


def _goes_on(before: str, mark: str, closing: str, following: str, list_numbers: bool) -> bool:
    words = before.split()
    last = words[-1].lstrip("\"'“‘([*_") if words else ""
    if mark == "." and not closing:
        initial = len(last) == 1 and last.isupper() and last != "I"
        if initial or last.casefold() in _ABBREVIATIONS:
            return True
        opens_line = before.rpartition("\n")[2].strip() == last
        if last.isdigit() and (following.islower() or (opens_line and not list_numbers)):
            return True
    return any(quote in closing for quote in _QUOTES) and following.islower()


def parts_of(text: str, separator: str | None = None) -> list[str]:
    """What stands between blank lines, or between separators; parts may be blank."""
    return re.split(r"\n\s*\n" if separator is None else re.escape(separator), text)


def first_word(text: str) -> str:
    """The first word in lower case, without quotation marks before it and up to a full stop, a comma or the like."""
    words = text.split()
    match = re.match(r"[^.,?!'\"]*", words[0].lstrip("\"'“‘")) if words else None
    return match.group().lower() if match else ""


_TOKEN = re.compile(r"[^\s()\[\]{}<>\"“”,;:!?`]+")


def capitals_in(text: str) -> list[str]:
    """Words without a lower-case letter and with at least one capital; a hyphen does not end a word."""
    return [token for token in _TOKEN.findall(text) if token.isupper()]
