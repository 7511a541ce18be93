"""Shapes: the JSON form of a generator's reply, and the items it contains.

A shape is any pydantic model class with exactly one list field. An element of the list is a question: a string, or a
model with `question` and further fields of [`ChecklistItem`] that the model chooses (`weight`, `category`, …). Fields
with other names, such as `reasoning`, are not part of the checklist.

    >>> [item.weight for item in items_of(WeightedQuestions(questions=[{"question": "Is it short?", "weight": 80}]))]
    [80.0]

[`WeightedQuestions`] have the importance weights of RLCF (arXiv:2507.18624), 0 to 100; [`CategorizedQuestions`] the
two categories of OpenRubrics (arXiv:2510.07743); [`CheckedQuestions`] a code check where one can answer the question.
Lists are parsed as strictly as numbered lists (`parsing.py`): every entry must be a question, and of equal questions
the first is kept, with the sources of all.

Class names, docstrings and fields of the shapes are part of the JSON schema that is sent to the model and of the store
key: changing them makes stored replies unusable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from checklist_rewards.backends import Messages
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.checks import describe, parse_check
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.generators.parsing import question_fault, tidy
from checklist_rewards.validation import in_reply

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


class WeightedQuestion(Question):
    """A question and how much it matters."""

    weight: Annotated[int, BeforeValidator(_no_truth_value)] = Field(ge=0, le=100)


class CategorizedQuestion(Question):
    """A question, and whether the task states what it asks for (`hard_rule`) or good work does (`principle`)."""

    category: Literal["hard_rule", "principle"]


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
    for entry in getattr(value, list_field(type(value))):
        fields = {"question": entry} if isinstance(entry, str) else _item_fields(entry)
        question = tidy(str(fields["question"]))
        item = _item(fields | {"question": question})
        if item.options is None and (fault := question_fault(question)) is not None:
            raise ValueError(f"{question!r:.80} is not a yes/no question; it {fault}")
        first = items.setdefault(question.casefold(), item)
        if first is not item and item.sources:
            sources = tuple(sorted({*first.sources, *item.sources}))
            items[question.casefold()] = first.model_copy(update={"sources": sources})
    return list(items.values())


def _item_fields(entry: BaseModel) -> dict[str, Any]:
    names = set(ChecklistItem.model_fields) - {"id"}
    return {name: value for name, value in entry.model_dump(include=names).items() if value is not None}


def _item(fields: Mapping[str, Any]) -> ChecklistItem:
    try:
        return ChecklistItem.model_validate(fields)
    except ValidationError as error:
        raise ValueError(f"{fields['question']!r:.60}: {in_reply(error)}") from None


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
