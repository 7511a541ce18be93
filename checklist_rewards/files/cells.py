"""The values of rows that other programs wrote: JSON or Python text inside a cell, and values inside other values.

>>> at({"reward_model": '{"rubrics": [1]}'}, "reward_model.rubrics")
[1]
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

SAYING = (
    "content", "tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "thought", "thoughts"
)  # fmt: skip
"""Fields of a chat message with what it says."""
_LONGEST_LITERAL = 1_000_000
_DEPTH = 5
_BETWEEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?P<gap>\}\s+\{)""")
"""Strings of Python text, and the gap between two mappings without a comma."""


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
    """Chat messages that a cell holds as text; other values unchanged. Any other text, such as another list in JSON,
    is a prompt or an answer."""
    if not isinstance(value, str) or value.lstrip()[:1] != "[" or not ("role" in value or "from" in value):
        return value
    inner = decoded(value)
    if inner is value:  # pandas writes what it has read from Parquet as NumPy does, without commas
        inner = _literal(_BETWEEN.sub(lambda match: "}, {" if match["gap"] else match[0], value))
    return inner if isinstance(inner, list) and inner and all(map(_is_message, inner)) else value


def _is_message(value: Any) -> bool:
    """Whether a value is a chat message: it has a role, and says something. ShareGPT names both differently."""
    if not isinstance(value, dict):
        return False
    says = any(name in value for name in SAYING)
    return (isinstance(value.get("role"), str) and says) or {"from", "value"} <= value.keys()


def from_csv(text: str) -> Any:
    """The value of a CSV cell: chat messages are decoded, and anything else stays text. See [`csv_text`]."""
    if text[:1] == text[-1:] == '"' and "[" in text:
        try:
            inner = json.loads(text)
        except ValueError:
            return text
        return inner if isinstance(inner, str) and from_csv(inner) is not inner else text
    return messages_in(text)


def csv_text(text: str) -> str:
    """A text as a CSV cell. One that would be read as chat messages, or as another text, is quoted as JSON."""
    return text if from_csv(text) is text else json.dumps(text)
