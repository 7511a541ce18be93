"""The base of code checks: typed specifications that answer yes/no items about a text without a model.

A specification is a JSON object with a `type` and the fields of that type. `ChecklistItem.check` contains one:

    >>> parse_check('{"type": "words", "at_most": 3}', "item 1").holds("Two words.")
    True

A check type is a pydantic class with a docstring for programmers, a one-line `summary` for users and models that
choose checks, and an `example`. [`register_check`] adds a type. `checks/__init__.py` registers the built-in types.

An invalid specification raises an error before anything is judged. A check that fails or times out on a text raises
[`CheckError`]: the item is then unanswered, and neither yes nor no counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import override

from checklist_rewards.errors import CheckError, ChecklistError, shown
from checklist_rewards.plugins import load_plugins
from checklist_rewards.validation import unknown

Bounds = tuple[int, int]
"""The fewest and the most that a count can be."""
UNCOUNTABLE = "the text is in a script (such as Thai) whose words only a dictionary can separate"
_CACHED_LENGTH = 5000
"""Longest specification, in characters, whose parsed form is cached; bounds the size of the cache."""


class Check(BaseModel):
    """Base class of all checks."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    summary: ClassVar[str]
    """One line that describes when the answer is yes."""
    example: ClassVar[Mapping[str, Any]] = {}
    """The fields of an example specification, without its `type`."""
    offered: ClassVar[bool] = True
    """Whether people and models choose it; others only come from imports."""
    imported: ClassVar[frozenset[str]] = frozenset()
    """Fields that only imports set."""
    executes: ClassVar[bool] = False
    """Whether the check executes code from the specification or the text."""

    type: str

    @property
    def runs_code(self) -> bool:
        """Whether this check, or a check inside it, executes code. Such checks require the user's permission."""
        return self.executes

    def fault(self) -> str | None:
        """Why this check gives no answer for any text, as part of a sentence; None for a check that works."""
        return None

    def holds(self, text: str, input: str | None = None) -> bool:
        """Whether `text` passes the check.

        Args:
            text (`str`): The text to check.
            input (`str`, *optional*): The input that the text responds to, if known.

        Raises:
            CheckError: If the check fails or times out.
        """
        raise NotImplementedError


class Counted(Check):
    """Base class of checks that compare a count with a bound: at least, at most, exactly."""

    at_least: int | None = Field(default=None, ge=0)
    at_most: int | None = Field(default=None, ge=0)
    exactly: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _bounded(self) -> Counted:
        if self.exactly is not None and (self.at_least is not None or self.at_most is not None):
            raise ValueError("'exactly' cannot be combined with 'at_least' or 'at_most'")
        if self.exactly is None and self.at_least is None and self.at_most is None:
            raise ValueError("one of 'at_least', 'at_most', 'exactly' is required")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least={self.at_least} is greater than at_most={self.at_most}")
        return self

    def count(self, text: str) -> int:
        """The count in `text` that is compared with the bounds."""
        raise NotImplementedError

    def bounds(self, text: str) -> Bounds:
        """The fewest and the most that the count can be, for texts in which it is not certain."""
        return (self.count(text),) * 2

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        """Raises [`CheckError`] if the answer depends on an uncertain count."""
        fewest, most = self.bounds(text)
        least = self.exactly if self.exactly is not None else self.at_least or 0
        limit = self.exactly if self.exactly is not None else self.at_most
        if most < least or (limit is not None and fewest > limit):
            return False
        if fewest < least or (limit is not None and most > limit):
            raise CheckError(f"{UNCOUNTABLE}; the number is between {fewest} and {most}")
        return True


CHECKS: dict[str, type[Check]] = {}
"""All registered check types by name."""

_Kind = TypeVar("_Kind", bound=Check)


def register_check(kind: type[_Kind]) -> type[_Kind]:
    """Class decorator that registers a check type. Its name is the default of its field `type`.

    Raises:
        ChecklistError: If the name is taken, the class has no summary, or its example is invalid.
    """
    name = kind.model_fields["type"].default
    if not isinstance(name, str):
        raise ChecklistError(f"{kind.__name__}: name the check type with a field: type: Literal['x'] = 'x'.")
    if CHECKS.get(name, kind) is not kind:
        raise ChecklistError(f"the check type {name!r} already exists ({CHECKS[name].__name__}); use another name.")
    if not hasattr(kind, "summary"):
        raise ChecklistError(
            f"{kind.__name__}: a check needs a summary, one line that describes when the answer is yes."
        )
    CHECKS[name] = kind
    _parsed.cache_clear()
    try:
        parse_check(example_of(kind), f"the example of {kind.__name__}")
    except ChecklistError:
        del CHECKS[name]
        raise
    return kind


def example_of(kind: type[Check]) -> str:
    """The example specification of a check type, as JSON."""
    return json.dumps({"type": kind.model_fields["type"].default, **kind.example})


def describe() -> str:
    """Describe the check types that do not execute code, one per line with an example, for the prompt of a model that
    chooses among them."""
    return "\n".join(
        f"- {name}: {kind.summary} Example: {example_of(kind)}"
        for name, kind in CHECKS.items()
        if kind.offered and not kind.executes
    )


def parse_check(spec: str, where: str) -> Check:
    """Parse the specification of a check.

    Args:
        spec (`str`): A JSON object with the key `type`.
        where (`str`): The place to name in an error ("sample 3, item ab12").

    Raises:
        ChecklistError: If the specification is invalid. The message names `where`, the field, the value and what is
            allowed.
    """
    try:
        return parsed_check(spec)
    except ValueError as error:
        raise ChecklistError(f"{where}: {error}.") from None


def parsed_check(spec: str) -> Check:
    """[`parse_check`] without a place: raises [`ValueError`], whose message has no final full stop."""
    return _parsed(spec) if len(spec) <= _CACHED_LENGTH else _parsed.__wrapped__(spec)


@lru_cache(maxsize=4096)
def _parsed(spec: str) -> Check:
    try:
        value = json.loads(spec)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a code check must be a JSON object with a 'type'; got {shown(spec)} ({error})") from None
    return check_of(value)


def check_of(value: Any) -> Check:
    """Create a check from a decoded specification. Raises [`ValueError`]; the message has no final full stop."""
    if isinstance(value, Check):
        return value
    name = value.get("type") if isinstance(value, Mapping) else None
    if name is None:
        raise ValueError(f"a code check must be a JSON object with a 'type'; got {shown(value)}")
    if isinstance(name, str) and name not in CHECKS:
        load_plugins()
    if not isinstance(name, str) or name not in CHECKS:
        raise ValueError(unknown("check type", name, CHECKS, "`checklist-rewards list checks`").rstrip("."))
    try:
        # From JSON, pydantic's strict mode accepts a list for a tuple, but still rejects "5" for a number.
        return CHECKS[name].model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise ValueError(f"check {name!r}: {_complaint(error, CHECKS[name])}") from None
    except RecursionError:
        raise ValueError(f"check {name!r} is nested too deeply") from None


def _complaint(error: ValidationError, kind: type[Check]) -> str:
    detail = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        fields = ", ".join(field for field in kind.model_fields if field != "type" and field not in kind.imported)
        return f"unknown field {place!r}; allowed: {fields or 'none'}"
    if detail["type"] == "missing":
        return f"the field {place!r} is missing"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{place}: {message}, got {shown(detail['input'])}" if place else message
