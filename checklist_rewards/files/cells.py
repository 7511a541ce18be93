"""The values of rows that other programs wrote: JSON or Python text inside a cell, and values inside other values.

>>> at({"reward_model": '{"rubrics": [1]}'}, "reward_model.rubrics")
[1]
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Any

_LONGEST_LITERAL = 1_000_000
_DEPTH = 5


def decoded(value: Any) -> Any:
    """A list or mapping that a cell holds as JSON, or as Python writes it ("[{'a': None}]"); other values unchanged.

    Python text is parsed, and never run.
    """
    while isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            inner = json.loads(value)
        except RecursionError:
            return value
        except ValueError:
            inner = _literal(value)
        if not isinstance(inner, list | dict):
            return value
        value = inner
    return value


def _literal(text: str) -> Any:
    if len(text) > _LONGEST_LITERAL:
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def at(value: Any, key: str) -> Any:
    """The value at a dotted key; None if there is none. A key that itself contains dots is found first; the empty key
    is the whole value."""
    if not key:
        return value
    value = decoded(value)
    if type(value) is not dict and not isinstance(value, Mapping):
        return None
    if key in value:
        return value[key]
    if "." not in key:
        return None
    outer, dot, inner = key.partition(".")
    while dot:
        if outer in value:
            return at(value[outer], inner)
        head, dot, inner = inner.partition(".")
        outer = f"{outer}.{head}"
    return None


def without(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A copy of a row without the value at a dotted key. What is left of the column around it is kept."""
    copy = dict(row)
    if key in copy:
        del copy[key]
        return copy
    outer, dot, inner = key.partition(".")
    while dot:
        if outer in copy:
            left = without(found, inner) if isinstance(found := decoded(copy[outer]), Mapping) else None
            copy.pop(outer)
            return copy | ({outer: left} if left else {})
        head, dot, inner = inner.partition(".")
        outer = f"{outer}.{head}"
    return copy


def places(value: Mapping[str, Any], prefix: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """All values of a row with their dotted keys, the outer ones first; text that holds lists or mappings decoded."""
    inner = [(f"{prefix}{name}", decoded(content)) for name, content in value.items()]
    yield from inner
    for name, content in inner:
        if depth > 1 and isinstance(content, Mapping):
            yield from places(content, f"{name}.", depth - 1)


def messages_in(value: Any) -> Any:
    """Chat messages that a cell holds as text; other values unchanged. Any other text is a prompt."""
    if not isinstance(value, str) or value.lstrip()[:1] != "[":
        return value
    inner = decoded(value)
    chat = (
        isinstance(inner, list)
        and bool(inner)
        and all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in inner)
    )
    return inner if chat else value
