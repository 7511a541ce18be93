"""Settings classes: what the fields of a dataclass allow, and the docstrings under them.

    @dataclass(frozen=True, kw_only=True)
    class Rules:
        threshold: Annotated[float, Ge(0), Le(1)] = 0.6
        \"\"\"Lowest P(yes), from 0 to 1, that counts as yes.\"\"\"

        def __post_init__(self) -> None:
            check_fields(self)

    >>> Rules(threshold=2)  # doctest: +SKIP
    checklist_rewards.errors.SampleError: threshold=2 is not allowed; it must be a number from 0 to 1.

The class is the only place that states a setting. Config files and command-line options are generated from
[`settings_of`] and [`field_docs`].
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Le

from checklist_rewards.validation import finite, fraction, one_of, whole_number

_PLAIN = (str, bool, int, float)


@dataclass(frozen=True)
class Setting:
    """What the annotation of one field allows."""

    default: Any
    kind: Any
    """The type of a value in a file or on the command line: `str`, `bool`, `int` or `float`; None if the field allows
    only objects."""
    choices: tuple[Any, ...]
    """All allowed values; empty if the type allows any."""
    optional: bool
    """Whether None is allowed."""
    objects: bool
    """Whether values of other types, such as a `Path`, are allowed as well."""
    at_least: Any = None
    at_most: Any = None

    def check(self, name: str, value: Any) -> None:
        """Raise [`SampleError`] if `value` is not allowed. Objects and strings without choices are not checked."""
        if (value is None and self.optional) or (self.objects and not isinstance(value, _PLAIN)):
            return
        if self.choices:
            one_of(name, value, self.choices)
        elif self.kind is int:
            whole_number(name, value, at_least=self.at_least)
        elif self.kind is float and self.at_most is not None:
            fraction(name, value, at_least=self.at_least)
        elif self.kind is float:
            finite(name, value, at_least=self.at_least)


@cache
def settings_of(owner: type) -> dict[str, Setting]:
    """The fields of a dataclass by name, in their order."""
    hints = get_type_hints(owner, include_extras=True)
    return {field.name: _setting(hints[field.name], field.default) for field in fields(owner)}


@cache
def field_docs(owner: type) -> dict[str, str]:
    """The docstring under each field of a class, without those of its bases.

    Empty if Python has no source of the class, as in a frozen application.
    """
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except OSError:
        return {}
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def check_fields(settings: Any) -> None:
    """Check the fields of a dataclass. Raises [`SampleError`] for the first value that its annotation forbids."""
    owner: type = type(settings)
    for name, setting in settings_of(owner).items():
        setting.check(name, getattr(settings, name))


def _setting(annotation: Any, default: Any) -> Setting:
    members = list(_members(annotation))
    choices: list[Any] = []
    limits: dict[str, Any] = {}
    kinds: list[type] = []
    for member, metadata in members:
        if get_origin(member) is Literal:
            choices += get_args(member)
            kinds.append(type(choices[-1]))
        elif member is bool:
            choices += (False, True)
            kinds.append(bool)
        elif member in _PLAIN:
            kinds.append(member)
        for limit in metadata:
            limits |= {"at_least": limit.ge} if isinstance(limit, Ge) else {}
            limits |= {"at_most": limit.le} if isinstance(limit, Le) else {}
    optional = any(member is NoneType for member, _ in members)
    return Setting(
        default, kinds[0] if kinds else None, tuple(choices), optional, len(kinds) + optional < len(members), **limits
    )


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
