"""From a reply to items: strict parsing of lists, and shapes, the JSON form of a reply.

A shape is any pydantic model class with exactly one list field. An element of the list is a question: a string, or a
model with `question` and further fields of [`ChecklistItem`] that the model chooses (`weight`, `category`, …). Fields
with other names, such as `reasoning`, are not part of the checklist.

    >>> [item.weight for item in items_of(WeightedQuestions(questions=[{"question": "Is it short?", "weight": 80}]))]
    [80.0]

[`WeightedQuestions`] have the importance weights of RLCF (arXiv:2507.18624), 0 to 100; [`CategorizedQuestions`] the
two categories of OpenRubrics (arXiv:2510.07743); [`CheckedQuestions`] a code check where one can answer the question.
Every entry must be a question, and of equal questions the first is kept, with the sources of all.

Class names, docstrings and fields of the shapes are part of the JSON schema that is sent to the model and of the store
key: changing them makes stored replies unusable.

The parser of lists accepts the formats that models use: numbers ("1.", "1)", "(1)", "Q1:"), bullets and check boxes,
bold text and bold labels, code fences, JSON (a list of strings, of {"question": ...}, or {"questions": [...]}),
reasoning before the reply, and an analysis before the list. It raises a [`GenerationError`] with the reply in `raw`
unless the list is complete:

- every entry of a numbered list is a question, the list starts at 1, and no entry is written as a decimal ("2.3 ...");
- a question ends with a question mark (?, ？ or ؟), or with a remark in brackets after it ("... correct? (If absent:
  'none'.)"), can be answered with yes or no, and is not two questions in one ([`question_fault`]);
- there are at least `min_items` and at most `max_items` questions. Longer lists are not truncated, because that would
  silently drop requirements.

If a reply has several kinds of lines, numbered questions take precedence over bulleted ones, and these over plain
lines. So questions in an analysis ("What is asked for?") are not added to the list that follows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from checklist_rewards.backends import Messages
from checklist_rewards.chat import strip_thinking
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.checks import describe, parse_check
from checklist_rewards.errors import ChecklistError, GenerationError, SampleError
from checklist_rewards.generators.constraints.reading import numbers
from checklist_rewards.judges.faults import AUXILIARY, is_empty, is_question, question_fault
from checklist_rewards.validation import in_reply

_FENCE = re.compile(r"^\s*```.*$", re.MULTILINE)
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
"""Marks of direction around the lines of Arabic and Hebrew lists, and spaces without width."""
_JSON_START = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
_JSON_KEYS = ("questions", "checklist", "items")
_HEADING = re.compile(
    r"^[\s#*_]*(?:final answer|answer|(?:evaluation |final )?checklist(?: questions)?|questions)"
    r"[*_]*\s*(?:[:：][*_]*|$)",
    re.MULTILINE | re.IGNORECASE,
)
_QUESTION = (
    r"Q(?:uestion)?|问题|問題|質問|第|질문|вопрос|frage|pregunta|pergunta|domanda|soru|câu(?: hỏi)?|السؤال|प्रश्न"
)
_NUMBER = re.compile(
    rf"(?:\*\*|__)?[(\[（]?(?:(?:{_QUESTION})\s*)?(\d{{1,3}})[条项條項]?\s?\\?[.):\]．）：、](?:\*\*|__)?\s*(?=\D)|Q(\d{{1,3}})\s*[-–—]\s*"
    r"|(\d{1,3})\s*[-–—]\s+(?=\D)",
    re.IGNORECASE,
)
_DECIMAL = re.compile(r"(\d{1,3})\.\d")
_BULLET = re.compile(
    r"(?:(?:[-*•–—+☐□✓✔●○◦■▪·]|#{1,6}|\d{1,2}(?:\.\d{1,2})+[.)]?|\(?[^\W\d_][.)])\s+"
    r"|(?:[・①-⑳⑴-⒇⒈-⒛]|[(（]?[一二三四五六七八九十]{1,3}[)）、．])\s*)(?:\[[ xX]?\]\s*)?"
)
"""The beginning of an entry without a number of its own: bullets, the parts of a numbered entry (1.1, a), and numbers
of other scripts, which sections have too (①, 一、)."""
_OFFER = re.compile(
    r"(?:would|do) you (?:like|want|need)\b|(?:shall|should|can|may) I\b"
    r"|您还|(?:您|是否)?需要我|他に(?:何か|ご)|더 필요하신|möcht(?:en Sie|est du)\b|soll(?:en)? (?:ich|wir)\b"
    r"|(?:voul|souhait)ez-vous\b|¿?(?:quieres|desea)\b|хотите|هل (?:تريد|ترغب)|bạn có muốn",
    re.IGNORECASE,
)
"""What a model asks its reader after a list."""
_LABEL = re.compile(r"(\*\*|__)[^*_?？؟]{1,60}?(?:[:：]\1|\1\s*[:：–—-])\s*")
_TITLE = re.compile(r"(\*\*|__)[^*_?？؟]{1,60}\1[:：]?")
_YES_NO = re.compile(
    r"\s*\(\s*yes\s*(?:(?:/|or)\s*no\s*)?\)\s*$"
    r"|(?<=[?*_])\s*(?:[(\[]\s*)?(?:yes\s*(?:/|or)\s*no|y\s*/\s*n)(?:\s*[)\]])?\s*$"
    r"|(?<=[?*_])\s*\[\s?\]\s*yes\s*\[\s?\]\s*no\s*$"
    r"|(?<=[?？؟])\s*[(（]\s*(?:是|はい|예|네|да|нет|نعم|כן|हा[ँं]|ja|oui|s[iíì]|sim|evet|có|tak)\s*[/／][^()（）/]{1,10}[)）]\s*$",
    re.IGNORECASE,
)
_ASKS = re.compile(rf"(?:^|[,;:]\s*(?:(?:and|then)\s+)?){AUXILIARY}\b", re.IGNORECASE)
_STRING = re.compile(r'"[^"]+"|“[^”]+”|(?<!\w)\'[^\']+\'(?!\w)')
_WORD = re.compile(r"\w+")
_SMALL_WORDS = frozenset("a an the is are was were do does did has have had it its".split())
"""Words that do not tell two questions apart."""


class QuestionList(NamedTuple):
    """The distinct questions of a reply."""

    questions: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """The faults of the entries that were left out, if faults were dropped."""


class _ParsedLine(NamedTuple):
    kind: Literal["number", "bullet", "plain"]
    number: int | None
    text: str

    @property
    def asks(self) -> bool:
        return is_question(self.text)


def parse_questions(
    reply: str, *, min_items: int = 2, max_items: int = 8, drop_faults_of: str | None = None
) -> QuestionList:
    """Parse the questions of a reply.

    Args:
        reply (`str`): the model's text.
        min_items (`int`, *optional*, defaults to `2`): least number of distinct questions.
        max_items (`int`, *optional*, defaults to `8`): greatest number of distinct questions.
        drop_faults_of (`str`, *optional*): the input. With it, entries that are not one yes/no question, that ask
            only for a text or a sentence, are copied from the input, name a number or a quoted string that it does
            not have, or ask nothing that an earlier one does not, are left out instead of refused. English only.

    Returns:
        [`QuestionList`]: The questions in order.

    Raises:
        GenerationError: If the reply is not a complete checklist; `raw` is the reply.
    """
    try:
        asked = _questions(reply)
        faults: list[str] = []
        if drop_faults_of is not None:
            asked, faults = without_faults(asked, drop_faults_of)
        for question in asked:
            check_question(question)
    except ValueError as error:
        raise GenerationError(f"the reply is not a usable checklist: {error}.", reply) from None
    questions = distinct(asked)
    count = len(questions)
    if not min_items <= count <= max_items:
        required = f"at least {min_items}" if count < min_items else f"at most {max_items}"
        raise GenerationError(f"the reply has {count} different questions, but {required} are required.", reply)
    return QuestionList(tuple(questions), tuple(faults))


def without_faults(questions: Iterable[str], input: str) -> tuple[list[str], list[str]]:
    """The questions without faults, as in [`parse_questions`], and the fault of each that is left out."""
    text = input.casefold()
    copied = f" {' '.join(_WORD.findall(text))} "
    values = numbers(text)
    kept: dict[str, frozenset[str]] = {}
    faults: list[str] = []
    for question in questions:
        asked = question.casefold()
        words = _WORD.findall(asked)
        strings = (found.group()[1:-1].strip(" .,?!") for found in _STRING.finditer(asked))
        named = frozenset(words) - _SMALL_WORDS
        if question_fault(question) is not None or not _ASKS.search(question):
            faults.append("not one yes/no question")
        elif is_empty(question, text):
            faults.append("asks only for a text or a sentence")
        elif f" {' '.join(words)} " in copied:
            faults.append("copied from the input")
        elif not numbers(asked) - {1} <= values:
            faults.append("names a number that the input does not have")
        elif not all(string in text for string in strings):
            faults.append("quotes what the input does not have")
        elif any(named <= earlier for earlier in kept.values()):
            faults.append("repeats an earlier question")
        else:
            kept[question] = named
    return list(kept), faults


def distinct(questions: Iterable[str]) -> list[str]:
    """The questions; of those that differ only in case, the first."""
    first: dict[str, str] = {}
    for question in questions:
        first.setdefault(question.casefold(), question)
    return list(first.values())


def check_question(question: str) -> None:
    """Raise a [`ValueError`] for a text that is not one yes/no question. The message has no final period."""
    if (fault := question_fault(question)) is not None:
        raise ValueError(f"{question!r:.80} is not a yes/no question; it {fault}")


def _questions(reply: str) -> list[str]:
    text = strip_thinking(reply)
    questions = _from_json(text)
    if questions is None:
        text = _INVISIBLE.sub("", _FENCE.sub("", text))
        headings = list(_HEADING.finditer(text))
        after = [text[headings[-1].end() :]] if headings else []
        questions = next((listed for part in (*after, text) if (listed := _from_lines(part))), [])
    return questions


def _from_json(text: str) -> list[str] | None:
    """The questions of the first JSON value that is a list of questions; None if there is none."""
    decoder = json.JSONDecoder()
    for match in _JSON_START.finditer(text):
        try:
            value, _ = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, Mapping):
            value = next((value[key] for key in _JSON_KEYS if isinstance(value.get(key), list)), None)
        if isinstance(value, list) and value and all(isinstance(item, str | Mapping) for item in value):
            questions = []
            for item in value:
                question = item.get("question") if isinstance(item, Mapping) else item
                if not isinstance(question, str):
                    raise ValueError(f"the 'question' of an entry is missing or not a string: {item!r:.80}")
                questions.append(tidy(question))
            return questions
    return None


def _from_lines(text: str) -> list[str]:
    lines = _lines(text)
    for kind in ("number", "bullet", "plain"):
        entries = [line for line in lines if line.kind == kind]
        first = next((index for index, line in enumerate(entries) if line.asks), None)
        if first is None:
            continue
        if kind != "number":
            return [line.text for line in entries if line.asks and not _OFFER.match(line.text)]
        if entries[first].number not in (0, 1):
            raise ValueError(f"its list starts at number {entries[first].number}: {entries[first].text!r:.80}")
        found = {line.number for line in entries}
        for line in lines:
            number = int(decimal[1]) if line.kind == "plain" and (decimal := _DECIMAL.match(line.text)) else 0
            if number - 1 in found and number not in found:
                raise ValueError(f"number {number} of its list cannot be told from its text: {line.text!r:.80}")
        return [line.text for line in entries[first:]]
    return []


def _lines(text: str) -> list[_ParsedLine]:
    lines: list[_ParsedLine] = []
    for raw in text.splitlines():
        line = raw.strip()
        bullet = _BULLET.match(line)
        line = line[bullet.end() :] if bullet else line
        if number := _NUMBER.match(line):
            text = line[number.end() :]
            if _TITLE.fullmatch(text.strip()):
                text = ""  # the title of a question that follows on a line of its own
            lines.append(_ParsedLine("number", int(number[1] or number[2] or number[3]), tidy(text)))
        elif bullet:
            lines.append(_ParsedLine("bullet", None, tidy(line)))
        elif line and _continues(lines, raw):
            lines[-1] = lines[-1]._replace(text=tidy(f"{lines[-1].text} {line}"))
        elif line:
            lines.append(_ParsedLine("plain", None, tidy(line)))
    return lines


def _continues(lines: list[_ParsedLine], raw: str) -> bool:
    """Whether `raw` continues a wrapped entry."""
    return bool(lines) and lines[-1].kind != "plain" and not lines[-1].asks and (raw[0].isspace() or raw[0].islower())


def tidy(text: str) -> str:
    """A question without formatting: leading labels, emphasis, surrounding quotes and a final "(yes/no)"."""
    text = " ".join(text.split())
    text = _LABEL.sub("", text, count=1) if _LABEL.match(text) else text
    text = _YES_NO.sub("", text).strip()  # after the emphasis, or within it
    for mark in ("**", "__", "*", "_", '"', "`"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            inner = text[len(mark) : -len(mark)]
            text = inner if mark not in inner else text
        elif mark in ("**", "__") and text.endswith(mark) and text.count(mark) == 1:
            text = text[: -len(mark)]  # "**1. Is it short?**": the opening mark stood before the number
    return _YES_NO.sub("", text).strip()


_DEEPEST = 6
_NAMES = {"string": "text", "integer": "whole number", "number": "number", "null": "null"}


class Shape(BaseModel):
    """Base of the shapes here: the schema allows no further fields, for engines that hold a model to it; a reply that
    has some all the same is read without them."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"additionalProperties": False})


def _no_truth_value(weight: Any) -> Any:
    if isinstance(weight, bool):
        raise ValueError("a weight is a whole number from 0 to 100")
    return weight


class Question(Shape):
    """A question."""

    question: str

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, entry: Any) -> Any:
        # Models write a list of strings where the question is the only field that they fill in.
        return {"question": entry} if isinstance(entry, str) else entry


class WeightedQuestion(Question):
    """A question and how much it matters."""

    weight: Annotated[int, BeforeValidator(_no_truth_value)] = Field(ge=0, le=100)


def _a_name(category: Any) -> Any:
    return "_".join(category.lower().replace("-", " ").split()) if isinstance(category, str) else category


class CategorizedQuestion(Question):
    """A question, and whether the task states what it asks for (`hard_rule`) or good work does (`principle`)."""

    category: Annotated[Literal["hard_rule", "principle"], BeforeValidator(_a_name)]


class SourcedQuestion(Question):
    """A question and the numbers of the observations that it comes from."""

    sources: list[int]


def _spec_text(check: Any) -> Any:
    """Convert the check of a reply, an object, to the JSON text that an item holds."""
    if check is None or check == {}:
        return None
    spec = check if isinstance(check, str) else json.dumps(check)
    try:
        fault = parse_check(spec, "check").fault()
    except ChecklistError as error:
        raise ValueError(str(error).removeprefix("check: ").rstrip(".")) from None
    if fault is not None:
        raise ValueError(fault)
    return spec


class CheckedQuestion(Question):
    """A question, and the code check that answers it, if there is one."""

    check: Annotated[
        str | None,
        BeforeValidator(_spec_text),
        WithJsonSchema({"type": ["object", "null"], "description": "the check, or null"}),
    ] = None


class Questions(Shape):
    """Questions, nothing more."""

    questions: list[Question]


class WeightedQuestions(Shape):
    """Questions with weights from 0 to 100."""

    questions: list[WeightedQuestion]


class CategorizedQuestions(Shape):
    """Questions that are hard rules or principles."""

    questions: list[CategorizedQuestion]


class CheckedQuestions(Shape):
    """Questions, some with code checks."""

    questions: list[CheckedQuestion]

    @classmethod
    def guide(cls) -> str:
        """The available checks, for the prompt."""
        return (
            "Where one of these checks answers a question exactly, write it as the question's check. Where answering "
            f"takes judgement, write null.\n\n{describe()}"
        )


class SourcedQuestions(Shape):
    """Questions with the observations behind them."""

    questions: list[SourcedQuestion]


@cache
def list_field(shape: type[BaseModel]) -> str:
    """The name of the field with the questions.

    Raises:
        SampleError: If `shape` is not a pydantic model class with exactly one list field of questions.
    """
    if not (isinstance(shape, type) and issubclass(shape, BaseModel)):
        raise SampleError(
            f"shape={shape!r:.80} is not allowed; it must be a pydantic model class with one list field."
        )
    elements = {name: _element(field.annotation) for name, field in shape.model_fields.items()}
    lists = {name: element for name, element in elements.items() if element is not None}
    if len(lists) != 1:
        got = f"{len(lists)} ({', '.join(lists)})" if lists else "none"
        raise SampleError(f"the shape {shape.__name__} must have exactly one list field, but has {got}.")
    [(name, element)] = lists.items()
    has_question = isinstance(element, type) and issubclass(element, BaseModel) and "question" in element.model_fields
    if element is not str and not has_question:
        raise SampleError(f"{shape.__name__}.{name} must be a list of strings or of models with a field 'question'.")
    return name


def _element(annotation: Any) -> Any:
    """The element type of a list or tuple annotation, without `Annotated`; None for other annotations."""
    if get_origin(annotation) not in (list, tuple) or not get_args(annotation):
        return None
    element = get_args(annotation)[0]
    return get_args(element)[0] if get_origin(element) is Annotated else element


def items_of(value: BaseModel) -> list[ChecklistItem]:
    """The distinct items of a reply.

    Raises:
        ValueError: If an entry is not a question or not a valid item. The message has no final period.
    """
    items: dict[str, ChecklistItem] = {}
    names = set(ChecklistItem.model_fields) - {"id"}
    for entry in getattr(value, list_field(type(value))):
        dumped = {"question": entry} if isinstance(entry, str) else entry.model_dump(include=names)
        question = tidy(str(dumped["question"]))
        fields = {name: field for name, field in dumped.items() if field is not None} | {"question": question}
        try:
            item = ChecklistItem.model_validate(fields)
        except ValidationError as error:
            raise ValueError(f"{question!r:.60}: {in_reply(error)}") from None
        if item.options is None:
            check_question(question)
        first = items.setdefault(question.casefold(), item)
        if first is not item and item.sources:
            sources = tuple(sorted({*first.sources, *item.sources}))
            items[question.casefold()] = first.model_copy(update={"sources": sources})
    return list(items.values())


def ask_in_shape(messages: Messages, shape: type[BaseModel]) -> Messages:
    """The messages with a last section that describes the required JSON in words."""
    *before, last = messages
    return [*before, {**last, "content": f"{last['content']}\n\n## Format\n\n{shape_in_words(shape)}"}]


def shape_in_words(shape: type[BaseModel]) -> str:
    """Description of the required JSON, for engines without structured output.

    >>> print(shape_in_words(CategorizedQuestions).splitlines()[-1])
    {"questions": [{"question": <question>, "category": "hard_rule" or "principle"}, ...]}
    """
    schema = shape.model_json_schema()
    form = _form(schema, schema.get("$defs", {}), "value", 0)
    guide = f"\n\n{shape.guide()}" if hasattr(shape, "guide") else ""
    return f"Reply with one JSON object and nothing else, in this form:\n\n{form}{guide}"


def _form(schema: Mapping[str, Any], defs: Mapping[str, Any], name: str, depth: int) -> str:
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if depth > _DEEPEST:
        return "..."  # a recursive model
    if "const" in schema or "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_form(option, defs, name, depth + 1) for option in schema[key])
    kind = schema.get("type")
    if kind == "object":
        fields = schema.get("properties", {}).items()
        inside = (f"{json.dumps(key)}: {_form(value, defs, key, depth + 1)}" for key, value in fields)
        return "{" + ", ".join(inside) + "}"
    if kind == "array":
        return f"[{_form(schema.get('items', {}), defs, name, depth + 1)}, ...]"
    if kind == "boolean":
        return "true or false"
    what = schema.get("description") or (name if kind == "string" else _NAMES.get(str(kind), name))
    low, high = schema.get("minimum"), schema.get("maximum")
    return f"<{what}{f' from {low} to {high}' if low is not None and high is not None else ''}>"
