"""Argument checks, pydantic errors as one sentence, and optional libraries.

Each check returns nothing for a valid value and otherwise raises a [`SampleError`] that names the argument, the value
and what is allowed.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from checklist_rewards.errors import SampleError, shown

MARKS = ("\ufdd0", "\ufdd1")
"""The noncharacters of Unicode around the hash of an image in a text; see `images.py`."""
_FEW = 20
"""Most names that an error message lists in full."""
_WITHOUT_MARKS = str.maketrans(dict.fromkeys(MARKS, "\ufffd"))


def without_marks(text: str) -> str:
    """A text that contains no image: each character of a mark becomes U+FFFD."""
    return text.translate(_WITHOUT_MARKS)


def one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Check that `value` is one of `allowed`.

    >>> one_of("ties", "last", ("first", "all"))
    Traceback (most recent call last):
    checklist_rewards.errors.SampleError: ties='last' is not known; allowed: 'first', 'all'.
    """
    choices = list(allowed)
    if value not in choices:
        raise SampleError(f"{name}={shown(value)} is not known; allowed: {', '.join(map(repr, choices))}.")


def whole_number(name: str, value: object, *, at_least: int | None = 1) -> None:
    """Check that `value` is an `int` (not a `bool`) and at least `at_least`, if that is given."""
    if isinstance(value, bool) or not isinstance(value, int) or (at_least is not None and value < at_least):
        limit = "" if at_least is None else f" from {at_least} up"
        raise SampleError(f"{name}={shown(value)} is not allowed; it must be a whole number{limit}.")


def fraction(name: str, value: object) -> None:
    """Check that `value` is a number from 0 to 1."""
    if not is_finite(value) or not 0 <= value <= 1:
        raise SampleError(f"{name}={shown(value)} is not allowed; it must be a number from 0 to 1.")


def is_finite(value: object) -> TypeGuard[float]:
    """Whether `value` is a number that a `float` can hold: no `bool`, NaN, infinity or integer above 1.8e308."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def finite(name: str, value: object, *, at_least: float | None = None, above: float | None = None) -> None:
    """Check that `value` is a finite number, at least `at_least` and greater than `above`."""
    too_low = is_finite(value) and (
        (at_least is not None and value < at_least) or (above is not None and value <= above)
    )
    if too_low or not is_finite(value):
        limits = "" if at_least is None else f" from {at_least:g} up"
        limits += "" if above is None else f" above {above:g}"
        raise SampleError(f"{name}={shown(value)} is not allowed; it must be a finite number{limits}.")


def finite_or_none(name: str, value: object) -> float | None:
    """The number in a cell of a file; None if there is none. `name` may include the place, such as "row 3: reward"."""
    if value is None:
        return None
    if not is_finite(value):
        raise SampleError(f"{name} must be a finite number or null, got {type(value).__name__} {shown(value)}.")
    return float(value)


def string(name: str, value: object) -> None:
    """Check that `value` is a `str`. `name` may include the place, such as "row 3: target"."""
    if not isinstance(value, str):
        raise SampleError(f"{name} must be a string, got {type(value).__name__} {shown(value)}.")


def unknown(what: str, name: object, allowed: Iterable[str], listed: str = "") -> str:
    """The error message for an unknown name: the closest known ones, and all of them; of more than 20, the three
    nearest, and where all of them are.

    >>> unknown("key", "treshold", ["threshold", "scale"])
    "unknown key 'treshold' (did you mean 'threshold'?); allowed: threshold, scale."
    """
    names = list(allowed)
    if not listed or len(names) <= _FEW:
        return f"unknown {what} {shown(name)}{nearest(str(name), names)}; allowed: {', '.join(names)}."
    return f"unknown {what} {shown(name)}; {three_of(str(name), names, listed)}."


def three_of(name: str, names: Collection[str], listed: str) -> str:
    """The three names of a long list that are nearest to `name`, and where all of them are, for an error message."""
    wanted = name.lower()

    def likeness(known: str) -> float:
        whole = known.lower()
        return max(
            difflib.SequenceMatcher(None, part, wanted).ratio() for part in (whole, re.split("[:/]", whole)[-1])
        )

    near = ", ".join(sorted(names, key=likeness, reverse=True)[:3])
    return f"the nearest are {near}; see {listed} for all {len(names)}"


def nearest(name: str, names: Sequence[str]) -> str:
    """The closest of some names as a question in brackets; empty if none is close."""
    near = difflib.get_close_matches(name, names, n=2)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def known(where: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    """Check that all names are among those allowed. The [`SampleError`] begins with `where`."""
    names = list(allowed)
    for name in given:
        if name not in names:
            raise SampleError(f"{where}: {unknown('argument', name, names)}")


def first_error(error: ValidationError) -> ErrorDetails:
    """The error to report: an unknown key before any other, because it is often a misspelled required one."""
    details = error.errors(include_url=False)
    return next((detail for detail in details if detail["type"] == "extra_forbidden"), details[0])


def one_sentence(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """[`first_error`] as one sentence, such as "generator.prompt: Input should be a valid string, got 3."

    Args:
        error (`pydantic.ValidationError`):
            The error.
        model (pydantic model class, *optional*):
            The validated model. With it, the sentence about an unknown key lists the allowed keys.
    """
    detail = first_error(error)
    steps = (str(step) for step in detail["loc"])
    place = ".".join(step if step.isidentifier() or step.isdecimal() else shown(step) for step in steps)
    message, kind = _message(detail).rstrip("."), detail["type"]
    if kind == "missing":
        return f"{place} is missing."
    if kind == "extra_forbidden":
        allowed = [] if model is None else _keys_at(model, detail["loc"][:-1])
        hint = nearest(str(detail["loc"][-1]), allowed)
        message = f"unknown key{hint}; allowed: {', '.join(allowed)}" if allowed else "unknown key"
    elif kind == "model_type":
        message = f"expected a mapping, got {shown(detail['input'])}"
    elif kind == "tuple_type":  # a file has only lists
        message = f"expected a list, got {shown(detail['input'])}"
    elif kind != "value_error" or (
        place
        and not isinstance(detail["input"], Mapping)
        and " got " not in message
        and shown(detail["input"]) not in message
    ):
        message += f", got {shown(detail['input'])}"
    return f"{place}: {message}." if place and not message.startswith(f"{place}=") else f"{message}."


def in_reply(error: ValidationError) -> str:
    """The first error in a model's reply, without the value, which the model has written, and without full stop.

    The words are part of later prompts and of their store keys: changing them makes stored replies unusable.
    """
    detail = error.errors(include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, detail["loc"])), _message(detail))))


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


def _message(detail: ErrorDetails) -> str:
    return detail["msg"].removeprefix("Value error, ")


def _keys_at(model: type[BaseModel], place: Iterable[str | int]) -> list[str]:
    """The keys that the model at a place inside `model` allows."""
    for step in place:
        if (field := model.model_fields.get(str(step))) is not None:
            model = next(_models(field.annotation), model)
    return list(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for member in get_args(annotation):
        yield from _models(member)
