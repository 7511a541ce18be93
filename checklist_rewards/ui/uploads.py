"""Files that the browser sends: text of a bounded size, checked before it appears in the project folder."""

from __future__ import annotations

import asyncio
import codecs
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.files.rows import read_rows
from checklist_rewards.ui.guard import TooLarge
from checklist_rewards.ui.project import DOCUMENTS, Project

FOLDER = "uploads"
MAX_UPLOAD = 64 * 2**20
ALLOWED = (".jsonl", ".csv", *DOCUMENTS)


async def receive(project: Project, name: Any, parts: AsyncIterator[bytes], limit: int = MAX_UPLOAD) -> str:
    """Save a file that the browser sends in the folder `uploads`.

    Args:
        project ([`Project`]): The project.
        name (`str`): The name of the file, without folders.
        parts (async iterator of `bytes`): Its content.
        limit (`int`, *optional*): Most bytes.

    Returns:
        `str`: The name of the file in the project.

    Raises:
        SampleError: If the name is taken or of another kind, or the content is not UTF-8 text or cannot be read.
        TooLarge: If the content is larger than the limit.
    """
    if not isinstance(name, str) or "/" in name or Path(name).suffix.lower() not in ALLOWED:
        raise SampleError(f"{name!r:.120} cannot be uploaded; allowed are text files: {', '.join(ALLOWED)}.")
    saved = f"{FOLDER}/{name}"
    path = project.path(saved)
    if path.exists():
        raise SampleError(f"{saved} exists; rename the file, or choose the one in the project.")
    with tempfile.TemporaryDirectory() as folder:
        received = Path(folder, name)
        await _write(received, parts, limit, name)
        try:
            await asyncio.to_thread(_reader(received), received)
        except ChecklistRewardsError as error:
            raise SampleError(str(error).replace(str(received), name)) from None
        with atomic_path(path) as temporary:
            shutil.copyfile(received, temporary)
    return saved


async def _write(path: Path, parts: AsyncIterator[bytes], limit: int, name: str) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = 0
    with path.open("wb") as file:
        try:
            async for part in parts:
                size += len(part)
                if size > limit:
                    raise TooLarge(f"{name} is larger than {limit:,} bytes; copy it into the project folder instead.")
                if "\0" in decoder.decode(part):
                    raise SampleError(f"{name} is not a text file.")
                file.write(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise SampleError(f"{name} is not a text file in UTF-8.") from None


def _reader(path: Path) -> Callable[[Path], object]:
    suffix = path.suffix.lower()
    if suffix == ".md":
        return read_text
    if suffix in DOCUMENTS:
        return lambda file: read_value(read_text(file), file)
    return lambda file: sum(1 for _ in read_rows(file))
