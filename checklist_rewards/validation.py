"""Argument checks, pydantic errors as one sentence, and optional libraries.

Each check returns nothing for a valid value and otherwise raises a [`SampleError`] that names the argument, the value
and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import import_module
from typing import Any, TypeGuard

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


def import_extra(*names: str) -> list[Any]:
    """Import the modules `names`, which the extra `evaluation` installs.

    Imports happen at first use, so that the package works without the extra.

    Raises:
        SampleError: If a library is missing; the message names the extra to install.
    """
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        raise SampleError(f"this needs {error.name}: pip install 'checklist-rewards[evaluation]'.") from error


def _is_finite(value: object) -> TypeGuard[float]:
    return not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    )


def _keys_at(model: type[BaseModel], place: Iterable[str | int]) -> list[str]:
    """The keys that the JSON schema of `model` allows at a place inside it."""
    schema = model.model_json_schema()
    node = schema
    for step in (None, *place):
        node = node["items"] if isinstance(step, int) else _of_key(node, step) if step is not None else node
        node = next((choice for choice in node.get("anyOf", ()) if "$ref" in choice), node)
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return list(node["properties"])


def _of_key(node: dict[str, Any], key: str) -> dict[str, Any]:
    """The schema of a key's value, in an object with given keys or with any."""
    properties = node.get("properties", {})
    return properties[key] if key in properties else node["additionalProperties"]
