"""From a model's reply to a list of questions, strictly.

Models wrap a list in many ways, all of which are read: numbers ("1.", "1)", "(1)", "Q1:"), bullets and check boxes,
bold text and bold labels, code fences, JSON (a list of strings, of {"question": ...}, or {"questions": [...]}),
thinking, and an analysis before the list. What is read is refused unless it is a whole checklist:

- every entry of a numbered list is a question, and the list begins at 1;
- a question ends with a question mark, or with a remark in brackets after it ("... correct? (If absent: 'none'.)");
- there are at least `min_items` and at most `max_items` of them. A longer list is not cut: which requirements to
  forget is not for a parser to choose.

Of equal questions the first is kept. A refusal is a [`GenerationError`] with the reply in `raw`.

Where a reply holds several kinds of lines, numbered questions win over bulleted ones and these over plain lines, so
that an analysis which wonders aloud ("What is asked for?") adds nothing to the list after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, field_validator

from checklist_rewards.chat import strip_thinking
from checklist_rewards.errors import GenerationError

_FENCE = re.compile(r"^\s*```.*$", re.MULTILINE)
_JSON_START = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
_JSON_KEYS = ("questions", "checklist", "items")
_HEADING = re.compile(
    r"^[\s#*_]*(?:final answer|answer|(?:evaluation |final )?checklist(?: questions)?|questions)[*_]*\s*(?::[*_]*|$)",
    re.MULTILINE | re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?:\*\*|__)?[(\[]?(?:Q(?:uestion)?\s*)?(\d{1,3})\s?[.):\]](?:\*\*|__)?\s*(?=\D)|Q(\d{1,3})\s*[-–—]\s*",
    re.IGNORECASE,
)
_BULLET = re.compile(r"(?:[-*•–—+☐□✓✔]|#{1,6})\s+(?:\[[ xX]?\]\s*)?")
_LABEL = re.compile(r"(\*\*|__)[^*_?]{1,60}?(?::\1|\1\s*[:–—-])\s*")
_YES_NO = re.compile(r"\s*\(\s*yes\s*(?:/|or)\s*no\s*\)\s*$", re.IGNORECASE)
_IS_QUESTION = re.compile(r"(?=.*\w).*\?(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\))?$", re.DOTALL)


class QuestionList(BaseModel):
    """Questions as a generator's reply must hold them."""

    model_config = ConfigDict(frozen=True)

    questions: tuple[str, ...]

    @field_validator("questions")
    @classmethod
    def _distinct(cls, questions: tuple[str, ...]) -> tuple[str, ...]:
        first: dict[str, str] = {}
        for question in questions:
            if not is_question(question):
                raise ValueError(f"{question!r:.80} is no question; it must end with a question mark")
            first.setdefault(question.casefold(), question)
        return tuple(first.values())


class _Line(NamedTuple):
    kind: str
    """number, bullet or plain."""
    number: int | None
    text: str

    @property
    def asks(self) -> bool:
        return is_question(self.text)


def parse_questions(reply: str, *, min_items: int = 2, max_items: int = 8) -> QuestionList:
    """Read the questions of a reply.

    Args:
        reply (`str`): the model's text.
        min_items (`int`, *optional*, defaults to `2`): least number of different questions.
        max_items (`int`, *optional*, defaults to `8`): greatest.

    Returns:
        [`QuestionList`]

    Raises:
        GenerationError: one sentence that says what is wrong; `raw` is `reply`.
    """
    try:
        found = QuestionList(questions=tuple(_questions(reply)))
    except ValueError as error:
        raise GenerationError(f"the reply holds no usable checklist: {_reason(error)}.", reply) from None
    count = len(found.questions)
    if not min_items <= count <= max_items:
        wanted = f"at least {min_items}" if count < min_items else f"at most {max_items}"
        raise GenerationError(f"the reply holds {count} different questions; {wanted} are wanted.", reply)
    return found


def _questions(reply: str) -> list[str]:
    text = strip_thinking(reply)
    found = _from_json(text)
    if found is None:
        text = _FENCE.sub("", text)
        headings = list(_HEADING.finditer(text))
        after = [text[headings[-1].end() :]] if headings else []
        found = next((questions for part in (*after, text) if (questions := _from_lines(part))), [])
    return found


def _from_json(text: str) -> list[str] | None:
    """The questions of the first JSON value that has the shape of a list of questions."""
    decoder = json.JSONDecoder()
    for match in _JSON_START.finditer(text):
        try:
            value, _ = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, Mapping):
            value = next((value[key] for key in _JSON_KEYS if isinstance(value.get(key), list)), None)
        if isinstance(value, list) and value and all(isinstance(item, str | Mapping) for item in value):
            return [tidy(_json_question(item)) for item in value]
    return None


def _json_question(item: Any) -> str:
    question = item.get("question") if isinstance(item, Mapping) else item
    if not isinstance(question, str):
        raise ValueError(f"an entry has no 'question' that is a text: {item!r:.80}")
    return question


def _from_lines(text: str) -> list[str]:
    lines = _lines(text)
    for kind in ("number", "bullet", "plain"):
        entries = [line for line in lines if line.kind == kind]
        first = next((index for index, line in enumerate(entries) if line.asks), None)
        if first is None:
            continue
        if kind != "number":
            return [line.text for line in entries if line.asks]
        if entries[first].number not in (0, 1):
            raise ValueError(f"its list begins at number {entries[first].number}: {entries[first].text!r:.80}")
        return [line.text for line in entries[first:]]
    return []


def _lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    for raw in text.splitlines():
        line = raw.strip()
        bullet = _BULLET.match(line)
        line = line[bullet.end() :] if bullet else line
        if number := _NUMBER.match(line):
            lines.append(_Line("number", int(number[1] or number[2]), tidy(line[number.end() :])))
        elif bullet:
            lines.append(_Line("bullet", None, tidy(line)))
        elif line and _goes_on(lines, raw):
            lines[-1] = lines[-1]._replace(text=tidy(f"{lines[-1].text} {line}"))
        elif line:
            lines.append(_Line("plain", None, tidy(line)))
    return lines


def _goes_on(lines: list[_Line], raw: str) -> bool:
    """Whether `raw` is the rest of an entry that was wrapped."""
    return bool(lines) and lines[-1].kind != "plain" and not lines[-1].asks and (raw[0].isspace() or raw[0].islower())


def is_question(text: str) -> bool:
    """Whether a text asks something: it ends with a question mark, or with a remark in brackets after one."""
    return _IS_QUESTION.fullmatch(text) is not None


def tidy(text: str) -> str:
    """A question without the dress: labels, emphasis, quotes around the whole, "(yes/no)" after it."""
    text = " ".join(text.split())
    text = _LABEL.sub("", text, count=1) if _LABEL.match(text) else text
    for mark in ("**", "__", "*", "_", '"', "`"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            inner = text[len(mark) : -len(mark)]
            text = inner if mark not in inner else text
        elif mark in ("**", "__") and text.endswith(mark) and text.count(mark) == 1:
            text = text[: -len(mark)]  # "**1. Is it short?**": the opening mark stood before the number
    return _YES_NO.sub("", text).strip()


def _reason(error: ValueError) -> str:
    detail = error.errors()[0]["msg"].removeprefix("Value error, ") if hasattr(error, "errors") else str(error)
    return detail.rstrip(".")
