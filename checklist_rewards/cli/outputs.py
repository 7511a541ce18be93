"""The check of output paths, the same for all commands: no output replaces a file that the command reads or writes,
and a folder that is missing is said to be created."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from checklist_rewards.errors import SampleError
from checklist_rewards.files.ranks import rank_of
from checklist_rewards.ui.records import RecordFile

logger = logging.getLogger(__name__)


def check_outputs(
    inputs: Iterable[Path | None], *, folders: Mapping[str, Path | None] | None = None, **files: Path | None
) -> None:
    """Check the output paths of a command before it does anything.

    Args:
        inputs (iterable of `Path`):
            The files that the command reads. With a reward log, the command also reads the logs of the other ranks.
        folders (mapping, *optional*):
            Output folders by option, such as `{"--plots": plots}`.
        **files (`Path`, *optional*):
            Output files by the name of their option, such as `json=json`; None for an option that is not set.

    Raises:
        SampleError: If an output has the wrong type, is an input, or has the path of another output.
    """
    read = [path for path in inputs if path is not None]
    written: list[tuple[str, Path]] = []
    for option, path in (folders or {}).items():
        if path is not None:
            if path.exists() and not path.is_dir():
                raise SampleError(f"{option} {path} is a file, expected a folder.")
            written.append((option, path))
    for name, path in files.items():
        if path is None:
            continue
        option = f"--{name}"
        if path.is_dir():
            raise SampleError(f"{option} {path} is a folder, expected a file name.")
        if any(_same(path, other) for other in read):
            raise SampleError(f"{option} {path} is an input file of this command; choose a different file name.")
        for log in read:
            if rank_of(path, log) is not None and _is_log(log):
                raise SampleError(
                    f"{option} {path} has the name of another rank's log of {log}, which is read with it; choose a "
                    "different file name."
                )
        for other_option, other in written:
            if _same(path, other):
                raise SampleError(
                    f"{option} {path} is also {other_option}; choose a different file name for one of them."
                )
        written.append((option, path))
    for option, path in written:
        if not path.parent.exists():
            logger.warning("%s %s: the folder %s does not exist and is created.", option, path, path.parent)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def _is_log(path: Path) -> bool:
    try:
        return RecordFile(path).kind() == "rewards"
    except SampleError:  # another kind of file, which its command refuses or reads alone
        return False
