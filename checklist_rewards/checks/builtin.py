"""The plain checks: counts; form; the language of a text. Those about words are in `words.py`, those about a numeric
answer in `numbers.py`.

A text is split into words and sentences by the rules of `text.py`, which hold in every script, and into paragraphs and
parts at blank lines and separators. Only the language requires a library: langdetect (the extra `checks`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import lru_cache
from typing import Annotated, Any, Literal

import regex
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator
from typing_extensions import override

from checklist_rewards.checks import ifeval_text
from checklist_rewards.checks.base import Bounds, Check, Counted, check_of, register_check
from checklist_rewards.checks.text import (
    begins_with,
    ends_with,
    folded,
    sentence_bounds,
    starts_with,
    word_bounds,
    words_of,
)
from checklist_rewards.errors import CheckError


class IFEvalRules(Check):
    """Base class of checks for which IFEval and its successors have rules of their own, written for English."""

    imported = frozenset({"ifeval"})
    ifeval: bool = False
    """Whether IFEval's rules apply. Imported instructions set it, so that answers agree with the benchmark's."""


def parts_of(text: str, separator: str | None = None) -> list[str]:
    """The parts of a text between blank lines, or between separators. Parts may be blank."""
    return re.split(r"\n\s*\n" if separator is None else re.escape(separator), text)


def capitals_in(text: str) -> list[str]:
    """Words with at least one capital letter and no lower-case letter. A hyphen does not end a word."""
    return [word for word in words_of(text) if word.isupper()]


Phrase = Annotated[str, Field(min_length=1)]
Phrases = Annotated[tuple[Phrase, ...], Field(min_length=1)]


# These patterns run on text written by a policy, so none may backtrack: each takes linear time on any text.
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_BULLET = re.compile(r"^[^\S\n]*(?:[-*+•●○◦■▪‣·][^\S\n]++(?![-*_ \t\r]*$)|・(?!・)[^\S\n]*+)\S", re.MULTILINE)
_LOOSE_BULLET = re.compile(r"^[^\S\n]*(?:\*[^*]|-).*$", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^\n*]*\*\*")
_ITALIC = re.compile(r"\*[^\n*]*\*")


@register_check
class Words(Counted, IFEvalRules):
    """Counts words by Unicode's rules; "don't", "Jean-Paul" and "3.5" are one word. Each Han or kana character is a
    word. Unanswered where the number depends on a text in Thai, Lao, Khmer, Burmese or Tibetan, whose words only a
    dictionary can count. With `ifeval`, every run of letters, digits and underscores is a word."""

    summary = "The text has the required number of words."
    example = {"at_least": 50, "at_most": 100}
    type: Literal["words"] = "words"

    @override
    def bounds(self, text: str) -> Bounds:
        return (len(ifeval_text.words_of(text)),) * 2 if self.ifeval else word_bounds(text)


@register_check
class Sentences(Counted, IFEvalRules):
    """Counts sentences by the punctuation of their script, as `sentences_of` of `text.py` does. Unanswered where the
    number depends on a text in Thai, Lao or Tibetan. With `ifeval`, English rules apply; with `list_numbers` too, and
    the number before a list item counts as a sentence."""

    summary = "The text has the required number of sentences."
    example = {"exactly": 3}
    type: Literal["sentences"] = "sentences"
    list_numbers: bool = False

    @override
    def bounds(self, text: str) -> Bounds:
        if self.ifeval or self.list_numbers:
            return (len(ifeval_text.sentences_of(text, self.list_numbers)),) * 2
        return sentence_bounds(text)


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
    """Counts lines that start with a bullet and a space, or with "・", without horizontal rules (* * *). With `loose`,
    every line that starts with `-` or with a single `*` counts (IFEval). This includes horizontal rules, list items
    without a space, and italics at the start of a line."""

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
class CapitalWords(Counted, IFEvalRules):
    """Counts words that have at least one capital letter and no lower-case letter."""

    summary = "The required number of words are written entirely in capital letters."
    example = {"at_least": 2}
    type: Literal["capital_words"] = "capital_words"

    @override
    def count(self, text: str) -> int:
        return len(ifeval_text.capitals_in(text) if self.ifeval else capitals_in(text))


_HEADING = re.compile(r"\A\s*#{1,6}[ \t]+\S")
_FENCE = re.compile(r"\A```[ \t]*(?:json)?[ \t]*\n?(.*?)\n?```\Z", re.DOTALL | re.IGNORECASE)
_JSON_KINDS = {"object": dict, "array": list}


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_STRICT: dict[str, Any] = {"parse_constant": _not_json, "parse_int": str}  # str: Python limits the digits of a number


@register_check
class Casing(IFEvalRules):
    """All letters are capitals, or none are. A text without letters passes neither. Letters of a script without case
    (Chinese, Arabic, Hindi ...) are not capitals."""

    summary = "All letters of the text are capitals ('upper'), or none are ('lower')."
    example = {"casing": "lower"}
    type: Literal["casing"] = "casing"
    casing: Literal["upper", "lower"]

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        if self.casing == "upper" or self.ifeval:
            return text.isupper() if self.casing == "upper" else text.islower()
        without_case = not any(char.isupper() or char.islower() or char.istitle() for char in text)
        return text.islower() or (without_case and any(map(str.isalpha, text)))


@register_check
class Starts(Check):
    """The text starts with a phrase. White space and Markdown emphasis before it are ignored, the kind of quotation
    marks too, and case by default. A letter or digit at the end of the phrase ends a word: "It is" does not start with
    "I"."""

    summary = "The text starts with this phrase."
    example = {"phrase": "Dear"}
    type: Literal["starts"] = "starts"
    phrase: str = Field(min_length=1)
    ignore_case: bool = True

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        start = folded(self.phrase, self.ignore_case).strip()
        text = folded(text, self.ignore_case).lstrip()
        return begins_with(text, start) or begins_with(text.lstrip("*"), start)


@register_check
class Ends(IFEvalRules):
    """The text ends with a phrase. White space, quotation marks and Markdown emphasis around the text are ignored, and
    case by default. A letter or digit at the start of the phrase begins a word: "there" does not end with "here"."""

    summary = "The text ends with this phrase."
    example = {"phrase": "Is there anything else?"}
    type: Literal["ends"] = "ends"
    phrase: str = Field(min_length=1)
    ignore_case: bool = True

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        if self.ifeval:
            text, end = text.strip().strip('"'), self.phrase.strip()
            return text.lower().endswith(end.lower()) if self.ignore_case else text.endswith(end)
        text, end = folded(text, self.ignore_case).strip(), folded(self.phrase, self.ignore_case).strip()
        return any(ends_with(text.rstrip(marks).rstrip(), end) for marks in ("", "*", '"»」』', '"»」』*'))


@register_check
class ParagraphStart(IFEvalRules):
    """A paragraph starts with a given word, whatever punctuation stands before it. Paragraphs are separated by blank
    lines."""

    summary = "The paragraph with this number (from 1) starts with this word."
    example = {"paragraph": 1, "word": "once"}
    type: Literal["paragraph_start"] = "paragraph_start"
    paragraph: int = Field(default=1, ge=1)
    word: str = Field(min_length=1)

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        paragraphs = [part for part in parts_of(text) if part.strip()]
        if len(paragraphs) < self.paragraph:
            return False
        paragraph = paragraphs[self.paragraph - 1]
        if self.ifeval:
            return ifeval_text.first_word(paragraph) == self.word.lower()
        return starts_with(paragraph, self.word)


_QUOTATION_MARKS = {'"': '"', "“": "”", "„": "“”", "”": "”", "«": "»", "»": "«", "「": "」", "『": "』", "＂": "＂"}


@register_check
class Quoted(IFEvalRules):
    """The whole text is enclosed in double quotation marks, straight or those of its language. With `ifeval`, only
    straight ones count."""

    summary = "The whole text is enclosed in double quotation marks."
    type: Literal["quoted"] = "quoted"

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        text = text.strip()
        if self.ifeval:
            return len(text) > 1 and text[0] == text[-1] == '"'
        return len(text) > 1 and text[-1] in _QUOTATION_MARKS.get(text[0], ())


@register_check
class Json(IFEvalRules):
    """The whole text is JSON (RFC 8259), alone or in one Markdown code block. With `ifeval`, what Python's parser
    accepts beyond JSON counts too: NaN and Infinity."""

    summary = "The whole text is valid JSON, with this 'kind' and these 'keys' if they are given."
    example = {"kind": "object", "keys": ["name"]}
    type: Literal["json"] = "json"
    kind: Literal["object", "array"] | None = None
    keys: tuple[str, ...] = ()

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        text = text.strip()
        fenced = _FENCE.match(text)
        try:
            value = json.loads(fenced.group(1) if fenced else text, **({} if self.ifeval else _STRICT))
        except (ValueError, RecursionError):  # RecursionError: nested too deeply for the parser
            return False
        if self.kind is not None and not isinstance(value, _JSON_KINDS[self.kind]):
            return False
        return not self.keys or (isinstance(value, dict) and all(key in value for key in self.keys))


@register_check
class Title(Check):
    """The text has a title: in double angle brackets within a line, or a Markdown heading at the start."""

    summary = "The text has a title: <<like this>> ('angled'), or a Markdown heading at the start ('heading')."
    example = {"style": "angled"}
    type: Literal["title"] = "title"
    style: Literal["angled", "heading"]

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        if self.style == "heading":
            return _HEADING.match(text) is not None
        return any(map(_angled, text.split("\n")))


def _angled(line: str) -> bool:
    """Whether a line contains <<something>>."""
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end - 2 and bool(line[start:end].lstrip("<").rstrip(">").strip())


@register_check
class Postscript(Check):
    """The text contains the marker of a postscript. Case and spaces inside the marker are ignored."""

    summary = "The text has a postscript that starts with this marker."
    example = {"marker": "P.S."}
    type: Literal["postscript"] = "postscript"
    marker: str = Field(default="P.S.", min_length=1)

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        marker = "".join(self.marker.split())
        return bool(marker) and re.search(r"\s*".join(map(re.escape, marker)), text, re.IGNORECASE) is not None


@register_check
class RepeatsPrompt(IFEvalRules):
    """The text starts with the prompt, word for word. Case, white space and the kind of quotation marks are
    ignored."""

    summary = "The text starts by repeating the prompt (or 'prompt', if given) word for word."
    type: Literal["repeats_prompt"] = "repeats_prompt"
    prompt: str | None = Field(default=None, min_length=1)

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        """Compares with `input` if the check has no `prompt`. Raises [`CheckError`] if both are missing."""
        prompt = input if self.prompt is None else self.prompt
        if prompt is None or not prompt.strip():
            raise CheckError("the sample has no input that the text could repeat")
        if self.ifeval:
            return text.strip().lower().startswith(prompt.strip().lower())
        return folded(text).strip().startswith(folded(prompt).strip())


@register_check
class TwoResponses(Check):
    """The text consists of two different responses with a separator between them."""

    summary = "The text contains exactly two different responses, separated by this separator."
    example = {"separator": "******"}
    type: Literal["two_responses"] = "two_responses"
    separator: str = Field(default="******", min_length=1)

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        parts = text.split(self.separator)
        responses = [part.strip() for part in parts if part.strip()]
        gap = not all(part.strip() for part in parts[1:-1])
        return not gap and len(responses) == 2 and responses[0] != responses[1]


@register_check
class All(Check):
    """The text passes several checks."""

    summary = "The text passes all of the given checks."
    example = {"checks": [{"type": "words", "at_most": 50}, {"type": "casing", "casing": "lower"}]}
    type: Literal["all"] = "all"
    checks: tuple[Annotated[SerializeAsAny[Check], BeforeValidator(check_of)], ...] = Field(min_length=1)

    @property
    @override
    def runs_code(self) -> bool:
        return any(check.runs_code for check in self.checks)

    @override
    def fault(self) -> str | None:
        return next(filter(None, (check.fault() for check in self.checks)), None)

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        return all(check.holds(text, input) for check in self.checks)


LANGUAGES = tuple(
    "af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt "
    "ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh zh-cn zh-tw".split()
)
"""The languages that langdetect 1.0.9 supports: ISO 639-1 codes, and Chinese in two scripts; `zh` is either."""
_SCRIPTS = {
    "Arabic": "ar fa ur",
    "Bengali": "bn",
    "Cyrillic": "bg mk ru uk",
    "Devanagari": "hi mr ne",
    "Greek": "el",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Han": "zh zh-cn zh-tw",
    "Hangul": "ko",
    "Hebrew": "he",
    "Kana": "ja",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Tamil": "ta",
    "Telugu": "te",
    "Thai": "th",
}
"""The languages of each script; those of the Latin one are the others."""
_OF_A_SCRIPT = {language: script for script, languages in _SCRIPTS.items() for language in languages.split()}
_SCRIPT = regex.compile(
    "|".join(rf"(?P<{script}>\p{{{script}}})" for script in _SCRIPTS if script != "Kana")
    + r"|(?P<Kana>[\p{Hiragana}\p{Katakana}])|(?P<Latin>\p{Latin})"
)
_MIN_LETTERS = 30
"""Letters that langdetect requires. Of parts of sentences in 11 languages it told all with 30 letters, 9 in 10 with
20, and 8 in 10 with 8."""


@register_check
class Language(IFEvalRules):
    """Compares the language of most words of the text. The script decides where it has one language. Otherwise
    langdetect does, from 30 letters on; a shorter text is unanswered. `zh` is Chinese in either script."""

    summary = "The text is written in this language (ISO 639-1 code)."
    example = {"language": "en"}
    type: Literal["language"] = "language"
    language: str

    @field_validator("language")
    @classmethod
    def _known(cls, language: str) -> str:
        if language not in LANGUAGES:
            raise ValueError(f"unknown language; allowed: {', '.join(LANGUAGES)}")
        return language

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        """False for a text without letters, which has no language."""
        if self.ifeval:
            language = language_of(text)
            return language == self.language or (self.language == "zh" and language in ("zh-cn", "zh-tw"))
        script, letters = script_of(text)
        if script is None or script != _OF_A_SCRIPT.get(self.language, "Latin"):
            return False
        if script == "Han":
            return self.language == "zh" or _chinese(text) == self.language
        if " " not in _SCRIPTS.get(script, " "):
            return True
        if letters < _MIN_LETTERS:
            raise CheckError(
                f"the text has {letters} letters, too few to tell its language; {_MIN_LETTERS} are required"
            )
        return language_of(text) == self.language


def script_of(text: str) -> tuple[str | None, int]:
    """The script of most words of a text, and the number of its letters; None for a text without words. Chinese
    characters and kana together are Japanese ("Kana")."""
    words: Counter[str] = Counter()
    letters: Counter[str] = Counter()
    for word in words_of(text):
        scripts = [match.lastgroup for match in _SCRIPT.finditer(word)]
        if scripts:
            words[scripts[0]] += 1 + (len(word) // 4 if scripts[0] == "Thai" else 0)
            letters.update(scripts)
    if words["Kana"] * 10 >= words["Han"]:
        words["Kana"] += words.pop("Han", 0)
    if not words or not max(words.values()):
        return None, 0
    script = max(words, key=lambda name: words[name])
    return script, letters[script]


def _chinese(text: str) -> str:
    """ "zh-cn" or "zh-tw": the script of most characters that only one of the two has.

    Raises:
        CheckError: If the text has none of them, or as many of both.
    """
    simplified = traditional = 0
    for char in text:
        in_one, in_other = _encodes(char, "gb2312"), _encodes(char, "big5")
        simplified += in_one and not in_other
        traditional += in_other and not in_one
    if simplified == traditional:
        raise CheckError("the text has no characters that tell simplified from traditional Chinese; use 'zh' for both")
    return "zh-cn" if simplified > traditional else "zh-tw"


@lru_cache(maxsize=16384)
def _encodes(char: str, encoding: str) -> bool:
    if not "\u4e00" <= char <= "\u9fff":
        return False
    try:
        return bool(char.encode(encoding))
    except UnicodeEncodeError:
        return False


@lru_cache(maxsize=1024)
def language_of(text: str) -> str | None:
    """The most probable language of a text, or None if it has no letters.

    langdetect samples n-grams, with a fixed seed here.

    Raises:
        CheckError: If langdetect is not installed.
    """
    try:
        from langdetect.lang_detect_exception import ErrorCode, LangDetectException
    except ImportError:
        raise CheckError(
            "langdetect, which detects languages, is not installed (pip install 'checklist-rewards[checks]')"
        ) from None
    detector = _factory().create()
    detector.seed = 0
    detector.append(text)
    try:
        return detector.detect()
    except LangDetectException as error:
        if error.code == ErrorCode.CantDetectError:
            return None
        raise


@lru_cache(maxsize=1)
def _factory() -> Any:
    # A separate factory, because langdetect's own is shared by the whole process.
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    return factory
