"""Checks on the form of a text: casing, how it starts and ends, quotation, JSON, title, postscript, repetition."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from checklist_rewards.checks.base import Check, check_of, register_check
from checklist_rewards.checks.text import first_word, parts_of
from checklist_rewards.errors import CheckError

_HEADING = re.compile(r"\A\s*#{1,6}[ \t]+\S")
_FENCE = re.compile(r"\A```[ \t]*(?:json)?[ \t]*\n?(.*?)\n?```\Z", re.DOTALL | re.IGNORECASE)
_JSON_KINDS = {"object": dict, "array": list}


@register_check
class Casing(Check):
    """All letters are capitals, or none is; a text without letters passes neither."""

    summary = "All letters of the text are capitals ('upper'), or none is ('lower')."
    example = {"casing": "lower"}
    type: Literal["casing"] = "casing"
    casing: Literal["upper", "lower"]

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        return text.isupper() if self.casing == "upper" else text.islower()


@register_check
class Starts(Check):
    """White space before it is left out; case matters only on request."""

    summary = "The text begins with this."
    example = {"phrase": "Dear"}
    type: Literal["starts"] = "starts"
    phrase: str = Field(min_length=1)
    ignore_case: bool = True

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        text, start = text.lstrip(), self.phrase.strip()
        return text.lower().startswith(start.lower()) if self.ignore_case else text.startswith(start)


@register_check
class Ends(Check):
    """White space and quotation marks around the text are left out; case matters only on request."""

    summary = "The text ends with this."
    example = {"phrase": "Is there anything else?"}
    type: Literal["ends"] = "ends"
    phrase: str = Field(min_length=1)
    ignore_case: bool = True

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        text, end = text.strip().strip('"'), self.phrase.strip()
        return text.lower().endswith(end.lower()) if self.ignore_case else text.endswith(end)


@register_check
class ParagraphStart(Check):
    """The first word of a paragraph; paragraphs stand between blank lines."""

    summary = "The paragraph with this number (from 1) begins with this word."
    example = {"paragraph": 1, "word": "once"}
    type: Literal["paragraph_start"] = "paragraph_start"
    paragraph: int = Field(default=1, ge=1)
    word: str = Field(min_length=1)

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        paragraphs = [part for part in parts_of(text) if part.strip()]
        if len(paragraphs) < self.paragraph:
            return False
        return first_word(paragraphs[self.paragraph - 1]) == self.word.lower()


@register_check
class Quoted(Check):
    """Double quotation marks around the whole text."""

    summary = "The whole text stands in double quotation marks."
    type: Literal["quoted"] = "quoted"

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        text = text.strip()
        return len(text) > 1 and text[0] == text[-1] == '"'


@register_check
class Json(Check):
    """The whole text is JSON, alone or in one Markdown fence."""

    summary = "The whole text is valid JSON; 'kind' and 'keys' say what it must be and which keys it must have."
    example = {"kind": "object", "keys": ["name"]}
    type: Literal["json"] = "json"
    kind: Literal["object", "array"] | None = None
    keys: tuple[str, ...] = ()

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        text = text.strip()
        fenced = _FENCE.match(text)
        try:
            value = json.loads(fenced.group(1) if fenced else text)
        except (ValueError, RecursionError):  # the second: nested more deeply than any parser goes
            return False
        if self.kind is not None and not isinstance(value, _JSON_KINDS[self.kind]):
            return False
        return not self.keys or (isinstance(value, dict) and all(key in value for key in self.keys))


@register_check
class Title(Check):
    """A title in double angled brackets anywhere in one line, or a Markdown heading at the start."""

    summary = "The text has a title: <<like this>> ('angled'), or a Markdown heading at the start ('heading')."
    example = {"style": "angled"}
    type: Literal["title"] = "title"
    style: Literal["angled", "heading"]

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        if self.style == "heading":
            return _HEADING.match(text) is not None
        return any(map(_angled, text.split("\n")))


def _angled(line: str) -> bool:
    """Whether a line has <<something>> in it."""
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end - 2 and bool(line[start:end].lstrip("<").rstrip(">").strip())


@register_check
class Postscript(Check):
    """A line with the marker and something after it; spaces inside the marker and case do not matter."""

    summary = "The text has a postscript that begins with this marker."
    example = {"marker": "P.S."}
    type: Literal["postscript"] = "postscript"
    marker: str = Field(default="P.S.", min_length=1)

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        return re.search(r"\s*".join(map(re.escape, self.marker)), text, re.IGNORECASE) is not None


@register_check
class RepeatsPrompt(Check):
    """The text begins with the prompt, word for word; case and white space around it do not matter."""

    summary = "The text begins by repeating the prompt (or 'prompt', if that is given) word for word."
    type: Literal["repeats_prompt"] = "repeats_prompt"
    prompt: str | None = Field(default=None, min_length=1)

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]. Without a `prompt` of its own it needs the input."""
        prompt = input if self.prompt is None else self.prompt
        if prompt is None or not prompt.strip():
            raise CheckError("there is no input that the text could repeat")
        return text.strip().lower().startswith(prompt.strip().lower())


@register_check
class TwoResponses(Check):
    """Two different texts with a separator between them."""

    summary = "The text holds exactly two different responses, separated by this mark."
    example = {"separator": "******"}
    type: Literal["two_responses"] = "two_responses"
    separator: str = Field(default="******", min_length=1)

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        parts = text.split(self.separator)
        responses = [part.strip() for part in parts if part.strip()]
        gap = not all(part.strip() for part in parts[1:-1])
        return not gap and len(responses) == 2 and responses[0] != responses[1]


@register_check
class All(Check):
    """Several checks at once."""

    summary = "All of the given checks hold."
    example = {"checks": [{"type": "words", "at_most": 50}, {"type": "casing", "casing": "lower"}]}
    type: Literal["all"] = "all"
    checks: tuple[Annotated[SerializeAsAny[Check], BeforeValidator(check_of)], ...] = Field(min_length=1)

    @property
    def runs_code(self) -> bool:
        """See [`Check`]."""
        return any(check.runs_code for check in self.checks)

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        return all(check.holds(text, input) for check in self.checks)
