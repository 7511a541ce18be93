"""The shape of a reply: which JSON a model is to give, and which items that means.

A shape is any pydantic model class with exactly one list field. An element of the list is a question: a string, or a
model with `question` and whatever other fields of [`ChecklistItem`] the model is to choose (`weight`, `category`,
...). Fields of other names are room for the model to think in; they are not part of the checklist.

    >>> [item.weight for item in items_of(WeightedQuestions(questions=[{"question": "Is it short?", "weight": 80}]))]
    [80.0]

[`WeightedQuestions`] has the importance of RLCF (arXiv:2507.18624), 0 to 100; [`CategorizedQuestions`] the two kinds
of OpenRubrics (arXiv:2510.07743); [`CheckedQuestions`] a code check where one answers the question. What a list holds
is read as strictly as a numbered list (`parsing.py`): every entry is a question, and of equal ones the first is kept,
with the sources of all.
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
from checklist_rewards.generators.parsing import is_question, tidy

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
    """An item holds its check as JSON text; in a reply it is an object."""
    if check is None or check == {}:
        return None
    spec = check if isinstance(check, str) else json.dumps(check)
    try:
        parse_check(spec, "check")
    except ChecklistError as error:
        raise ValueError(str(error).removeprefix("check: ").rstrip(".")) from None
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
        """What to choose from."""
        return (
            "Where one of these checks answers a question exactly, write it as the question's check. Where answering "
            f"takes judgement, write null.\n\n{describe()}"
        )


class SourcedQuestions(Shape):
    """Questions with the observations behind them."""

    questions: list[SourcedQuestion]


@cache
def list_field(shape: type[BaseModel]) -> str:
    """The name of the field that holds the questions.

    Raises:
        SampleError: if `shape` is no pydantic model class with exactly one list field of questions.
    """
    if not (isinstance(shape, type) and issubclass(shape, BaseModel)):
        raise SampleError(f"shape={shape!r:.80} is not allowed; it is a pydantic model class with one list field.")
    elements = {name: _element(field.annotation) for name, field in shape.model_fields.items()}
    lists = {name: element for name, element in elements.items() if element is not None}
    if len(lists) != 1:
        found = f"has {len(lists)} ({', '.join(lists)})" if lists else "has none"
        raise SampleError(f"the shape {shape.__name__} must have exactly one list field, and {found}.")
    [(name, element)] = lists.items()
    has_question = isinstance(element, type) and issubclass(element, BaseModel) and "question" in element.model_fields
    if element is not str and not has_question:
        raise SampleError(f"{shape.__name__}.{name} must be a list of strings or of models with a field 'question'.")
    return name


def _element(annotation: Any) -> Any:
    """What a list or tuple annotation holds, without its `Annotated` limits; None for anything else."""
    if get_origin(annotation) not in (list, tuple) or not get_args(annotation):
        return None
    element = get_args(annotation)[0]
    return get_args(element)[0] if get_origin(element) is Annotated else element


def items_of(value: BaseModel) -> list[ChecklistItem]:
    """The items that a reply of some shape means, without repetitions.

    Raises:
        ValueError: one sentence without a full stop, if an entry is no question or not usable as an item.
    """
    found: dict[str, ChecklistItem] = {}
    for entry in getattr(value, list_field(type(value))):
        fields = {"question": entry} if isinstance(entry, str) else _item_fields(entry)
        question = tidy(str(fields["question"]))
        if not is_question(question):
            raise ValueError(f"{question!r:.80} is no question; it must end with a question mark")
        item = _item(fields | {"question": question})
        first = found.setdefault(question.casefold(), item)
        if first is not item and item.sources:
            sources = tuple(sorted({*first.sources, *item.sources}))
            found[question.casefold()] = first.model_copy(update={"sources": sources})
    return list(found.values())


def _item_fields(entry: BaseModel) -> dict[str, Any]:
    known = set(ChecklistItem.model_fields) - {"id"}
    return {name: value for name, value in entry.model_dump(include=known).items() if value is not None}


def _item(fields: Mapping[str, Any]) -> ChecklistItem:
    try:
        return ChecklistItem.model_validate(fields)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in detail["loc"])
        message = detail["msg"].removeprefix("Value error, ")
        raise ValueError(f"{fields['question']!r:.60}: {f'{place}: ' if place else ''}{message}") from None


def ask_in_shape(messages: Messages, shape: type[BaseModel]) -> Messages:
    """The chat turn with a last section that says in words which JSON is wanted."""
    *before, last = messages
    return [*before, {**last, "content": f"{last['content']}\n\n## Format\n\n{shape_in_words(shape)}"}]


def shape_in_words(shape: type[BaseModel]) -> str:
    """What a reply must look like, for models that are not held to a schema by their engine.

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
        return "..."  # a model that holds itself
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
