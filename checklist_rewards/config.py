"""Configurations: pydantic models that state each setting once, with its type, limits, default and docstring.

    class Oven(Config):
        heat: Annotated[float, Ge(0), Le(1)] = 0.5
        \"\"\"How hot it is, from 0 to 1.\"\"\"

    >>> Oven(heat=2)  # doctest: +SKIP
    checklist_rewards.errors.SampleError: heat=2 is not allowed; it must be a number from 0 to 1.

Python passes keyword arguments; files are read with `load` (`files/documents.py`). Options of the command line and the
fields of the app are made from `model_fields`, whose descriptions are the docstrings, and from [`allowed`].

A value that is not allowed is one sentence ([`sentence`]) with the setting, the value and what is allowed. An error of
this package that a validator raises is raised unchanged by a constructor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import any_schema, is_instance_schema

from checklist_rewards.errors import ChecklistRewardsError, SampleError, shown
from checklist_rewards.validation import (
    finite,
    first_error,
    fraction,
    one_of,
    one_sentence,
    unknown,
    whole_number,
)

_PLAIN = (str, bool, int, float)
_PLAIN_FORMS = (*_PLAIN, Mapping, list, BaseModel)
_WORDS: dict[Any, str] = {
    **{str: "a string", bool: "True or False", Path: "a path"},
    **{Mapping: "a mapping", dict: "a mapping", Sequence: "a list", list: "a list", tuple: "a list"},
}

_SAID = ("value_error", "missing", "extra_forbidden")
"""Errors whose sentences are those of `one_sentence`."""


class _Unchecked:
    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return any_schema()


class _IsInstance:
    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return is_instance_schema(source)


_Kind = TypeVar("_Kind")
Unchecked = Annotated[_Kind, _Unchecked()]
"""The type of a setting that its user checks, such as a protocol."""
Object = Annotated[_Kind, _IsInstance()]
"""An object of a class that has no plain form."""
Made = Annotated[_Kind, WrapValidator(lambda value, check: check(value) if isinstance(value, _PLAIN_FORMS) else value)]
"""The settings of an object, as a configuration or a mapping; or the object itself, which its user checks."""


class Config(BaseModel):
    """Base of all configurations.

    Raises:
        ChecklistRewardsError: One sentence, for an unknown setting or a value that is not allowed.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        defer_build=True,  # at the first use, not at import
    )

    def __init__(self, /, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            detail = first_error(error)
            cause = detail.get("ctx", {}).get("error")
            if isinstance(cause, ChecklistRewardsError):
                raise cause from None
            if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
                raise SampleError(_unknown("argument", str(detail["loc"][0]), type(self))) from None
            raise SampleError(sentence(error, type(self))) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # validation of files does not call it

    older: ClassVar[Mapping[str, str]] = {}
    """Names of fields in files of earlier versions, with the names of today."""

    @model_validator(mode="before")
    @classmethod
    def _of_older_files(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is None or not isinstance(data, Mapping):  # only files have a context
            return data
        today = {name: cls.older[name] for name in data if name in cls.older and cls.older[name] not in data}
        return {today.get(name, name): value for name, value in data.items()}

    @field_validator("*", mode="wrap")
    @classmethod
    def _as_given(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        """A whole number stays an `int` where a `float` is expected: keys of the store are made from it."""
        checked = check(value)
        return value if type(value) is int and type(checked) is float else checked

    def replaced(self, **settings: Any) -> Self:
        """A copy with other settings."""
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | settings)


class Allowed(NamedTuple):
    """What the annotation of a setting allows."""

    kind: Any
    """The type of a plain value: `str`, `bool`, `int` or `float`; None if only objects are allowed."""
    choices: tuple[Any, ...]
    """All allowed values; empty if the type allows any."""
    optional: bool
    """Whether None is allowed."""
    others: tuple[Any, ...]
    """Other types that are allowed, such as `Path`."""
    at_least: Any
    at_most: Any

    def fault(self, name: str, value: Any) -> str:
        """Why a value is not allowed, as a sentence."""
        try:
            if self.choices:
                one_of(name, value, self.choices)
            elif self.kind is int:
                whole_number(name, value, at_least=self.at_least)
            elif self.kind is float and self.at_most is not None:
                fraction(name, value)
            elif self.kind is float:
                finite(name, value, at_least=self.at_least)
        except SampleError as error:
            return str(error)
        words = [_word(kind) for kind in (self.kind, *self.others) if kind]
        return f"{name}={shown(value)} is not allowed; it must be {' or '.join(dict.fromkeys(words))}."


@cache
def allowed(model: type[BaseModel], name: str) -> Allowed:
    """What the field `name` of a configuration allows."""
    field = model.model_fields[name]
    choices: list[Any] = []
    limits: list[Any] = []
    kinds: list[type] = []
    others: list[Any] = []
    optional = False
    for member, metadata in _members(field.annotation, tuple(field.metadata)):
        limits += metadata
        if get_origin(member) is Literal:
            choices += get_args(member)
            kinds.append(type(choices[-1]))
        elif member is bool:
            choices += (False, True)
            kinds.append(bool)
        elif member in _PLAIN:
            kinds.append(member)
        elif member is NoneType:
            optional = True
        else:
            others.append(get_origin(member) or member)
    at_least = next((limit.ge for limit in limits if isinstance(limit, Ge)), None)
    at_most = next((limit.le for limit in limits if isinstance(limit, Le)), None)
    return Allowed(kinds[0] if kinds else None, tuple(choices), optional, tuple(others), at_least, at_most)


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """The first error of a validation as one sentence: the place and the name, the value, and what is allowed.

    Args:
        error (`pydantic.ValidationError`):
            The error.
        model (pydantic model class):
            The validated model.
    """
    detail = first_error(error)
    owner, path, place = model, list(detail["loc"]), ""
    while path:
        name, *inside = path
        field = owner.model_fields.get(str(name))
        members = [] if field is None else [one for one, _ in _members(field.annotation)]
        inner = next((one for one in members if isinstance(one, type) and issubclass(one, Config)), None)
        if inner is None or not inside:
            break
        owner, path, place = inner, inside, f"{place}.{name}" if place else str(name)
    begin = f"{place}: " if place else ""
    if len(path) == 1 and detail["type"] == "extra_forbidden":
        return begin + _unknown("key", str(path[0]), owner)
    in_collection = len(path) > 1 and any(get_origin(one) in (dict, list, tuple) for one in members)
    if path and issubclass(owner, Config) and detail["type"] not in _SAID and field is not None and not in_collection:
        return begin + allowed(owner, str(path[0])).fault(str(path[0]), detail["input"])
    return one_sentence(error, model)


def _unknown(what: str, name: str, owner: type[BaseModel]) -> str:
    return unknown(what, name, owner.model_fields, f"help({owner.__module__}.{owner.__name__})")


def _word(kind: Any) -> str:
    return _WORDS.get(kind) or ("a mapping of settings" if issubclass(kind, Config) else str(kind.__name__))


def _members(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The members of a union, each with its `Annotated` metadata."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        yield from _members(inner, (*metadata, *more))
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member, metadata)
    else:
        yield annotation, metadata


def refuse_any(settings: Mapping[str, Any], why: str) -> None:
    """Refuse settings that would have no effect. Raises [`SampleError`] that names the first."""
    for name, value in settings.items():
        raise SampleError(f"{name}={value!r} has no effect {why}.")
