"""The plain checks: counts; form; the language of a text; a numeric answer. Those about words are in `words.py`.

A text is split into words, sentences, paragraphs and parts with plain rules, without models or data files. Only the
language requires a library: langdetect (the extra `checks`).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator
from typing_extensions import override

from checklist_rewards.checks.base import Check, Counted, check_of, register_check
from checklist_rewards.errors import CheckError

_WORD = re.compile(r"\w+")
_END = re.compile(r"""(?<![.?!])([.?!]++)(["'”’)\]}*_]*+)(?=\s++(\S)|\s*\Z)""")
_LONGEST = 80
"""Number of characters before a full stop that are inspected."""
_QUOTES = "\"'”’"
_ABBREVIATIONS = frozenset(
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
        if initial or last.casefold() in _ABBREVIATIONS:
            return True
        opens_line = before.rpartition("\n")[2].strip() == last
        if last.isdigit() and (following.islower() or (opens_line and not list_numbers)):
            return True
    return any(quote in closing for quote in _QUOTES) and following.islower()


def parts_of(text: str, separator: str | None = None) -> list[str]:
    """The parts of a text between blank lines, or between separators. Parts may be blank."""
    return re.split(r"\n\s*\n" if separator is None else re.escape(separator), text)


def first_word(text: str) -> str:
    """The first word in lower case, without quotation marks before it or punctuation after it."""
    words = text.split()
    match = re.match(r"[^.,?!'\"]*", words[0].lstrip("\"'“‘")) if words else None
    return match.group().lower() if match else ""


_TOKEN = re.compile(r"[^\s()\[\]{}<>\"“”,;:!?`]+")


def capitals_in(text: str) -> list[str]:
    """Words with at least one capital letter and no lower-case letter. A hyphen does not end a word."""
    return [token for token in _TOKEN.findall(text) if token.isupper()]


Phrase = Annotated[str, Field(min_length=1)]
Phrases = Annotated[tuple[Phrase, ...], Field(min_length=1)]


def occurrences(text: str, phrase: str, whole_words: bool = True, ignore_case: bool = True) -> int:
    """Number of occurrences of a phrase in a text, without overlaps."""
    pattern = re.escape(phrase)
    if whole_words:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return len(re.findall(pattern, text, re.IGNORECASE if ignore_case else 0))


# These patterns run on text written by a policy, so none may backtrack: each takes linear time on any text.
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_BULLET = re.compile(r"^[ \t]*[-*+•][ \t]+\S", re.MULTILINE)
_LOOSE_BULLET = re.compile(r"^[^\S\n]*(?:\*[^*]|-).*$", re.MULTILINE)
_BOLD = re.compile(r"\*\*[^\n*]*\*\*")
_ITALIC = re.compile(r"\*[^\n*]*\*")


@register_check
class Words(Counted):
    """Counts words: runs of letters, digits and underscores."""

    summary = "The text has the required number of words."
    example = {"at_least": 50, "at_most": 100}
    type: Literal["words"] = "words"

    @override
    def count(self, text: str) -> int:
        return len(words_of(text))


@register_check
class Sentences(Counted):
    """Counts sentences by their punctuation, as [`sentences_of`] does. With `list_numbers`, the number before a list
    item counts as a sentence (IFEval)."""

    summary = "The text has the required number of sentences."
    example = {"exactly": 3}
    type: Literal["sentences"] = "sentences"
    list_numbers: bool = False

    @override
    def count(self, text: str) -> int:
        return len(sentences_of(text, self.list_numbers))


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
    """Counts lines that start with a bullet and a space. With `loose`, every line that starts with `-` or with a
    single `*` counts (IFEval). This includes horizontal rules, list items without a space, and italics at the start of
    a line."""

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
class CapitalWords(Counted):
    """Counts words that have at least one capital letter and no lower-case letter."""

    summary = "The required number of words are written entirely in capital letters."
    example = {"at_least": 2}
    type: Literal["capital_words"] = "capital_words"

    @override
    def count(self, text: str) -> int:
        return len(capitals_in(text))


_HEADING = re.compile(r"\A\s*#{1,6}[ \t]+\S")
_FENCE = re.compile(r"\A```[ \t]*(?:json)?[ \t]*\n?(.*?)\n?```\Z", re.DOTALL | re.IGNORECASE)
_JSON_KINDS = {"object": dict, "array": list}


@register_check
class Casing(Check):
    """All letters are capitals, or none are. A text without letters passes neither."""

    summary = "All letters of the text are capitals ('upper'), or none are ('lower')."
    example = {"casing": "lower"}
    type: Literal["casing"] = "casing"
    casing: Literal["upper", "lower"]

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        return text.isupper() if self.casing == "upper" else text.islower()


@register_check
class Starts(Check):
    """The text starts with a phrase. White space before it is ignored, and case by default."""

    summary = "The text starts with this phrase."
    example = {"phrase": "Dear"}
    type: Literal["starts"] = "starts"
    phrase: str = Field(min_length=1)
    ignore_case: bool = True

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        text, start = text.lstrip(), self.phrase.strip()
        return text.lower().startswith(start.lower()) if self.ignore_case else text.startswith(start)


@register_check
class Ends(Check):
    """The text ends with a phrase. White space and quotation marks around the text are ignored, and case by
    default."""

    summary = "The text ends with this phrase."
    example = {"phrase": "Is there anything else?"}
    type: Literal["ends"] = "ends"
    phrase: str = Field(min_length=1)
    ignore_case: bool = True

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        text, end = text.strip().strip('"'), self.phrase.strip()
        return text.lower().endswith(end.lower()) if self.ignore_case else text.endswith(end)


@register_check
class ParagraphStart(Check):
    """A paragraph starts with a given word. Paragraphs are separated by blank lines."""

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
        return first_word(paragraphs[self.paragraph - 1]) == self.word.lower()


@register_check
class Quoted(Check):
    """The whole text is enclosed in double quotation marks."""

    summary = "The whole text is enclosed in double quotation marks."
    type: Literal["quoted"] = "quoted"

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        text = text.strip()
        return len(text) > 1 and text[0] == text[-1] == '"'


@register_check
class Json(Check):
    """The whole text is JSON, alone or in one Markdown code block."""

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
            value = json.loads(fenced.group(1) if fenced else text)
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
        return re.search(r"\s*".join(map(re.escape, self.marker)), text, re.IGNORECASE) is not None


@register_check
class RepeatsPrompt(Check):
    """The text starts with the prompt, word for word. Case and surrounding white space are ignored."""

    summary = "The text starts by repeating the prompt (or 'prompt', if given) word for word."
    type: Literal["repeats_prompt"] = "repeats_prompt"
    prompt: str | None = Field(default=None, min_length=1)

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        """Compares with `input` if the check has no `prompt`. Raises [`CheckError`] if both are missing."""
        prompt = input if self.prompt is None else self.prompt
        if prompt is None or not prompt.strip():
            raise CheckError("the sample has no input that the text could repeat")
        return text.strip().lower().startswith(prompt.strip().lower())


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
    "ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw".split()
)


@register_check
class Language(Check):
    """Compares the most probable language of the whole text."""

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
        return language_of(text) == self.language


@lru_cache(maxsize=1024)
def language_of(text: str, seed: int = 0) -> str | None:
    """The most probable language of a text, or None if it has no letters.

    langdetect samples n-grams, so another `seed` may give another language for a short or mixed text.

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
    detector.seed = seed
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


_NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+)?")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")


@register_check
class Number(Check):
    """Compares the last number of the text, or of the last `\\boxed{...}` in it. "so it is 1,250." is read as 1250,
    "3/4" as 0.75; percent signs and currencies are ignored."""

    summary = "The final answer, the last number in the text (or in the last \\boxed{}), is this number."
    example = {"value": 42}
    type: Literal["number"] = "number"
    value: float = Field(allow_inf_nan=False)
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    """Largest allowed absolute difference."""

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        """False for a text without a number."""
        answer = last_number(text)
        return answer is not None and abs(answer - self.value) <= self.tolerance


def last_number(text: str) -> float | None:
    """The last number of a text, or of its last `\\boxed{...}`; None if there is no number."""
    text = _FRACTION.sub(r"\1/\2", text)
    boxes = _BOXED.findall(text)
    numbers = _NUMBER.findall(boxes[-1] if boxes else text)
    if not numbers:
        return None
    above, _, below = numbers[-1].replace(",", "").replace("−", "-").partition("/")
    divisor = float(below or 1)
    return float(above) / divisor if divisor else None


# The languages that langdetect 1.0.9 supports: ISO 639-1 codes, and Chinese in two scripts.
