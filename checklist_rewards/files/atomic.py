"""Files that are written completely or not at all.

A file is written under a hidden name in the same folder and renamed at the end. After an error, no new file exists and
an old one is unchanged. The new file has the permissions of the old one. Of a symbolic link, the target is replaced or
created, and the link stays. A device or a pipe is refused. A process that is killed leaves its hidden file behind; the
next process that writes the same file removes it. Commands call [`check_writable`] before they do anything.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError

if sys.platform != "win32":
    import fcntl


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a new, empty file in the folder of `path`. It replaces `path` when the block ends without an error and is
    deleted otherwise.

    Missing folders are created.

    Raises [`SampleError`] if `path` cannot be written. An `OSError` of the block, such as that of a full disk, names
    `path` unless it names another file.
    """
    path = Path(path).expanduser()
    check_place(path)
    try:
        path = written_path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        temporary, lock = _temporary(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that form a loop, before Python 3.13
        reason = getattr(error, "strerror", None) or error
        raise SampleError(f"{path}: cannot be written ({reason}).") from error
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk: no system call names the file
        raise
    finally:
        temporary.unlink(missing_ok=True)
        os.close(lock)


def written_path(path: Path) -> Path:
    """The file that is written: the target of a symbolic link, else the path itself."""
    return path.resolve() if path.is_symlink() else path


def check_place(path: Path, *, folder: bool = False) -> None:
    """Check that a path can become a file, or a folder, without trying to write it.

    Raises:
        SampleError: For a path of the wrong type, a device, a read-only file, or a link that leads to itself.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # also a link to a file that does not exist yet
        return
    except OSError as error:  # a link that leads to itself, a file in place of a folder, a name that is too long
        raise SampleError(f"{path}: cannot be written ({error.strerror or error}).") from None
    if folder and not stat.S_ISDIR(mode):
        raise SampleError(f"{path}: cannot be written, it is a file, expected a folder.")
    if not folder and stat.S_ISDIR(mode):
        raise SampleError(f"{path}: cannot be written, it is a folder.")
    if not folder and not stat.S_ISREG(mode):
        raise SampleError(f"{path}: cannot be written, it is a device or a pipe, expected a file.")
    if not folder and not os.access(path, os.W_OK):  # the new file would have its permissions
        raise SampleError(f"{path}: cannot be written, it is read-only.")


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Check that a file or folder can be written, and leave nothing behind.

    Raises:
        SampleError: As [`check_place`], or if the folder of the path, or the first one above it that exists, is not
            writable.
    """
    check_place(path, folder=folder)
    target = written_path(path)
    place = target if folder else target.parent
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise SampleError(f"{path}: cannot be written ({place}: {error.strerror or error}).") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8. Raises [`SampleError`] if it cannot be written.

    Half a surrogate pair is not valid UTF-8 and is written as its escape, which JSON reads as the same character.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON document. Raises [`SampleError`] if it cannot be written."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def replace_folder(finished: Path, output: Path, replaced: Path) -> None:
    """Move a finished folder to its place. A folder that is there goes to `replaced`, and comes back if this fails."""
    if output.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        output.replace(replaced)
    try:
        finished.replace(output)
    except OSError:
        if replaced.exists():
            replaced.replace(output)
        raise


def _temporary(path: Path) -> tuple[Path, int]:
    """Create a temporary file in the folder of `path`; return it and the descriptor that locks it until the process
    ends."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        if mode is not None:
            temporary.chmod(mode)
        if locked(descriptor) is not False and temporary.exists():
            return temporary, descriptor
        os.close(descriptor)  # another process removed it as abandoned before it was locked


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files of processes that were killed while writing `path`."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        try:
            descriptor = os.open(temporary, os.O_RDWR)
        except OSError:  # already removed, or owned by another user
            continue
        try:
            if locked(descriptor):
                temporary.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def locked(descriptor: int, *, wait: bool = False) -> bool | None:
    """Try to lock a file: True on success, False if another process holds the lock and this one does not `wait`, None
    if locking is not supported, as on Lustre without `-o flock`."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
