"""The check of a numeric answer: the last number of a text, or of its last `\\boxed{...}`.

Plain numbers are read here, in the notations that people use. What remains is LaTeX (roots, powers, sums), which
math-verify reads (the extra `checks`), as in TRL's accuracy reward. The text is hostile: `9^{9^{9}}` would compute for
ever, and math-verify can only be interrupted in the main thread. So it gets short expressions of whole numbers with
small exponents only; any other answer does not count as a number.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field
from typing_extensions import override

from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.errors import CheckError, SampleError
from checklist_rewards.validation import import_extra

_LONGEST = 300
"""Longest content of a box that is read, in characters."""
_END = 2000
"""Number of characters at the end of a text that are read first, and in which a formula needs no box."""
_COMMA = r"(?:\d+,\d\d?|0,\d+|\d{1,3},(?!(?:1[5-9]|20)\d\d(?!\d))\d{4,})"
"""A number with a decimal comma. A group of three digits or a year ("May 11,1985") may not follow the comma."""
_WHOLE = (
    r"(?:\d{1,3}(?:\.\d{3}){1,6},\d{1,9}|\d{1,3}(?:\.\d{3}){2,6}(?!\d)"  # 1.250,50 and 1.250.000
    r"|(?:\d{1,3}(?:[\u00a0\u2009\u202f'’_]\d{3}){1,7}|\d{1,2} \d{3}(?: \d{3})?(?! ?\d))"
    r"(?!\d)(?:\.\d+|,\d+(?![\d,)\]}]))?"  # 1 250 and 1 250,50
    r"|\d{1,3}(?:,\d{2,3}){0,6},\d{3}(?!\d)(?:\.\d+)?"  # 1,250
    rf"|(?<![(\[{{,]){_COMMA}(?![\d,)\]}}])"  # 3,5
    r"|\d+(?:\.\d+)?|\.\d+)"
)
_NUMBER = re.compile(
    # Not inside a name ("H2O", "x_2", "items.0") or a version, but after a short form ("Rs.500"); other scripts write
    # a number right after a word: "答案是42".
    r"(?<![\d^A-Za-zÀ-ÖØ-öø-ɏͰ-ӿ])(?<![\d.]\.)(?<!\b[A-Za-z]\.)(?<![A-Za-z]{4}\.)(?<![^\W_]_)(?<![)}\]]_)(?<![\^_]\{)"
    r"(?P<sign>(?:(?<!\d\w)(?<!\d\w\w)[-+–])?)"  # "3月-5月" is a range
    rf"(?:(?P<mixed>\d{{1,9}}) (?=\d+/\d))?(?P<number>{_WHOLE})"
    r"(?P<exp>[eE][-+]?\d+|\s?[×·*x]\s?10(?:\^\{?-?\d+\}?(?!\d)))?"
    r"(?:/(?P<below>\d+)|(?P<power>\^(?:\{-?\d+\}|-?\d+)))?"
)
_FRACTION = re.compile(
    r"(\d?)(\s{0,3})\\[dtc]?frac\s{0,9}(?:\{\s{0,9}(-?\d+)\s{0,9}\}\s{0,9}\{\s{0,9}(\d+)\s{0,9}\}|(\d)\s{0,9}(\d))"
)
_REPEATING = re.compile(r"(\d{1,9})\.(\d{0,9})\\(?:overline|bar)\s?\{(\d{1,9})\}")
_BRACES = re.compile(r"\\(?:boxed|fbox)\s{0,9}\{|\\[{}]|[{}]")
_WORDED = re.compile(
    r"\\(?:text|textrm|textbf|textit|mbox|mathrm|mathbf|mathit|mathsf|operatorname|boxed|fbox)\s?"
    r"\{([^{}]*)\}(\^(?:\{\d+\}|\d))?"
)
_NO_VALUE = re.compile(r"\^\{?\\circ\}?|\\(?:circ|degree|displaystyle|left|right|quad|[,!;: $%])|\\?%|\$|\*\*|°|~")
_EQUALS = re.compile(r"=|≈|\\approx|\\equiv")
_MATH = re.compile(r"\\(?:[dtc]?frac|sqrt|pi|cdot|times|div)|[\^!π√]")
_POWER_OF_A_UNIT = re.compile(r"(?<=[A-Za-zµ])\^(?:\{-?\d+\}|-?\d+)")
_SAFE = re.compile(
    r"(?:\\(?:[dtc]?frac|sqrt|pi|cdot|times|div)(?![a-z])|\^\{?-?\d{1,3}\}?(?![\d^{])|(?<!\d)\d\d?!(?![!\d])|\d{1,30}(?!\d)"
    r"|[-+*/.(){}\[\] ])+"
)
_ENVIRONMENT = re.compile(
    r"\$([^$]{1,300})\$|\\\(([^)\\](?:(?!\\\)).){0,300})\\\)|\\\[((?:(?!\\\]).){1,300})\\\]", re.DOTALL
)
_SIGNS = (*((sign, "-") for sign in "−－﹣"), ("٫", "."), ("٬", ","), ("\u2007", "\u2009"), ("\u2062", ""))
_WIDE = re.compile("[０-９]+(?:(?:[．／＾]|，(?=[０-９]{3}(?![０-９])))[０-９]+)*")
"""A number in full width: ３．５, １，２３４."""
_SUPERSCRIPTS = re.compile(r"(?<=\d)[⁺⁻]?[⁰¹²³⁴-⁹]+")
_SIGN_OF_A_NUMBER = re.compile(r"[¹²³¼-¾⁰-⁹⅐-⅞]")
_VULGAR = re.compile(r"(\d?)\s?([¼-¾⅐-⅞])")


@register_check
class Number(Check):
    """Compares the last number of the text, or of the last `\\boxed{...}` in it. "so it is 1,250." is read as 1250,
    "3/4" and `\\frac{3}{4}` as 0.75; percent signs, currencies and units are ignored. math-verify (the extra `checks`)
    reads the LaTeX of other values, such as `2\\sqrt{3}`."""

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
    """The last number of a text, or of its last `\\boxed{...}`; None if there is no number.

    Raises:
        CheckError: If math-verify is required and not installed.
    """
    for sign, same in _SIGNS if not text.isascii() else ():
        text = text.replace(sign, same)
    text = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    box = _last_box(text)
    if box is not None:
        return _value(box) if len(box) <= _LONGEST else _last_plain(box)
    end = text[-_END:]
    for match in reversed(list(_ENVIRONMENT.finditer(end)) if "\\" in end or "^" in end else []):
        content = next(filter(None, match.groups()))
        if _MATH.search(content) and _last_plain(end[match.end() :]) is None:
            return _value(content)
        break
    return _last_plain(text)


def _last_box(text: str) -> str | None:
    """The content of the box that closes last."""
    opened: list[int | None] = []
    last = None
    for match in _BRACES.finditer(text) if "box" in text else ():
        brace = match.group()
        if brace == "}":
            start = opened.pop() if opened else None
            last = (start, match.start()) if start is not None else last
        elif brace[-1] == "{" and brace != "\\{":
            opened.append(None if brace == "{" else match.end())
    return None if last is None else text[last[0] : last[1]]


def _value(latex: str) -> float | None:
    """The value of an expression in LaTeX."""
    for _ in range(3):  # \\mathbf{\\text{...}}
        latex = _WORDED.sub(_number_in_words, latex)
    latex = _NO_VALUE.sub("", latex)
    right = _EQUALS.split(latex)[-1]
    latex = (right if right.strip() else latex).strip()
    latex = re.sub(r"^([-+])\s+", r"\1", latex)
    plain = _NUMBER.match(_plain(latex))
    if _MATH.search(latex) and not (plain and plain.end() == len(_plain(latex))):
        value = _computed(latex)
        if value is not None or _MATH.search(_POWER_OF_A_UNIT.sub("", _NUMBER.sub("", _plain(latex)))):
            return value
    return _last_plain(latex)


def _number_in_words(match: re.Match[str]) -> str:
    """The content of a command for words, if it has a number. Units are left out, with their exponent."""
    return f" {match[1].strip()} " if any(char.isdigit() or char in "+-" for char in match[1]) else " "


def _plain(text: str) -> str:
    """A text whose fractions and powers are written as in plain text."""
    text = text.replace("{,}", ",")
    if "\\" in text:
        text = text.replace("\\times", "×").replace("\\cdot", "·").replace("\\,", "\u2009")
        text = _REPEATING.sub(_as_repeating, _FRACTION.sub(_as_fraction, text))
    if _SIGN_OF_A_NUMBER.search(text):
        text = _VULGAR.sub(_as_fraction_of_a_sign, text)
        text = _SUPERSCRIPTS.sub(lambda match: f"^{unicodedata.normalize('NFKC', match[0]).replace('−', '-')}", text)
    return text


def _as_fraction(match: re.Match[str]) -> str:
    whole, space, above, below, digit, other = match.groups()
    return f"{whole}{' ' if whole else space}{above or digit}/{below or other}"


def _as_repeating(match: re.Match[str]) -> str:
    """A repeating decimal as a fraction: `0.1\\overline{6}` is 15/90."""
    before, period = match[1] + match[2], match[3]
    return f"{int(before + period) - int(before)}/{'9' * len(period)}{'0' * len(match[2])}"


def _as_fraction_of_a_sign(match: re.Match[str]) -> str:
    above, below = unicodedata.normalize("NFKC", match[2]).split("⁄")
    return f"{match[1]} {above}/{below}" if match[1] else f"{above}/{below}"


def _last_match(text: str) -> re.Match[str] | None:
    last = None
    for match in _NUMBER.finditer(_plain(text)):
        last = match
    return last


def _last_plain(text: str) -> float | None:
    """The last number of a text that is not LaTeX."""
    end = text[-_END:]
    last = _last_match(end)
    if len(text) > len(end) and (last is None or last.start() < _LONGEST):  # it may begin before
        last = _last_match(text)
    if last is None:
        return None
    try:
        value = _float(last["number"])
        if last["exp"]:
            digits = re.findall(r"-?\d+", last["exp"])
            value = float(f"{value!r}e{digits[-1]}") if "e" not in repr(value) else value * 10.0 ** int(digits[-1])
        if last["power"]:
            value **= float(last["power"].strip("^{}"))
        if last["below"]:
            value /= float(last["below"])
        value += float(last["mixed"] or 0)
        return -value if last["sign"] in ("-", "–") else value
    except (OverflowError, ZeroDivisionError, ValueError):
        return None


def _float(written: str) -> float:
    """The value of digits with their separators."""
    written, grouped = re.subn(r"[\s'’_]", "", written)
    if written.count(".") > 1 or ("," in written and written.rfind(",") > written.rfind(".") > -1):
        return float(written.replace(".", "").replace(",", "."))
    if grouped or re.fullmatch(_COMMA, written):
        return float(written.replace(",", "."))
    return float(written.replace(",", ""))


@lru_cache(maxsize=1024)
def _computed(latex: str) -> float | None:
    """The value of a short expression of numbers, by math-verify; None for anything else."""
    latex = latex.replace("π", r"\pi ").replace("√", r"\sqrt ")
    if len(latex) > _LONGEST or not _SAFE.fullmatch(latex) or latex.count("^") > 3:
        return None
    parser: Any = _library()
    parser.TIMEOUT_WARNING_SHOWN = True  # its timeouts need the main thread; `_SAFE` bounds the work instead
    settings = [parser.LatexExtractionConfig()]
    try:
        found = parser.parse(f"${latex}$", settings, "no_fallback", parsing_timeout=None)
        value = found[0].evalf() if found else None
    except Exception as error:  # a fault of the library says nothing about the answer
        raise CheckError(f"math-verify failed on {latex!r:.60} ({type(error).__name__}: {error})") from None
    try:
        number = math.nan if value is None else float(value)
    except (OverflowError, TypeError, ValueError):  # a formula with letters, or no real number
        return None
    return number if math.isfinite(number) else None


def _library() -> Any:
    try:
        return import_extra("math_verify.parser", extra="checks")[0]
    except SampleError as error:
        raise CheckError(str(error).rstrip(".")) from None
