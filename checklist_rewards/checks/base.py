"""What a code check is: a typed spec that answers a yes/no item about a text without a model.

A spec is a JSON object with a `type` and that type's own fields; it is what `ChecklistItem.check` holds:

    >>> parse_check('{"type": "words", "at_most": 3}', "item 1").holds("Two words.")
    True

A type is a pydantic class with a docstring for programmers, a `summary` in one line of English for whoever chooses
checks (people and models), and an `example`. [`register_check`] adds one; the package's own are registered by
`checks/__init__.py`.

A spec that cannot be used is refused with one sentence before anything is judged. A check that breaks on a text, or
runs out of time on it, raises [`CheckError`]: that leaves the item unanswered, it is no verdict about the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from checklist_rewards.errors import ChecklistError, shown

_CACHED_LENGTH = 5000
"""Characters of the longest spec that is kept parsed, so that the cache has a bound in bytes."""


class Check(BaseModel):
    """Base of all checks."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    summary: ClassVar[str]
    """When the answer is yes, in one line."""
    example: ClassVar[Mapping[str, Any]] = {}
    """The fields of a spec, without its `type`."""
    executes: ClassVar[bool] = False
    """Runs code that stands in the spec or in the text."""

    type: str

    @property
    def runs_code(self) -> bool:
        """Whether it, or a check inside it, executes code; off unless the user allows it."""
        return self.executes

    def holds(self, text: str, input: str | None = None) -> bool:
        """Whether `text` passes; `input` is what was asked, where that is known.

        Raises [`CheckError`] if that cannot be found out.
        """
        raise NotImplementedError


class Counted(Check):
    """Base of the checks that count something and compare: at least, at most, exactly."""

    at_least: int | None = Field(default=None, ge=0)
    at_most: int | None = Field(default=None, ge=0)
    exactly: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _bounded(self) -> Counted:
        if self.exactly is not None and (self.at_least is not None or self.at_most is not None):
            raise ValueError("'exactly' stands alone, without 'at_least' or 'at_most'")
        if self.exactly is None and self.at_least is None and self.at_most is None:
            raise ValueError("one of 'at_least', 'at_most', 'exactly' is needed")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least={self.at_least} is more than at_most={self.at_most}")
        return self

    def count(self, text: str) -> int:
        """How many there are in `text`."""
        raise NotImplementedError

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        count = self.count(text)
        if self.exactly is not None:
            return count == self.exactly
        return (self.at_least is None or count >= self.at_least) and (self.at_most is None or count <= self.at_most)


CHECKS: dict[str, type[Check]] = {}
"""Every registered type of check, by name."""

_Kind = TypeVar("_Kind", bound=Check)


def register_check(kind: type[_Kind]) -> type[_Kind]:
    """Class decorator: make a type of check known by the default of its field `type`.

    Raises [`ChecklistError`] for a name that is taken, or a class without a summary or with an example that it would
    refuse.
    """
    name = kind.model_fields["type"].default
    if not isinstance(name, str):
        raise ChecklistError(f"{kind.__name__}: a check's type is named by its field: type: Literal['x'] = 'x'.")
    if CHECKS.get(name, kind) is not kind:
        raise ChecklistError(f"the check {name!r} exists already ({CHECKS[name].__name__}); take another name.")
    if not hasattr(kind, "summary"):
        raise ChecklistError(f"{kind.__name__}: a check needs a summary, one line that says when the answer is yes.")
    CHECKS[name] = kind
    _parsed.cache_clear()
    try:
        parse_check(example_of(kind), f"the example of {kind.__name__}")
    except ChecklistError:
        del CHECKS[name]
        raise
    return kind


def example_of(kind: type[Check]) -> str:
    """A spec of this type, as JSON."""
    return json.dumps({"type": kind.model_fields["type"].default, **kind.example})


def describe(*, executing: bool = False) -> str:
    """All types of checks, one line each with an example: for the prompt of a model that is to choose among them.

    Args:
        executing (`bool`, *optional*, defaults to `False`): also those that execute code.
    """
    return "\n".join(
        f"- {name}: {kind.summary} Example: {example_of(kind)}"
        for name, kind in CHECKS.items()
        if executing or not kind.executes
    )


def parse_check(spec: str, where: str) -> Check:
    """The check that a spec describes.

    Args:
        spec (`str`): JSON of an object with `type`.
        where (`str`): how to name it in an error ("sample 3, item ab12").

    Raises:
        ChecklistError: one sentence with `where`, the field, the value and what is allowed.
    """
    try:
        return _parsed(spec) if len(spec) <= _CACHED_LENGTH else _parsed.__wrapped__(spec)
    except ValueError as error:
        raise ChecklistError(f"{where}: {error}.") from None


@lru_cache(maxsize=4096)
def _parsed(spec: str) -> Check:
    try:
        value = json.loads(spec)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a code check is a JSON object with a 'type'; got {shown(spec)} ({error})") from None
    return check_of(value)


def check_of(value: Any) -> Check:
    """The check of a spec that is no longer JSON text. Raises [`ValueError`] with a sentence without its end."""
    if isinstance(value, Check):
        return value
    name = value.get("type") if isinstance(value, Mapping) else None
    if name is None:
        raise ValueError(f"a code check is a JSON object with a 'type'; got {shown(value)}")
    if not isinstance(name, str) or name not in CHECKS:
        raise ValueError(f"the check type {shown(name)} is not known; allowed: {', '.join(CHECKS)}")
    try:
        # As JSON: there pydantic's strict mode takes a list for a tuple, but still no "5" for a number.
        return CHECKS[name].model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise ValueError(f"check {name!r}: {_complaint(error, CHECKS[name])}") from None
    except RecursionError:
        raise ValueError(f"check {name!r} is nested too deeply") from None


def _complaint(error: ValidationError, kind: type[Check]) -> str:
    detail = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        fields = ", ".join(field for field in kind.model_fields if field != "type")
        return f"unknown field {place!r}; allowed: {fields or 'none'}"
    if detail["type"] == "missing":
        return f"the field {place!r} is missing"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{place}: {message}, got {shown(detail['input'])}" if place else message
