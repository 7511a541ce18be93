"""The page as one file: `page/` with its style, its modules and the data.

A page that is opened from a disk cannot import modules, so they are joined: each becomes a function that returns what
the module exports, in the order of their imports. Only the two forms that the page uses are supported, `import { a, b
} from "./module.js";` on one line, and `export` before `function`, `class`, `const` or `async function`.

The page may run this script and no other (Content-Security-Policy), load nothing, and connect to nothing.
"""

from __future__ import annotations

import base64
import gzip
import html
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import IO

from checklist_rewards.files.atomic import atomic_path

_IMPORT = re.compile(r"""^import \{ ([^}]+) \} from "\./([\w-]+\.js)";\n""", re.M)
_EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const) (\w+))", re.M)
_START = "main.js"
_ENCODED = 3 * 2**16
_BLOCK = 2**16


def write_page(path: Path, title: str, first: Iterable[str], rows: Iterable[str]) -> None:
    """Write the page with its data as one file. Raises [`SampleError`] if it cannot be written.

    Args:
        path (`Path`): The HTML file.
        title (`str`): Title of the page.
        first, rows (iterable of `str`): The data as pieces of one JSON text each: what the page shows first, which
            comes before the script, and the rows, which come last.
    """
    style, script = page_file("style.css"), joined_modules()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head, middle, tail = page_file("index.html").split("{{data}}")
    filled = {"{{title}}": html.escape(title), "{{policy}}": policy, "{{style}}": style, "{{script}}": script}
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(_filled(head, filled))
        _write_data(file, first)
        file.write(_filled(middle, filled))
        _write_data(file, rows)
        file.write(_filled(tail, filled))


def page_file(name: str) -> str:
    """A file of the page."""
    return files("checklist_rewards.ui").joinpath("page", name).read_text(encoding="utf-8")


def joined_modules() -> str:
    """All modules of the page as one script."""
    parts: list[str] = []
    done: set[str] = set()

    def add(name: str) -> None:
        if name in done:
            return
        done.add(name)
        source = page_file(name)
        for _, imported in _IMPORT.findall(source):
            add(imported)
        parts.append(_as_function(name, source))

    add(_START)
    return '"use strict";\n' + "\n".join(parts)


def _as_function(name: str, source: str) -> str:
    body = _IMPORT.sub(lambda match: f"const {{ {match[1]} }} = {_variable(match[2])};\n", source)
    exported = [match[1] for match in _EXPORT.findall(body)]
    body = _EXPORT.sub(r"\1", body)
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _variable(name: str) -> str:
    return name.removesuffix(".js").replace("-", "_") + "_module"


def _filled(template: str, values: dict[str, str]) -> str:
    return re.sub(r"\{\{\w+\}\}", lambda match: values[match[0]], template)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _write_data(file: IO[str], chunks: Iterable[str]) -> None:
    """Write JSON as gzip in base64, piece by piece."""
    rest = b""
    for piece in _compressed(chunks):
        rest += piece
        whole = len(rest) - len(rest) % 3
        if whole >= _ENCODED:
            file.write(base64.b64encode(rest[:whole]).decode())
            rest = rest[whole:]
    file.write(base64.b64encode(rest).decode())


def _compressed(chunks: Iterable[str]) -> Iterator[bytes]:
    sink = _Sink()
    with gzip.GzipFile(filename="", mode="wb", fileobj=sink, compresslevel=6, mtime=0) as packed:
        for block in _blocks(chunks):
            packed.write(block)
            yield sink.taken()
    yield sink.taken()


def _blocks(chunks: Iterable[str]) -> Iterator[bytes]:
    """The pieces joined to blocks of some size: one call of the compressor per block."""
    parts: list[str] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= _BLOCK:
            yield "".join(parts).encode()
            parts, size = [], 0
    yield "".join(parts).encode()


class _Sink:
    """A file that hands over what was written to it."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        written, self._written = bytes(self._written), bytearray()
        return written
