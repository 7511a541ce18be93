"""Values in the cells of files: read as they are meant, and written so that they are read as they were.

- In files of other programs, a cell holds JSON, or Python text, or values inside other values: [`decoded`], [`at`].
- A cell of a CSV file is text. A conversation in it is read as one ([`from_csv`]), and every other text stays text. A
  list or mapping is written as JSON ([`as_text`]), and a text that would be read as another value in quotes
  ([`csv_text`]).
- A Parquet column without a type that all its values have is JSON text ([`as_cell`], [`from_cell`]); its field has the
  metadata [`JSON_TEXT`].

NaN and infinities become null in JSON. A value that JSON cannot hold raises a [`SampleError`].

>>> at({"reward_model": '{"rubrics": [1]}'}, "reward_model.rubrics")
[1]
"""

from __future__ import annotations

import ast
import codecs
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from checklist_rewards.errors import SampleError
from checklist_rewards.messages import SAYING

if TYPE_CHECKING:
    import pyarrow as pa

MAX_DEPTH = 100
"""Levels of lists and mappings in a value. Parquet's writer and reader call themselves for each."""
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a file in UTF-16 begins."""
JSON_TEXT = {b"checklist_rewards": b"json"}
"""Field metadata of a column that is stored as JSON text; see [`as_cell`]."""
_LONGEST_LITERAL = 1_000_000
_DEPTH = 5
_BETWEEN = re.compile(
    r"""(?s)'(?:\\.|[^'\\])*(?:'|\\?\Z)|"(?:\\.|[^"\\])*(?:"|\\?\Z)|(?P<gap>(?<=['"}])\s+(?=['"{]))"""
)
"""Strings of Python text, and the gap between two entries without a comma: pandas writes a list that it has read from
Parquet as NumPy does. Python would join two strings. A string without an end is one to the end of the text, or
each of its quotation marks would be searched for an end."""


def decoded(value: Any) -> Any:
    """A list or mapping that a cell holds as JSON, or as Python ("[{'a': None}]") or NumPy ("['a' 'b']") writes it;
    other values unchanged.

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
        return ast.literal_eval(_BETWEEN.sub(lambda match: ", " if match["gap"] else match[0], text.strip()))
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
    return next((at(value[outer], inner) for outer, inner in _divided(key) if outer in value), None)


def without(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A copy of a row without the value at a dotted key. What is left of the column around it is kept."""
    copy = dict(row)
    if key in copy:
        del copy[key]
        return copy
    for outer, inner in _divided(key):
        if outer in copy:
            found = decoded(copy.pop(outer))
            left = without(found, inner) if isinstance(found, Mapping) else None
            return copy | ({outer: left} if left else {})
    return copy


def _divided(key: str) -> Iterator[tuple[str, str]]:
    """The column and the key inside it that a dotted key may mean, the shortest column first."""
    for dot in re.finditer(r"\.", key):
        yield key[: dot.start()], key[dot.end() :]


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
    return inner if isinstance(inner, list) and inner and all(map(_is_message, inner)) else value


def _is_message(value: Any) -> bool:
    """Whether a value is a chat message: it has a role, and says something. ShareGPT names both differently."""
    if not isinstance(value, dict):
        return False
    says = any(name in value for name in SAYING)
    return (isinstance(value.get("role"), str) and says) or {"from", "value"} <= value.keys()


def only_text(value: Any, where: str) -> Any:
    """The answer in a cell of lm-evaluation-harness, a list (`filtered_resps`) or a list of lists (`resps`) with one
    text; other values unchanged. Raises [`SampleError`] for several texts."""
    texts = value
    while isinstance(texts, list) and texts and all(isinstance(inner, list) for inner in texts):
        texts = [text for inner in texts for text in inner]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        return value
    if len(texts) > 1:
        raise SampleError(f"{where} has {len(texts)} answers, expected one; write one row per answer.")
    return texts[0]


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


def as_json(value: Any) -> str:
    """Encode a value as one line of JSON. NaN and infinities become null.

    Raises [`SampleError`] for a value that cannot be represented in JSON.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # an unpaired surrogate: only its escape is valid UTF-8
        text = json.dumps(json.loads(text))
    return text


def as_cell(value: Any) -> str:
    """Encode a value of a column of JSON text. [`from_cell`] decodes it.

    A string is kept as it is unless it is valid JSON itself, so that texts stay readable.
    """
    if not isinstance(value, str):
        return as_json(value)
    try:
        value.encode()
        json.loads(value)
    except (UnicodeEncodeError, RecursionError):
        return as_json(value)
    except ValueError:
        return value
    return as_json(value)


def from_cell(text: str) -> Any:
    """Decode what [`as_cell`] encoded."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def check_depth(value: Any) -> None:
    """Raises [`SampleError`] for a value with more levels of lists and mappings than a file can have."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, Mapping | list | tuple)
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
        ]
        if not level:
            return
    raise SampleError(f"a value has more than {MAX_DEPTH} levels of lists and mappings.")


def as_text(value: Any) -> str:
    """Convert a value to the text of one cell: a string unchanged, a list or mapping as JSON, null as ""."""
    if isinstance(value, str):
        return value
    text = as_json(value)
    if isinstance(value, Mapping | list | tuple):
        return text
    plain = json.loads(text)
    return plain if isinstance(plain, str) else "" if plain is None else text


def json_reader(type: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that decodes the values of Arrow's JSON type, which are read as text, inside values of `type`. None
    if `type` contains no JSON type.

    `datasets` uses the JSON type for lists whose mappings have different keys.
    """
    import pyarrow as pa

    if isinstance(type, pa.JsonType):
        return lambda value: None if value is None else json.loads(value)
    if isinstance(type, pa.StructType):
        readers = {field.name: reader for field in type if (reader := json_reader(field.type)) is not None}
        if not readers:
            return None
        return lambda value: (
            value and {name: readers[name](entry) if name in readers else entry for name, entry in value.items()}
        )
    is_list = pa.types.is_nested(type) and hasattr(type, "value_type")
    reader = json_reader(type.value_type) if is_list else None
    return None if reader is None else lambda value: value and [reader(entry) for entry in value]


def _plain(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "tolist"):  # numpy
        return value.tolist()
    raise SampleError(f"a value of type {type(value).__name__} cannot be written as JSON: {value!r:.60}.")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value if value is None or isinstance(value, str | int) else _finite(_plain(value))
