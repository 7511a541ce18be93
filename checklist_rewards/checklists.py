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
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from checklist_rewards.errors import ChecklistError, shown

YES, NO = "yes", "no"
CANNOT_ASSESS = "cannot_assess"
"""What an abstention is called where an item allows one and does not name it itself."""
MAX_WEIGHT = 1_000_000
"""Largest absolute weight, so that no sum of weights overflows. Published rubrics stay within 100 (HealthBench: -10 to
10)."""


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

    @model_validator(mode="before")
    @classmethod
    def _none_is_absent(cls, data: Any) -> Any:
        return _present(data) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _value_unless_na(self) -> Option:
        if (self.value is None) != self.na:
            raise ValueError("an option has either a value in [0, 1] or na=true")
        return self


class ChecklistItem(BaseModel):
    """One question about a target.

    Args:
        question (`str`): asked about the target; must not be blank.
        weight (`float`, *optional*, defaults to `1.0`): from -1e6 to 1e6. Negative makes the item a penalty: yes
            costs.
        category (`str`, *optional*): free label, used to report pass rates by category.
        required (`bool`, *optional*, defaults to `False`): a gate. If it is answered and fails, the primary score is
            0.
        options (list of [`Option`], *optional*): the possible answers; None means yes (1) and no (0).
        check (`str` or mapping, *optional*): a typed code check that answers the item without a model, as JSON text or
            as the object itself. Text is kept as it is; an object becomes JSON text with sorted keys.
        sources (tuple of `int`, *optional*): indices of the observations that the question came from, where a
            generator worked from observations.
        id (`str`, *optional*): defaults to a hash of what determines the answer (question, check, option labels), so
            weights and values can change without a new read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = ""
    question: str
    weight: float = Field(default=1.0, allow_inf_nan=False, ge=-MAX_WEIGHT, le=MAX_WEIGHT)
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

    @field_validator("check", mode="before")
    @classmethod
    def _check_text(cls, check: Any) -> Any:
        if isinstance(check, str):
            return _unpacked(check, str)
        return _canonical(check) if isinstance(check, Mapping) else check

    @model_validator(mode="after")
    def _content_id(self) -> ChecklistItem:
        if not self.id:
            labels = [option.label for option in self.options or ()]
            object.__setattr__(self, "id", content_hash(self.question, self.check, *labels))  # frozen for users only
        return self

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


_MOST_PARSED = 1024
_LONGEST_KEY = 100_000
_PARSED: dict[str, Checklist] = {}


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
        return content_hash(*map(_dumped, self.items))

    @property
    def only_penalties(self) -> bool:
        """No item has a positive weight: the score starts at 1 and penalties take from it."""
        return all(item.weight <= 0 for item in self.items)

    @classmethod
    def parse(cls, value: Any, where: str = "checklist") -> Checklist:
        """Make a checklist from whatever a dataset row may hold.

        Args:
            value: a [`Checklist`], a list of strings or of mappings with [`ChecklistItem`]'s fields, a mapping with
                `items`, or a JSON string of any of these. In mappings None stands for absent. Items and options that
                are JSON strings stand for what they hold: lists whose mappings have different keys come back from
                Parquet like that.
            where (`str`): how to name this checklist in an error ("data.jsonl, row 3").

        Raises:
            ChecklistError: one sentence with `where`, the item, the value and what is allowed. A question that is the
                text of a JSON object is refused too: it is an item that some file format has turned into text.
        """
        if isinstance(value, Checklist):
            return value
        key = _key(value)
        if key is not None and key in _PARSED:
            return _PARSED[key]
        checklist = cls._parse(value, where)
        if key is not None:
            if len(_PARSED) >= _MOST_PARSED:
                _PARSED.clear()
            _PARSED[key] = checklist
        return checklist

    @classmethod
    def _parse(cls, value: Any, where: str) -> Checklist:
        while isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise ChecklistError(
                    f"{where}: a checklist given as a string must be JSON ({error}); got {shown(value)}."
                ) from None
        extra: dict[str, Any] = {}
        if isinstance(value, Mapping) and "items" in value:
            extra = {key: value.get(key) for key in ("source", "model")}
            value = value["items"]
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise ChecklistError(
                f"{where}: expected a list of questions (strings or mappings with 'question'), got {shown(value)}."
            )
        items = tuple(_parse_item(item, f"{where}, item {index}") for index, item in enumerate(value, start=1))
        try:
            return cls(items=items, **extra)
        except ValidationError as error:
            raise ChecklistError(f"{where}: {_first(error)}.") from None


def _key(value: Any) -> str | None:
    """What equal values have in common, where they are plain JSON values: completions of one prompt have the same
    checklist, which is then parsed once. None for other values, and for long ones."""
    try:
        key = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None
    return key if len(key) <= _LONGEST_KEY else None


def _parse_item(value: Any, where: str) -> ChecklistItem:
    if isinstance(value, ChecklistItem):
        return value
    value = _unpacked(value, str, dict, list)
    if isinstance(value, str):
        value = {"question": value}
    if not isinstance(value, Mapping):
        raise ChecklistError(f"{where}: expected a question (string or mapping with 'question'), got {shown(value)}.")
    present = _present(value)
    if "options" in present:
        options = _unpacked(present.pop("options"), list)
        if isinstance(options, list | tuple):
            options = [_unpacked(option, dict) for option in options]
        if options != []:
            present["options"] = options
    try:
        item = ChecklistItem.model_validate(present)
    except ValidationError as error:
        raise ChecklistError(f"{where}: {_first(error)}.") from None
    if item.question.lstrip().startswith("{") and _json_object(item.question):
        raise ChecklistError(
            f"{where}: the question is a JSON object, not plain text; give the item itself as an object, got "
            f"{shown(item.question)}."
        )
    return item


def _present(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: entry for key, entry in value.items() if entry is not None}


def _unpacked(value: Any, *kinds: type) -> Any:
    """What a string holds that is JSON of one of `kinds`; anything else as it is."""
    while isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            held = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if not isinstance(held, kinds):
            return value
        value = held
    return value


def _json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except RecursionError:
        return True
    except ValueError:
        return False


def _canonical(check: Mapping[Any, Any]) -> str:
    """JSON of a check that depends on nothing a file format changes: neither the order of keys, nor nulls, nor whether
    a whole number is a float."""
    try:
        return json.dumps(_plain(check), ensure_ascii=False, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("a check is a JSON object") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _dumped(item: ChecklistItem) -> str:
    try:
        return item.model_dump_json(exclude={"sources"})
    except PydanticSerializationError:  # half a surrogate pair has no UTF-8
        return json.dumps(item.model_dump(exclude={"sources"}))


def _first(error: ValidationError) -> str:
    """One complaint of pydantic as `field: message, got value`; an unknown field first, for it may be a missing one's
    wrong name."""
    details = error.errors(include_url=False)
    detail = next((each for each in details if each["type"] == "extra_forbidden"), details[0])
    places = [
        str(part) if str(part).isidentifier() or isinstance(part, int) else shown(part) for part in detail["loc"]
    ]
    field = ".".join(places)
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        model: type[BaseModel] = Option if len(places) > 1 else ChecklistItem
        message = f"unknown field; allowed: {', '.join(model.model_fields)}"
    got = "" if not field or detail["type"] == "missing" else f", got {shown(detail['input'])}"
    return f"{field}: {message}{got}" if field else message
