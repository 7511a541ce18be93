"""Argument checks, pydantic errors as one sentence, and optional libraries.

Each check returns nothing for a valid value and otherwise raises a [`SampleError`] that names the argument, the value
and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeGuard

from pydantic import BaseModel, ValidationError

from checklist_rewards.errors import SampleError, shown


def one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Check that `value` is one of `allowed`.

    >>> one_of("ties", "last", ("first", "all"))
    Traceback (most recent call last):
    checklist_rewards.errors.SampleError: ties='last' is not known; allowed: 'first', 'all'.
    """
    choices = list(allowed)
    if value not in choices:
        raise SampleError(f"{name}={shown(value)} is not known; allowed: {', '.join(map(repr, choices))}.")


def whole_number(name: str, value: object, *, at_least: int = 1) -> None:
    """Check that `value` is an `int` (not a `bool`) and at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise SampleError(f"{name}={shown(value)} is not allowed; it must be a whole number from {at_least} up.")


def fraction(name: str, value: object, *, at_least: float = 0.0) -> None:
    """Check that `value` is a number from `at_least` to 1."""
    if not _is_finite(value) or not at_least <= value <= 1:
        raise SampleError(f"{name}={shown(value)} is not allowed; it must be a number from {at_least:g} to 1.")


def finite(name: str, value: object, *, at_least: float | None = None, above: float | None = None) -> None:
    """Check that `value` is a finite number, at least `at_least` and greater than `above`."""
    too_low = _is_finite(value) and (
        (at_least is not None and value < at_least) or (above is not None and value <= above)
    )
    if too_low or not _is_finite(value):
        limits = "" if at_least is None else f" from {at_least:g} up"
        limits += "" if above is None else f" above {above:g}"
        raise SampleError(f"{name}={shown(value)} is not allowed; it must be a finite number{limits}.")


def string(name: str, value: object) -> None:
    """Check that `value` is a `str`. `name` may include the place, such as "row 3: target"."""
    if not isinstance(value, str):
        raise SampleError(f"{name} must be a string, got {type(value).__name__} {shown(value)}.")


def one_sentence(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """The first error of pydantic as one sentence, such as "generator.prompt: Input should be a valid string, got 3."

    Args:
        error (`pydantic.ValidationError`):
            The error.
        model (pydantic model class, *optional*):
            The validated model. With it, the sentence about an unknown key lists the allowed keys.
    """
    detail = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"].removeprefix("Value error, ").rstrip(".")
    if detail["type"] == "missing":
        return f"{place} is missing."
    if detail["type"] == "extra_forbidden":
        message = "unknown key"
        if model is not None:
            message += f"; allowed: {', '.join(_keys_at(model, detail['loc'][:-1]))}"
    elif detail["type"] == "model_type":
        message = f"expected a mapping, got {shown(detail['input'])}"
    elif detail["type"] != "value_error":
        message += f", got {shown(detail['input'])}"
    return f"{place}: {message}." if place else f"{message}."


def import_extra(*names: str, extra: str = "evaluation") -> list[Any]:
    """Import modules that an extra of this package installs.

    Imports happen at first use, so that the package works without the extra.

    Args:
        *names (`str`): The modules.
        extra (`str`, *optional*, defaults to `"evaluation"`): The extra that installs them.

    Raises:
        SampleError: If a library is missing; the message names the extra to install.
    """
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        raise SampleError(f"this needs {error.name}: {install(extra)}.") from error


def missing(*names: str) -> list[str]:
    """Those of the packages `names` that are not installed. Nothing is imported."""
    return [name for name in names if find_spec(name) is None]


def install(extra: str) -> str:
    """The command that installs an extra of this package, for error messages."""
    return f"pip install 'checklist-rewards[{extra}]'"


class _Late:
    """A module that is imported at the first use of one of its attributes."""

    def __init__(self, name: str, extra: str):
        self._name, self._extra = name, extra

    def __getattr__(self, attribute: str) -> Any:
        [module] = import_extra(self._name, extra=self._extra)
        value = self.__dict__[attribute] = getattr(module, attribute)
        return value


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Late("numpy", "evaluation")  # importing it takes 0.2 s, and most commands do not need it


def _is_finite(value: object) -> TypeGuard[float]:
    return not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    )


def _keys_at(model: type[BaseModel], place: Iterable[str | int]) -> list[str]:
    """The keys that the JSON schema of `model` allows at a place inside it."""
    schema = model.model_json_schema()
    node = schema
    for step in (None, *place):
        node = node["items"] if isinstance(step, int) else node["properties"][step] if step is not None else node
        node = next((choice for choice in node.get("anyOf", ()) if "$ref" in choice), node)
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return list(node["properties"])
