"""Prompts by their content: what to log of them, and a key to group completions by.

A prompt is a string or chat messages, whose blocks may hold images: PIL images, bytes, arrays. These have no JSON, and
their `repr` holds a memory address, which differs between two completions of one prompt and between two ranks.

    >>> described([{"type": "text", "text": "What is this?"}, {"type": "image", "image": b"GIF89a"}])
    [{'type': 'text', 'text': 'What is this?'}, {'type': 'image', 'image': '<bytes 6, sha256 610f5ae4d76e3326>'}]
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from typing import Any

_SHOWN_DIGITS = 16


def described(value: Any) -> Any:
    """A prompt, or a part of one, as JSON has it.

    Args:
        value: strings, numbers, mappings and sequences are kept. Everything else becomes a short text: its type, its
            size where that is known, and the first 64 bits of the SHA-256 of its content. Objects without a content
            (they cannot be pickled) are described by their type alone.

    Returns:
        A value that `json.dumps` accepts. Equal content gives equal values, in every process.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): described(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [described(part) for part in value]
    name, *size = _kind(value)
    try:
        size.append(f"sha256 {hashlib.sha256(_content(value)).hexdigest()[:_SHOWN_DIGITS]}")
    except Exception:  # an image that cannot be decoded, an open file: whatever it raises, training goes on
        pass
    return f"<{name}{' ' if size else ''}{', '.join(size)}>"


def content_key(value: Any) -> str:
    """A hash that is equal for equal prompts, whatever objects they are and on whichever rank."""
    return hashlib.sha256(json.dumps(described(value), sort_keys=True).encode()).hexdigest()


def _kind(value: Any) -> list[str]:
    if isinstance(value, bytes | bytearray):
        return ["bytes", str(len(value))]
    if _is_image(value):
        return ["image", f"{value.width}x{value.height} {value.mode}"]
    shape = getattr(value, "shape", None)
    return [type(value).__name__, *([] if shape is None else [f"{tuple(shape)} {getattr(value, 'dtype', '')}"])]


def _content(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if _is_image(value):  # not its pickle, which has the name of the file that it came from
        return repr((value.mode, value.size, value.getpalette())).encode() + value.tobytes()
    return pickle.dumps(value)


def _is_image(value: Any) -> bool:
    """Whether it is an image of PIL, which is an optional package."""
    return all(hasattr(value, name) for name in ("mode", "size", "width", "height", "getpalette", "tobytes"))
