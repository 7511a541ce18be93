"""What counts as a word, a sentence and an occurrence, in every script.

- Words follow Unicode's word boundaries (UAX #29). Apostrophes, hyphens and the marks inside numbers do not separate
  words: "don't", "Jean-Paul", "3.5" and "1,250" are one word each. Every Han and kana character is one word, as in
  word processors.
- Some scripts are written without spaces and without one word per character: Thai, Lao, Khmer, Burmese, Tibetan and a
  few others. Only a dictionary can count their words, so a run of them has between one word and one word per
  character. Counts are pairs, the fewest and the most; a check that depends on the difference is unanswered.
- Texts are compared in composed form (NFC), so "é" is one letter however it was typed. Straight and curly quotation
  marks are the same, and so are a space and a line break.

The rules of IFEval and of its successors differ; see `ifeval_text.py`. All functions take linear time.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

import regex

from checklist_rewards.checks.base import Bounds
from checklist_rewards.checks.ifeval_text import ABBREVIATIONS

IDEOGRAPHS = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\uff70"
_UNSPACED = r"\p{Line_Break=SA}\p{Tibetan}"
"""Scripts without a mark between words. Thai, Lao and Tibetan have none between sentences either."""
_NO_SENTENCES = r"\p{Thai}\p{Lao}\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}\p{Tibetan}"

_LINKS = r"-\u2010\u2011'’´\u02bc\uff07&@\u00b7\u2027\u05be\u058a"
_NUMBER_MARKS = r",:/\u066b\u066c"
_JOINED = (
    rf"(?:(?=[{_LINKS}{_NUMBER_MARKS}.\u00a0\u2009\u202f\"\u05f3\u05f4])(?:"
    rf"[{_LINKS}]START REST*|(?:(?<![a-zа-я])\.|\.(?![A-ZА-Я]))START REST*"
    rf"|(?<=\d)[{_NUMBER_MARKS}](?=\d)REST+|(?<=\d)[\u00a0\u2009\u202f]\d{{3}}(?!\d)"
    r"|(?<=\.[A-Za-z])\.[-\u2010\u2011'’]START REST*"
    r"|(?:(?<=http)|(?<=https))://[!-~]+HEBREW))*"
)
"""What goes on inside a word: an apostrophe, a hyphen, a full stop (except in "rains.It"); the marks of a number; the
rest of a URL."""


def _words(start: str, rest: str, hebrew: str, others: str) -> str:
    joined = _JOINED.replace("START ", start).replace("REST", rest).replace("HEBREW", hebrew)
    return rf"{others}{start}{rest}*{joined}"


_BEYOND_LATIN = re.compile(
    "[^\x00-\u02ff\u1e00-\u1eff\u2000-\u200a\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2190-\u22ff]"
)
_LATIN_WORD = re.compile(_words(r"[^\W_]", r"[\w\u00ad]", "", ""))
_INSIDE = r"[[\p{L}\p{N}\p{M}_\u00ad\u200c\u200d\u2060]--[IDEOGRAPHS UNSPACED]]"
_BEGINS = r"[[\p{L}\p{N}]--[IDEOGRAPHS UNSPACED]]"
_WORD = regex.compile(
    "(?V1)"
    + _words(
        rf"(?:(?![0-9]\ufe0f?\u20e3){_BEGINS})",
        _INSIDE,
        r"|(?<=\p{Hebrew})[\"\u05f3\u05f4](?=\p{Hebrew})REST+".replace("REST", _INSIDE),
        r"[[IDEOGRAPHS]&&[\p{L}\p{N}]][\p{M}\uff9e\uff9f]*|[UNSPACED]+|",
    )
    .replace("IDEOGRAPHS", IDEOGRAPHS)
    .replace(" UNSPACED", _UNSPACED)
    .replace("UNSPACED", _UNSPACED)
)
_UNSPACED_RUN = regex.compile(rf"[{_UNSPACED}]+")
_GRAPHEME = regex.compile(r"\X")
_LETTER = re.compile(r"[^\W_]")


def _is_latin(text: str) -> bool:
    """Whether the faster pattern of words, which is equal for Latin letters and English punctuation, applies."""
    return text.isascii() or _BEYOND_LATIN.search(text) is None


def words_of(text: str) -> list[str]:
    """The words of a text. A run of a script that cannot be counted is one element; see [`word_bounds`]."""
    pattern: Any = _LATIN_WORD if _is_latin(text) else _WORD
    return pattern.findall(text)


def units_of(text: str) -> list[str]:
    """The words of a text, to compare and to measure it: a run that cannot be counted is taken by character."""
    words = words_of(text)
    if _is_latin(text):
        return words
    return [unit for word in words for unit in (_GRAPHEME.findall(word) if _UNSPACED_RUN.match(word) else [word])]


def trigrams(text: str) -> list[tuple[str, ...]]:
    """The word trigrams of a text in order, to compare it with others: without case."""
    units = units_of(text.casefold())
    return list(zip(units, units[1:], units[2:], strict=False))


def word_bounds(text: str) -> Bounds:
    """The number of words."""
    count = len(words_of(text))
    runs = [] if _is_latin(text) else _UNSPACED_RUN.findall(text)
    return count, count + sum(len(_GRAPHEME.findall(run)) - 1 for run in runs)


_CLOSING = r"(?:[\"'”’»)\]}*_」』】》〉）］｣]|[ \u00a0\u202f]»)*"
_SYMBOL = r"[\p{Extended_Pictographic}\p{Regional_Indicator}\p{Emoji_Modifier}\ufe0f\u200d\u20e3\U000e0020-\U000e007f]"
_MARKS = r".?!\u2026\p{Sentence_Terminal}"
_SENTENCE_END = regex.compile(
    rf"(?V1)(?<![{_MARKS}])([{_MARKS}]++|(?<=\p{{Greek}})[;\u037e])({_CLOSING})(?:\[\d{{1,3}}\])*+(?:\s*+{_SYMBOL}++)*+"
)
_GAP = regex.compile(r"(\s*)[\"'“‘«(\[*_#>\-+•「『（]*\s*")
_NO_SENTENCE_GAP = regex.compile(rf"(?<=[{_NO_SENTENCES}])\s+(?=[{_NO_SENTENCES}])")
_UNSPACED_LETTER = regex.compile(rf"[{IDEOGRAPHS}\p{{Hangul}}]")
_NEXT = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*\.?")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_INITIAL = re.compile(r"[^\W\d_]\.")
_ROMAN = re.compile(r"[IVXLC]+")
_QUOTES = "\"'”’»」』"
_LONGEST = 80
"""Number of characters before a full stop that are inspected."""
_TITLES = frozenset(
    "mr mrs ms dr prof st mt ft gen col lt sgt capt rev hon gov sen rep mme mlle sra srta dra uds nr bzw ggf "
    "sog vgl bspw inkl tzn bijv рис см стр табл ул им проф e.g i.e eg ie vs cf".split()
)
"""Abbreviations that never end a sentence before a capital letter."""
_LAST = frozenset(
    "etc al inc ltd co corp a.m p.m usw ee uu ud np ex vb itd enz г гг в вв тыс млн млрд руб коп др пр т.д т.п".split()
)
"""Abbreviations that end a sentence before a capital letter. Others do so before one of [`_STARTERS`]."""
_KNOWN = ABBREVIATIONS | _TITLES | _LAST
_STARTERS = frozenset(
    "a an the i i'm i'll i've it it's he she we you they this that these those there here my your his her its our "
    "their what when where why how if in on at for from with after before as but and so then yet however also "
    "some many most all each every let once now today yesterday tomorrow nobody everybody everyone nothing "
    "everything".split()
)
_OF_A_TIME = frozenset(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august "
    "september october november december et est edt ct cst cdt mt mst mdt pt pst pdt gmt utc cet cest bst "
    "eastern central pacific".split()
)
_BEFORE_A_NAME = frozenset("by and with of for from to see as or between than author".split())
_GERMAN_ORDINALS = frozenset(
    "januar februar märz april mai juni juli august september oktober november dezember jahrhundert jahrhunderts "
    "weltkrieg weltkriegs".split()
)


def sentences_of(text: str) -> list[str]:
    """The sentences of a text. A sentence ends with a mark of its script (. ? ! … 。 । ؟ and others), the quotation
    marks that close it, and the emojis that follow. White space has to follow . ? ! and … only; not ? and !
    between Chinese, Japanese or Korean letters.

    Not the end of a sentence: the full stop of an abbreviation, an initial or a list number, if the sentence goes on;
    an ellipsis before a lower-case letter; a mark inside quotation marks before a lower-case letter ("Why?" he asked).
    What has neither letters nor digits is part of the sentence before it.
    """
    sentences: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        mark, closing = match.groups()
        if match.end() < len(text) and _goes_on(text, start, match.start(), mark, closing, match.end()):
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    whole: list[str] = []
    for sentence in (*sentences, text[start:].strip()):
        if whole and sentence and not (_LETTER.search(sentence) and _LETTER.search(whole[-1])):
            whole[-1] = f"{whole[-1]} {sentence}"
        elif sentence:
            whole.append(sentence)
    return whole


def sentence_bounds(text: str) -> Bounds:
    """The number of sentences. Thai, Lao and Tibetan separate sentences by a space, but not every space does."""
    count = len(sentences_of(text))
    return count, count + (0 if _is_latin(text) else len(_NO_SENTENCE_GAP.findall(text)))


def _goes_on(text: str, start: int, at: int, mark: str, closing: str, end: int) -> bool:
    """Whether the sentence from `start` goes on after the mark at `at`; the text that follows starts at `end`."""
    if mark == "." and not closing and text[end].isspace():
        last = text[max(start, at - _LONGEST) : at].rsplit(None, 1)[-1:]
        if last and last[0].isalpha() and len(last[0]) > 1 and last[0].casefold() not in _KNOWN:
            return False
    gap = _GAP.match(text, end)
    space, following = gap.group(1), text[gap.end() : gap.end() + 1]
    if not space and mark[-1] in ".?!…;\u037e":
        between = _UNSPACED_LETTER.match(text, at - 1) and _UNSPACED_LETTER.match(text, end)
        if not between or mark[-1] not in "?!":
            return text[end - 1] in mark + closing  # an emoji or a footnote ends the sentence without white space
    if not following:
        return False
    quoted = any(quote in closing for quote in _QUOTES)
    if not space:
        return quoted and ("\u3040" <= text[end] <= "\u309f" or text[end] in "，、,")
    if quoted and following.islower():
        return True
    if mark in ("…", "...", "....") and not quoted:
        return following.islower()
    return mark == "." and not closing and _abbreviates(text[max(start, at - _LONGEST) : at], text, gap, following)


def _abbreviates(before: str, text: str, gap: Any, following: str) -> bool:
    """Whether a full stop after `before` belongs to an abbreviation, an initial or a number, and does not end the
    sentence."""
    words = before.split()
    last = words[-1].lstrip("\"'“‘([*_#>") if words else ""
    plain = last.casefold()
    found = _NEXT.match(text, gap.end(), gap.end() + _LONGEST)
    follower = found.group() if found else following
    word = follower.rstrip(".").replace("’", "'").casefold()
    opens_line = before.rpartition("\n")[2].strip(" \t\"'“‘([*_#>-+•") == last
    if opens_line and (last.isdigit() or len(last) == 1):  # the number of a list item
        return True
    if "\n" in gap.group(1) and (gap.group(1).count("\n") > 1 or gap.group().strip()):  # a paragraph, a list item
        return False
    if last.isdigit():
        return following.islower() or (len(last) < 3 and word in _GERMAN_ORDINALS)
    if plain == "no":
        return following.isdigit() or _ROMAN.fullmatch(follower) is not None
    single = len(last) == 1 and last.isalpha()
    if single and (_INITIAL.fullmatch(follower) or (following.islower() and _INITIAL.fullmatch(words[-2:][0]))):
        return True  # J. K., z. B., т. е.
    if single and last.isupper() and last != "I":
        previous = words[-2].casefold() if len(words) > 1 else ""
        name = not previous or previous in _BEFORE_A_NAME or not words[-2][0].islower()
        return following.islower() or (name and word not in _STARTERS)
    if plain not in _KNOWN and not _DOTTED.fullmatch(last):
        return False
    if plain in _TITLES or not following.isupper() or follower == "UU.":
        return True
    if plain in ("a.m", "p.m"):
        return word in _OF_A_TIME
    return plain not in _LAST and word not in _STARTERS


_SAME = (("\u2010", "-"), ("\u2011", "-"), *((char, "") for char in "\u00ad\u200b\u2060\ufeff\ufe0e\ufe0f"))
_SAME_QUOTES = (*((char, "'") for char in "‘’‛´\u02bc\uff07"), *((char, '"') for char in "“”„‟\uff02"))
_SIDE = r"[[\p{L}\p{M}\p{N}]--[IDEOGRAPHS UNSPACED\p{Hangul}]]".replace("IDEOGRAPHS", IDEOGRAPHS).replace(
    " UNSPACED", _UNSPACED
)
_BESIDE = rf"_{{0,3}}{_SIDE}"
"""A letter or digit next to a phrase, or after the underscores of a name; those of _emphasis_ are not."""
_PARTICLES = (
    "(?:들|님)?(?:은|는|이|가|을|를|의|에|에서|에게|에게서|께|께서|한테|와|과|랑|하고|도|만|로|으로|서|써|부터|까지|보다|처럼|같이|마다|"
    r"조차|마저|밖에|뿐|나|이나|라도|라고|이라고|란|이란|며|이며|고|이고|다|이다|입니다|요|이에요|예요|야){0,3}+(?!\p{Hangul})"
)
_ENGLISH_ENDINGS = frozenset("s t d m ll re ve".split())


_OPTIONAL_MARKS = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0656-\u065f\u0670]"
)
"""Vowel signs of Hebrew and Arabic, and what only stretches a word."""
_FULL_WIDTH = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")


@lru_cache(maxsize=64)
def folded(text: str, ignore_case: bool = True, quotes: bool = True) -> str:
    """A text as phrases are compared: composed, without invisible characters, white space as one space each, straight
    quotation marks, without the vowel signs that Hebrew and Arabic may omit, and without case."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        for char, same in (*_SAME, *(_SAME_QUOTES if quotes else ())):
            text = text.replace(char, same)
        text = _OPTIONAL_MARKS.sub("", text)
        text = _FULL_WIDTH.sub(lambda match: chr(ord(match[0]) - 0xFEE0), text)
    text = f"{' ' * text[:1].isspace()}{' '.join(text.split())}{' ' * text[-1:].isspace()}"
    if ignore_case:
        text = (
            text.lower() if text.isascii() else unicodedata.normalize("NFC", text.casefold()).replace("i\u0307", "i")
        )
    return text


def occurrence_bounds(text: str, phrase: str, whole_words: bool = True, ignore_case: bool = True) -> Bounds:
    """The number of occurrences of a phrase, without overlaps.

    With `whole_words`, a phrase that starts or ends with a letter or digit occurs where a word starts or ends: "don"
    does not occur in "don't", "C" not in "C++", "3" not in "3.5", but "river" does in "the river's". Punctuation
    marks, emojis, Han and kana occur anywhere. Korean particles may follow. Inside a run of a script without spaces
    (Thai) it is not certain that a phrase is a word.
    """
    if not folded(phrase).strip():  # white space, or signs that have no meaning of their own
        return (text.count(phrase),) * 2
    quotes = _LETTER.search(phrase) is not None
    text, phrase = folded(text, ignore_case, quotes), folded(phrase, ignore_case, quotes)
    if not whole_words:
        return (text.count(phrase),) * 2
    if phrase not in text:
        return 0, 0
    surely, perhaps = as_words(phrase)
    fewest = len(surely.findall(text))
    return fewest, fewest if perhaps is None else len(perhaps.findall(text))


def starts_with(text: str, word: str) -> bool:
    """Whether the first word of a text is this one, whatever punctuation stands before it."""
    text, word = folded(text), folded(word).strip()
    first = _LETTER.search(text)
    if first is None:
        return False
    pattern = as_words(word)[0]
    return any(pattern.match(text, place) is not None for place in range(max(0, first.start() - 4), first.start() + 1))


def begins_with(text: str, phrase: str) -> bool:
    """Whether a folded text begins with a folded phrase, and no letter or digit after it continues its last word. In
    scripts that do not separate words by spaces, any may follow."""
    if not text.startswith(phrase) or not phrase or _kind(phrase[-1]) not in ("letter", "digit"):
        return text.startswith(phrase)
    return regex.compile(f"(?V1){_after(phrase[-1])}").match(text, len(phrase)) is not None


def ends_with(text: str, phrase: str) -> bool:
    """Whether a folded text ends with a folded phrase, and no letter or digit before it continues its first word; as
    [`begins_with`]."""
    if not text.endswith(phrase) or not phrase or _kind(phrase[0]) not in ("letter", "digit"):
        return text.endswith(phrase)
    return regex.compile(f"(?V1){_before(phrase[0])}").match(text, len(text) - len(phrase)) is not None


@lru_cache(maxsize=512)
def as_words(phrase: str) -> tuple[Any, Any | None]:
    """The pattern of a phrase as whole words; where that is not certain, also the pattern of any occurrence."""
    literal = regex.escape(phrase, special_only=True, literal_spaces=True)
    first, last = phrase[0], phrase[-1]
    before, after = _before(first), _after(last)
    if first == "'" or phrase.split()[0].partition("'")[0] in _ENGLISH_ENDINGS:
        before += r"(?<!\p{L}')"
    surely = regex.compile(f"(?V1){before}{literal}{after}")
    unsure = any(_kind(char) == "unspaced" for char in (first, last))
    return surely, regex.compile(f"(?V1){literal}") if unsure else None


def _kind(char: str) -> str:
    for kind, members in (
        ("ideograph", IDEOGRAPHS),
        ("unspaced", _UNSPACED),
        ("hangul", r"\p{Hangul}"),
        ("digit", r"\p{Nd}"),
        ("letter", r"\p{L}\p{M}\p{N}"),
    ):
        if regex.match(f"[{members}]", char):
            return kind
    return "mark"


def _before(char: str) -> str:
    return {
        "mark": r"(?<!\u200d)",
        "ideograph": "",
        "unspaced": f"(?<![{_UNSPACED}])",
        "hangul": r"(?<!\p{Hangul})",
        "letter": f"(?<!{_SIDE}_{{0,3}})",
        "digit": rf"(?<!{_SIDE}_{{0,3}}|\d\.|\d,(?=\d{{3}}(?!\d)))",
    }[_kind(char)]


def _after(char: str) -> str:
    return {
        "mark": r"(?![\u200d\u20e3])",
        "ideograph": "",
        "unspaced": f"(?![{_UNSPACED}])",
        "hangul": f"(?={_PARTICLES})",
        "letter": rf"(?!{_BESIDE}|\+\+|#(?!\w)|'t\b)",
        "digit": rf"(?!{_BESIDE}|\.\d|,\d{{3}}(?!\d))",
    }[_kind(char)]
