"""Checks on the form of a text: casing, start and end, quotation, JSON, title, postscript, repetition."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny
from typing_extensions import override

from checklist_rewards.checks.base import Check, check_of, register_check
from checklist_rewards.checks.text import first_word, parts_of
from checklist_rewards.errors import CheckError

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
