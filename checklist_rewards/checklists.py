"""Checklists: the questions about one input, as plain frozen values.

A checklist comes from a generator, from a dataset column or from a user's hands as a list of strings;
[`Checklist.parse`] takes all of these and refuses what cannot be used with one sentence that names the item and the
value. Nothing here knows models or files.

    >>> checklist = Checklist.parse(["Is it short?", {"question": "Is it rude?", "weight": -2}])
    >>> [item.weight for item in checklist.items]
    [1.0, -2.0]
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from checklist_rewards.errors import ChecklistError

YES, NO = "yes", "no"
CANNOT_ASSESS = "cannot_assess"
"""What an abstention is called where an item allows one and does not name it itself."""


def content_hash(*parts: str | None, length: int = 16) -> str:
    """Hex hash of a sequence of strings; None and "" differ, and no two sequences share an encoding."""
    encoded = json.dumps(parts, ensure_ascii=True).encode()
    return hashlib.sha256(encoded).hexdigest()[:length]


class Option(BaseModel):
    """One possible answer of an item that is not a plain yes/no question."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str = Field(min_length=1)
    value: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """The item's value when this option is chosen, in [0, 1]. Absent only for an `na` option."""
    na: bool = False
    """This option means "not applicable / cannot assess": an abstention, which is an answer but carries no value."""

    @model_validator(mode="after")
    def _value_unless_na(self) -> Option:
        if (self.value is None) != self.na:
            raise ValueError("an option has either a value in [0, 1] or na=true")
        return self


class ChecklistItem(BaseModel):
    """One question about a target.

    Args:
        question (`str`): asked about the target; must not be blank.
        weight (`float`, *optional*, defaults to `1.0`): any finite number. Negative makes the item a penalty: yes
            costs.
        category (`str`, *optional*): free label, used to report pass rates by category.
        required (`bool`, *optional*, defaults to `False`): a gate. If it is answered and fails, the primary score is
            0.
        options (list of [`Option`], *optional*): the possible answers; None means yes (1) and no (0).
        check (`str`, *optional*): JSON of a typed code check that answers the item without a model.
        sources (tuple of `int`, *optional*): indices of the observations that the question came from, where a
            generator worked from observations.
        id (`str`, *optional*): defaults to a hash of what determines the answer (question, check, option labels), so
            weights and values can change without a new read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = ""
    question: str
    weight: float = Field(default=1.0, allow_inf_nan=False)
    category: str | None = None
    required: bool = False
    options: tuple[Option, ...] | None = None
    check: str | None = None
    sources: tuple[int, ...] = ()

    @field_validator("question")
    @classmethod
    def _not_blank(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("the question is blank")
        return question

    @field_validator("weight", mode="before")
    @classmethod
    def _a_number(cls, weight: Any) -> Any:
        if isinstance(weight, bool | str):
            raise ValueError("a weight is a finite number")
        return weight

    @model_validator(mode="before")
    @classmethod
    def _content_id(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and not data.get("id") and isinstance(data.get("question"), str):
            labels = [_label(option) for option in data.get("options") or ()]
            return {**data, "id": content_hash(data["question"], data.get("check"), *labels)}
        return data

    @model_validator(mode="after")
    def _options_make_sense(self) -> ChecklistItem:
        if self.options is not None:
            labels = [option.label for option in self.options]
            if len(set(labels)) != len(labels):
                raise ValueError(f"two options share a label: {labels}")
            if sum(not option.na for option in self.options) < 2:
                raise ValueError("an item with options needs at least two that carry a value")
        return self

    @property
    def values(self) -> dict[str, float | None]:
        """Value of every possible answer, in [0, 1]; None for an abstention."""
        if self.options is None:
            return {YES: 1.0, NO: 0.0}
        return {option.label: option.value for option in self.options}

    @property
    def yes_no(self) -> bool:
        """Whether it is answered by yes (1) and no (0), and by nothing else but an abstention."""
        return {label: value for label, value in self.values.items() if value is not None} == {YES: 1.0, NO: 0.0}


def _label(option: Any) -> str:
    return str(
        option.label if isinstance(option, Option) else option.get("label") if isinstance(option, Mapping) else ""
    )


class Checklist(BaseModel):
    """The items about one input (or one corpus), at least one of them with a weight other than 0.

    `source` (pipeline and version) and `model` say where the checklist came from; both are optional and not part of
    `id`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: tuple[ChecklistItem, ...]
    source: str | None = None
    model: str | None = None

    @model_validator(mode="after")
    def _usable(self) -> Checklist:
        if not self.items:
            raise ValueError("the checklist is empty; it needs at least one question")
        if all(item.weight == 0 for item in self.items):
            raise ValueError("every weight is 0; at least one item must count")
        return self

    def __len__(self) -> int:
        return len(self.items)

    @property
    def id(self) -> str:
        """Content hash of all items with their weights, gates and categories."""
        return content_hash(*(item.model_dump_json(exclude={"sources"}) for item in self.items))

    @property
    def only_penalties(self) -> bool:
        """No item has a positive weight: the score starts at 1 and penalties take from it."""
        return all(item.weight <= 0 for item in self.items)

    @classmethod
    def parse(cls, value: Any, where: str = "checklist") -> Checklist:
        """Make a checklist from whatever a dataset row may hold.

        Args:
            value: a [`Checklist`], a list of strings or of mappings with [`ChecklistItem`]'s fields, a mapping with
                `items`, or a JSON string of any of these. In mappings None stands for absent.
            where (`str`): how to name this checklist in an error ("data.jsonl, row 3").

        Raises:
            ChecklistError: one sentence with `where`, the item, the value and what is allowed.
        """
        if isinstance(value, Checklist):
            return value
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise ChecklistError(
                    f"{where}: a checklist given as a string must be JSON ({error}); got {_shown(value)}."
                ) from None
        extra: dict[str, Any] = {}
        if isinstance(value, Mapping) and "items" in value:
            extra = {key: value.get(key) for key in ("source", "model")}
            value = value["items"]
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise ChecklistError(
                f"{where}: expected a list of questions (strings or mappings with 'question'), got {_shown(value)}."
            )
        items = tuple(_parse_item(item, f"{where}, item {index}") for index, item in enumerate(value, start=1))
        try:
            return cls(items=items, **extra)
        except ValidationError as error:
            raise ChecklistError(f"{where}: {_first(error)}.") from None


def _parse_item(value: Any, where: str) -> ChecklistItem:
    if isinstance(value, ChecklistItem):
        return value
    if isinstance(value, str):
        value = {"question": value}
    if not isinstance(value, Mapping):
        raise ChecklistError(f"{where}: expected a question (string or mapping with 'question'), got {_shown(value)}.")
    present = {key: item for key, item in value.items() if item is not None}
    if present.get("options") == []:
        del present["options"]
    try:
        return ChecklistItem.model_validate(present)
    except ValidationError as error:
        raise ChecklistError(f"{where}: {_first(error)}.") from None


def _first(error: ValidationError) -> str:
    """The first complaint of pydantic as `field: message, got value`."""
    detail = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        message = f"unknown field; allowed: {', '.join(ChecklistItem.model_fields)}"
    got = "" if not field or detail["type"] == "missing" else f", got {_shown(detail['input'])}"
    return f"{field}: {message}{got}" if field else message


def _shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
