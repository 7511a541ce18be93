"""Checklists: the questions about one input, as plain immutable values.

A checklist comes from a generator, from a dataset column, or from a user as a list of strings. [`Checklist.parse`]
accepts all of these. It rejects invalid input with an error that names the item and the value. This module depends
neither on models nor on files.

    >>> checklist = Checklist.parse(["Is it short?", {"question": "Is it rude?", "weight": -2}])
    >>> [item.weight for item in checklist.items]
    [1.0, -2.0]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from checklist_rewards.errors import ChecklistError, shown
from checklist_rewards.validation import one_sentence, without_marks

Key = bytes

YES, NO = "yes", "no"
Scope = Literal["final", "any_turn", "every_turn", "any_tool_result", "every_tool_result"]
"""Which messages of a conversation an item is about."""
_YES_NO: Mapping[str, float | None] = {YES: 1.0, NO: 0.0}
CANNOT_ASSESS = "cannot_assess"
"""Default label of an abstention."""
EVOLVING_CATEGORY = "evolving"
"""Category of all items that were proposed in training. It separates them from the items of the dataset, whose curves
over the steps are comparable, in metrics, reports and the monitor."""
MAX_WEIGHT = 1_000_000
"""Largest absolute weight. The limit prevents overflow in sums of weights; published rubrics stay within 100
(HealthBench: -10 to 10)."""


def content_hash(*parts: str | None, length: int = 16) -> str:
    """Hexadecimal hash of a sequence of strings. None and "" give different hashes."""
    encoded = json.dumps(parts, ensure_ascii=True).encode()
    return hashlib.sha256(encoded).hexdigest()[:length]


def key_of(*parts: str | bytes) -> Key:
    """16-byte hash of a sequence of strings. Different sequences always have different encodings."""
    return key_of_frames(b"".join(map(frame, parts)))


def frame(part: str | bytes) -> bytes:
    """A part of a key as it is hashed: its length, then its bytes. Kept by callers whose keys share parts."""
    raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
    return len(raw).to_bytes(8, "big") + raw


def key_of_frames(frames: bytes) -> Key:
    """[`key_of`] of parts that are framed and joined already."""
    return blake2b(frames, digest_size=16).digest()


class Option(BaseModel):
    """One possible answer to an item that is not a plain yes/no question."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str = Field(min_length=1)
    value: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """The item's value when this option is chosen, in [0, 1]. None only for an `na` option."""
    na: bool = False
    """The option is an abstention ("not applicable", "cannot assess"): an answer without a value."""

    @model_validator(mode="before")
    @classmethod
    def _none_is_absent(cls, data: Any) -> Any:
        return _without_none(data) if isinstance(data, Mapping) else data

    @field_validator("label")
    @classmethod
    def _without_images(cls, label: str) -> str:
        return without_marks(label)

    @model_validator(mode="after")
    def _value_unless_na(self) -> Option:
        if (self.value is None) != self.na:
            raise ValueError("an option must have either a value in [0, 1] or na=true")
        return self


class Evidence(BaseModel):
    """The part of a prompt that states the requirement of an item: `text` is `prompt[start:end]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    text: str

    @model_validator(mode="after")
    def _as_long_as_the_text(self) -> Evidence:
        if self.end - self.start != len(self.text):
            raise ValueError(f"the text has {len(self.text)} characters, but end - start is {self.end - self.start}")
        return self


class ChecklistItem(BaseModel):
    """One question about a target.

    Args:
        question (`str`): Asked about the target; must not be blank.
        weight (`float`, *optional*, defaults to `1.0`): From -1e6 to 1e6. A negative weight makes the item a penalty:
            the answer yes lowers the score.
        category (`str`, *optional*): Any label. Pass rates are reported by category.
        required (`bool`, *optional*, defaults to `False`): Whether the item is a gate: if it is answered and fails,
            the primary score is 0.
        options (list of [`Option`], *optional*): The possible answers. Defaults to yes (1) and no (0).
        check (`str` or mapping, *optional*): A code check that answers the item without a model, as a mapping or as
            JSON text. A string is stored unchanged; a mapping is stored as JSON text with sorted keys.
        scope (`str`, *optional*): Which messages of a conversation the question is about, instead of the whole target:
            `final`, the last message of the assistant; `any_turn` and `every_turn`, whether it holds for one or for
            all messages of the assistant; `any_tool_result` and `every_tool_result`, for the results of tools. The
            answers are yes and no.
        sources (tuple of `int`, *optional*): Indices of the observations from which a generator derived the question.
        evidence ([`Evidence`], *optional*): The part of the prompt that states the requirement, if a rule found it.
        id (`str`, *optional*): Defaults to a hash of the fields that determine the answer (question, check, option
            labels, scope). Weights and values can therefore change without a new read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = ""
    question: str
    weight: float = Field(default=1.0, allow_inf_nan=False, ge=-MAX_WEIGHT, le=MAX_WEIGHT)
    category: str | None = None
    required: bool = False
    options: tuple[Option, ...] | None = None
    check: str | None = None
    scope: Scope | None = None
    sources: tuple[int, ...] = ()
    evidence: Evidence | None = None

    @field_validator("question")
    @classmethod
    def _not_blank(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("the question is blank")
        return without_marks(question)

    @field_validator("weight", mode="before")
    @classmethod
    def _numeric_weight(cls, weight: Any) -> Any:
        if isinstance(weight, bool | str):
            raise ValueError("a weight must be a finite number")
        return weight

    @field_validator("required", mode="before")
    @classmethod
    def _true_or_false(cls, required: Any) -> Any:
        if not isinstance(required, bool):
            raise ValueError("it must be true or false")
        return required

    @field_validator("check", mode="before")
    @classmethod
    def _check_text(cls, check: Any) -> Any:
        if isinstance(check, str):
            return _decoded(check, str)
        return _canonical(check) if isinstance(check, Mapping) else check

    @model_validator(mode="after")
    def _content_id(self) -> ChecklistItem:
        if not self.id:
            labels = [option.label for option in self.options or ()]
            scope = [] if self.scope is None else [f"scope {self.scope}"]
            parts = [self.question, self.check, *labels, *scope]
            object.__setattr__(self, "id", content_hash(*parts))  # the model is frozen
        return self

    @model_validator(mode="after")
    def _options_make_sense(self) -> ChecklistItem:
        if self.options is not None:
            labels = [option.label for option in self.options]
            if len(set(labels)) != len(labels):
                raise ValueError(f"two options have the same label: {labels}")
            if sum(not option.na for option in self.options) < 2:
                raise ValueError("an item with options needs at least two options that have a value")
            if self.scope is not None:
                raise ValueError("an item with a scope is answered by yes or no, so it cannot have options")
        return self

    @property
    def values(self) -> Mapping[str, float | None]:
        """Value of each possible answer, in [0, 1]; None for an abstention."""
        if self.options is None:
            return _YES_NO
        return {option.label: option.value for option in self.options}

    @property
    def yes_no(self) -> bool:
        """Whether the possible answers are yes (1), no (0) and at most an abstention."""
        return {label: value for label, value in self.values.items() if value is not None} == _YES_NO


_MOST_PARSED = 1024
_LONGEST_KEY = 100_000
_PARSED: dict[str, Checklist] = {}


class Checklist(BaseModel):
    """The items about one input (or one corpus). At least one item must have a nonzero weight.

    `source` (pipeline and version) and `model` record the origin of the checklist. Both are optional and not part of
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
            raise ValueError("every weight is 0; at least one item must have another weight")
        return self

    def __len__(self) -> int:
        return len(self.items)

    @property
    def id(self) -> str:
        """Content hash of all items with their weights, gates and categories."""
        return content_hash(*map(_dumped, self.items))

    @property
    def only_penalties(self) -> bool:
        """Whether no item has a positive weight. The score then starts at 1 and penalties lower it."""
        return all(item.weight <= 0 for item in self.items)

    @classmethod
    def parse(cls, value: Any, where: str = "checklist") -> Checklist:
        """Parse a checklist from any form that a dataset row may contain.

        Args:
            value: A [`Checklist`], a list of strings or of mappings with [`ChecklistItem`]'s fields, a mapping with
                `items`, or a JSON string of any of these. In mappings, None means that the field is absent. Items and
                options given as JSON strings are decoded, because Parquet returns lists whose mappings have different
                keys in that form.
            where (`str`): The place to name in an error ("data.jsonl, row 3").

        Raises:
            ChecklistError: If the checklist is invalid. The message names `where`, the item, the value and what is
                allowed. A question that is the text of a JSON object is also rejected: it is an item that a file
                format has converted to text.
        """
        if isinstance(value, Checklist):
            return value
        key = _key(value)
        known = None if key is None else _PARSED.get(key)  # one lookup: another thread may clear the cache
        if known is not None:
            return known
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
                python = "; this is a Python list, write it with json.dumps" if value.startswith(("['", "[{'")) else ""
                raise ChecklistError(
                    f"{where}: a checklist given as a string must be JSON ({error}); got {shown(value)}{python}."
                ) from None
        origin: dict[str, Any] = {}
        if isinstance(value, Mapping) and "items" in value:
            origin = {key: value.get(key) for key in ("source", "model")}
            value = value["items"]
        value = _plainly(value)
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise ChecklistError(
                f"{where}: expected a list of questions (strings or mappings with 'question'), got {shown(value)}."
            )
        items = tuple(_parse_item(item, f"{where}, item {index}") for index, item in enumerate(value, start=1))
        try:
            return cls(items=items, **origin)
        except ValidationError as error:
            raise ChecklistError(f"{where}: {one_sentence(error, cls)}") from None


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
    value = _decoded(value, str, dict, list)
    if isinstance(value, str):
        value = {"question": value}
    if not isinstance(value, Mapping):
        raise ChecklistError(f"{where}: expected a question (string or mapping with 'question'), got {shown(value)}.")
    fields = _without_none(value)
    if "options" in fields:
        options = _decoded(fields.pop("options"), list)
        if isinstance(options, list | tuple):
            options = [_decoded(option, dict) for option in options]
        if options != []:
            fields["options"] = options
    if "evidence" in fields:
        evidence = _decoded(fields.pop("evidence"), dict)
        if not isinstance(evidence, Mapping) or _without_none(evidence):
            fields["evidence"] = evidence
    try:
        item = ChecklistItem.model_validate(fields)
    except ValidationError as error:
        raise ChecklistError(f"{where}: {one_sentence(error, ChecklistItem)}") from None
    if item.question.lstrip().startswith("{") and _is_json_object(item.question):
        raise ChecklistError(
            f"{where}: the question is a JSON object, not plain text; give the item itself as an object, got "
            f"{shown(item.question)}."
        )
    return item


def _without_none(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: _plainly(entry) for key, entry in value.items() if entry is not None}


def _plainly(value: Any) -> Any:
    """The list of an array, and the number of a scalar, of NumPy: pandas reads the lists of Parquet as arrays."""
    return value.tolist() if hasattr(value, "tolist") else value


def _decoded(value: Any, *kinds: type) -> Any:
    """The decoded value of a string that is JSON of one of `kinds`; any other value unchanged."""
    while isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            decoded = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if not isinstance(decoded, kinds):
            return value
        value = decoded
    return value


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except RecursionError:
        return True
    except ValueError:
        return False


def _canonical(check: Mapping[Any, Any]) -> str:
    """Canonical JSON of a check. Differences that file formats introduce (order of keys, nulls, whole numbers as
    floats) do not change it."""
    try:
        return json.dumps(_plain(check), ensure_ascii=False, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("a check must be a JSON object") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _dumped(item: ChecklistItem) -> str:
    origin = {"sources", "evidence"} | ({"scope"} if item.scope is None else set())
    try:
        return item.model_dump_json(exclude=origin)
    except PydanticSerializationError:  # an unpaired surrogate cannot be encoded as UTF-8
        return json.dumps(item.model_dump(exclude=origin))
