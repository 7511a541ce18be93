"""Keys of prompts: prompts are described and hashed by content, for logs and to group the completions of a prompt.

A prompt is a string or chat messages, which may contain images: PIL images, bytes, arrays. These cannot be written as
JSON, and their `repr` contains a memory address, which differs between completions of one prompt and between ranks.

    >>> described([{"type": "text", "text": "What is this?"}, {"type": "image", "image": b"GIF89a"}])
    [{'type': 'text', 'text': 'What is this?'}, {'type': 'image', 'image': '<bytes 6, sha256 610f5ae4d76e3326>'}]

The images of a row may also be outside of its prompt, in a column. Two rows with the same words and different images
are two prompts, so everything that compares prompts uses [`prompt_identity`].
"""

from __future__ import annotations

import hashlib
import json
import pickle
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.images import Image, is_logged, pixel_bytes

_SHOWN_DIGITS = 16


def worded(question: str) -> str:
    """What questions are compared by: white space and the form of Unicode do not make another question."""
    return " ".join(unicodedata.normalize("NFC", question).split())


def described(value: Any, *, paths: bool = True, describe: Callable[[Any], Any] | None = None) -> Any:
    """Convert a prompt, or a part of it, to JSON-compatible values. Equal content gives equal values in every process.

    Args:
        value:
            Strings, numbers, mappings and sequences are kept. Any other object becomes a short text: its type, its
            size if known, and the first 64 bits of the SHA-256 of its content; its type only, if it cannot be pickled.
            An image that the judge sees becomes its hash and its path.
        paths (`bool`, *optional*, defaults to `True`):
            Whether to describe images with their paths, which may differ for equal images.
        describe (`Callable`, *optional*):
            Describes an image that the judge sees, or another object. Defaults to the above.

    Raises:
        SampleError: Without `paths`, for a PIL image that cannot be decoded.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping) and (paths or not is_logged(value)):
        return {str(key): described(part, paths=paths, describe=describe) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [described(part, paths=paths, describe=describe) for part in value]
    return _description(value, paths) if describe is None else describe(value)


def _description(value: Any, paths: bool) -> Any:
    if isinstance(value, Image):
        return {"hash": value.key, **({"path": value.source} if paths and value.source is not None else {})}
    if isinstance(value, Mapping):
        return {"hash": value["hash"]}
    name, *size = _kind(value)
    try:
        digest = hashlib.sha256()
        for part in _content(value):
            digest.update(part)
        size.append(f"sha256 {digest.hexdigest()[:_SHOWN_DIGITS]}")
    except MemoryError:
        raise
    except Exception as error:  # decoding an image or pickling may raise anything; training must continue
        if not paths and _is_image(value):  # a key without the pixels would be that of other images too
            raise SampleError(f"an image of a prompt cannot be decoded: {error}") from error
    return f"<{name}{' ' if size else ''}{', '.join(size)}>"


def content_key(value: Any) -> str:
    """Hash of a prompt's content, equal for equal prompts in every process. Raises [`SampleError`] for an image that
    cannot be decoded."""
    return hashlib.sha256(json.dumps(described(value, paths=False), sort_keys=True).encode()).hexdigest()


def prompt_identity(prompt: Any, images: Iterable[Any] = ()) -> Any:
    """What a prompt, a string or chat messages, is compared by: without images the prompt itself, which may be of any
    type; with the images of its row a `str` of the [`content_key`] of the prompt and the keys of the images. An image
    is an [`Image`], one in a log, or the value of a cell, which is compared by its content and not read.
    """
    keys = [image_key(image) for image in images]
    return " ".join([content_key(prompt), *keys]) if keys else prompt


def image_key(image: Any) -> str:
    """The hash of an image, or of the content of a cell; see [`prompt_identity`]."""
    if isinstance(image, Image):
        return image.key
    return image["hash"] if is_logged(image) else content_key(image)


def _kind(value: Any) -> list[str]:
    if isinstance(value, bytes | bytearray | memoryview):
        return ["bytes", str(memoryview(value).nbytes)]
    if _is_image(value):
        return ["image", f"{value.width}x{value.height} {value.mode}"]
    shape = getattr(value, "shape", None)
    return [type(value).__name__, *([] if shape is None else [f"{tuple(shape)} {getattr(value, 'dtype', '')}"])]


def _content(value: Any) -> Iterable[bytes]:
    if isinstance(value, bytes | bytearray | memoryview):
        return [bytes(value)]
    if _is_image(value):  # a pickle would include the name of the image file
        return chain([repr((value.mode, value.size, value.getpalette())).encode()], pixel_bytes(value))
    if hasattr(value, "detach"):  # a tensor, whose pickle differs between equal ones
        value = value.detach().cpu()
        value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
    if hasattr(value, "__array_interface__"):  # a pickle would include the order in memory
        value = value.copy(order="C")
    return [pickle.dumps(value)]


def _is_image(value: Any) -> bool:
    """Whether the value is a PIL image, without importing PIL, which is an optional dependency."""
    return all(hasattr(value, name) for name in ("mode", "size", "width", "height", "getpalette", "tobytes"))
