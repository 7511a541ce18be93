"""The basic words: a clause in some sixty words, one for each English word or phrase.

"Please don't write more than 50 words!" becomes `not write over 50 word`. Rules and filter are phrases of basic words,
so they list no other ways to say "at most" or "make sure". `basic_words.txt` has the basic words with the words and
phrases (with underscores) that they stand for. Any other word is `_`: it can be part of a topic, nothing else. A
number becomes its digits, "twice" `2x`, a quoted string `string`, a single letter `char`; the things of `things.py`
become `word`, `piece`, `mark`, `caps` or `section`. Words of politeness and order ("please", "also") are omitted.
"""

from __future__ import annotations

import re
from pathlib import Path

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SMALL = {word: n for n, word in enumerate(_UNITS)} | {word: 10 * n for n, word in enumerate(_TENS, start=2)}
VALUES = {
    **_SMALL,
    **{f"{ten} {unit}": _SMALL[ten] + _SMALL[unit] for ten in _TENS for unit in _UNITS[1:10]},
    **{f"{word} hundred": 100 * n for word, n in _SMALL.items()},
    **{f"{word} thousand": 1000 * n for word, n in _SMALL.items()},
    "hundred": 100,
    "thousand": 1000,
    "dozen": 12,
    "half a dozen": 6,
    "single": 1,
}
"""Words for numbers. Two numbers of these in a row ("two hundred fifty") are not read as one."""
TIMES = {"once": 1, "twice": 2, "thrice": 3}
"""Words for a number of times."""
DIGITS = re.compile(r"\d{1,7}|\d{1,3}(?:,\d{3})+")
LANGUAGES = dict(
    pair.split(":")
    for pair in (
        "afrikaans:af arabic:ar bulgarian:bg bengali:bn catalan:ca czech:cs welsh:cy danish:da german:de greek:el "
        "english:en spanish:es estonian:et persian:fa farsi:fa finnish:fi french:fr gujarati:gu hebrew:he hindi:hi "
        "croatian:hr hungarian:hu indonesian:id italian:it japanese:ja kannada:kn korean:ko lithuanian:lt latvian:lv "
        "macedonian:mk malayalam:ml marathi:mr nepali:ne dutch:nl norwegian:no punjabi:pa polish:pl portuguese:pt "
        "romanian:ro russian:ru slovak:sk slovenian:sl somali:so albanian:sq swedish:sv swahili:sw tamil:ta telugu:te "
        "thai:th tagalog:tl turkish:tr ukrainian:uk urdu:ur vietnamese:vi"
    ).split()
)
"""Languages that the check `language` can tell apart, with their codes."""
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
ORDINALS = {word: n for n, word in enumerate(_ORDINALS, start=1)}
ORDINALS |= {f"{n}{'th' if n > 3 else ('st', 'nd', 'rd')[n - 1]}": n for n in range(1, 11)}
QUOTE, CODE = "\x01", "\x02"
"""Masks of quoted strings (with their quotation marks) and of code blocks and other material."""
ANCHORS = set("repeat copy restate rewrite reproduce p.s p.p.s mark marks json bullet stop stops exact finish".split())
"""Words of which a clause needs one to have a requirement; [`learn`] adds those of the things."""
COUNTED: set[str] = set()
"""Words of things that matter only with a number."""
NUMBERS = frozenset(word.rpartition(" ")[2] for word in (*VALUES, *TIMES))
"""Words with which a number ends."""


class _BasicWords(dict[str, str]):
    """The basic words of single words."""

    def __missing__(self, word: str) -> str:
        basic = {QUOTE: "string", "<": "brackets"}.get(word[0], "_")
        if DIGITS.fullmatch(word):
            basic = str(int(word.replace(",", "")))
        elif len(word) == 1 and word.isalpha():
            basic = "char"
        if len(self) < _KNOWN:
            self[word] = basic
        return basic


_KNOWN = 20_000
"""Number of words whose basic word is kept."""
BASIC_WORDS = _BasicWords({"\n": ",", ":": ":", "-": "-"} | dict.fromkeys(",;()[]", ","))
PHRASES: dict[tuple[str, str], list[tuple[list[str], str, str]]] = {}
"""Phrases by their first two words, each with its name without hyphens and its basic word; longest first."""


def learn(basic: str, phrases: list[str], anchors: set[str] | None = None) -> None:
    """Add words and phrases of a basic word, each with a word of it in `anchors`. The first entry of a word counts."""
    for phrase in phrases:
        first, *rest = phrase.split("_")
        for words in ([first, *rest], [first, "-", *rest]) if rest else ():
            name = " ".join(word for word in words if word != "-")
            PHRASES.setdefault((words[0], words[1]), []).append((words, name, basic))
            PHRASES[words[0], words[1]].sort(key=lambda one: -len(one[0]))
        if not rest:
            BASIC_WORDS.setdefault(first, basic)
        if anchors is not None and anchors.isdisjoint((first, *rest)):
            anchors.add(max((first, *rest), key=len))


for _value, _number in VALUES.items():
    learn(str(_number), [_value.replace(" ", "_")])
for _value, _number in TIMES.items():
    learn(f"{_number}x", [_value])
learn("first", list(ORDINALS))
learn("word", "name term terms phrase phrases".split(), COUNTED)
learn("language", list(LANGUAGES), ANCHORS)
NOUNS = set("use start end mention complete format form".split())
"""Words that are verbs elsewhere and nouns after "the", an adjective or another noun."""
_ANCHORED = ("word", "letter", "json", "postscript", "brackets", "quotes", "asterisks", "length")
_table = Path(__file__).with_name("basic_words.txt").read_text(encoding="utf-8")
for _line in _table.replace("\n    ", " ").splitlines():
    _basic, _, _words = _line.partition(": ")
    if _basic == "response":
        NOUNS.update(_words.split())
    if not _line.startswith("#"):
        learn(_basic.replace("omitted", ""), _words.split(), ANCHORS if _basic in _ANCHORED else None)
BEFORE_NOUNS = frozenset("the a short _ word - response".split())
VERBS = frozenset("write use describe says start end may written keep".split())
"""Basic words of [`NOUNS`] that become `response` behind one of [`BEFORE_NOUNS`]: "the answer", "his use"."""
NOUNS = {noun for noun in NOUNS if BASIC_WORDS[noun] in VERBS}
