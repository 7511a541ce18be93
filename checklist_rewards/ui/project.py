"""The project folder of the app: the only files that the page can read or write.

Names are relative to the folder and use "/". A name that leaves the folder, through "..", an absolute path or a
symbolic link, is refused, and so are hidden files such as `.env` or `.git/config` and files of other kinds. A symbolic
link counts as the file that it leads to. [`Project.own`] is for the files of the app itself, which are never links.
"""

from __future__ import annotations

import gzip
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.rows import FORMATS

READABLE = (*FORMATS, ".json", ".yaml", ".yml", ".md")
LARGEST = 512 * 2**20
"""Most bytes of a file that the page can open."""
_MOST_LISTED = 2000
_LONGEST = 255
"""Longest name of a file or folder, in bytes."""
_DEEPEST = 6
EXAMPLE = "example"
_PLACES = {"checklist.json.gz": "checklists/example.json"}
"""The folder of a project into which the packaged example is copied."""
_FOLDERS = {"checklists": "checklist", "prompts": "prompt", "pipelines": "pipeline", "judges": "judge"}
_KINDS = {"rewards": "reward log", "improvement": "tested changes", "unreadable": "cannot be read"}
_AGES = (("year", 31557600), ("month", 2629800), ("day", 86400), ("hour", 3600), ("minute", 60))


def _large(size: int) -> str:
    unit, one = ("B", 1) if size < 1e3 else ("kB", 1e3) if size < 1e6 else ("MB", 1e6)
    return f"{size / one:.{0 if one == 1 or size / one >= 100 else 1}f} {unit}"


def _ago(seconds: float) -> str:
    for unit, length in _AGES:
        if (number := int(seconds // length)) > 0:
            return f"{number} {unit}{'s' * (number > 1)} ago"
    return "just now"


class OutsideError(SampleError):
    """A name that the page may not open."""


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file of the project."""

    name: str
    size: int
    changed: float
    """Time of the last change, in seconds since 1970."""

    def shown(self) -> dict[str, Any]:
        """The file as the first page lists it: also how `large` it is, and how long `ago` it was changed."""
        return {**asdict(self), "large": _large(self.size), "ago": _ago(time.time() - self.changed)}


@dataclass(frozen=True)
class Project:
    """A project folder."""

    folder: Path
    """Without symbolic links."""

    @classmethod
    def at(cls, folder: str | Path) -> Project:
        """The project in an existing folder. Raises [`SampleError`]."""
        path = Path(folder)
        if not path.is_dir():
            raise SampleError(f"{folder} is not a folder; give the folder that holds the project's files.")
        return cls(path.resolve())

    def path(self, name: str) -> Path:
        """The path of a name in the folder, which need not exist.

        Raises:
            OutsideError: If the name leaves the folder, is hidden, or is of another kind.
        """
        if not isinstance(name, str):
            raise OutsideError(f"the name of a file must be a text, got {type(name).__name__}.")
        parts = name.split("/")
        bad = not name or "\\" in name or "\0" in name or any(part in ("", "..") or part[0] == "." for part in parts)
        bad = bad or any(len(part.encode(errors="surrogatepass")) > _LONGEST for part in parts)
        if bad or ":" in parts[0]:
            raise OutsideError(f"{name!r:.120} is not the name of a file of the project folder.")
        path = self.folder.joinpath(*parts)
        if path.suffix.lower() not in READABLE:
            raise OutsideError(f"{name!r:.120}: files of this kind are not opened; allowed: {', '.join(READABLE)}.")
        real = self.real(path)
        if real is None or not real.is_relative_to(self.folder):
            raise OutsideError(f"{name!r:.120} leads out of the project folder.")
        led = real.relative_to(self.folder)
        if led.suffix.lower() not in READABLE or any(part[0] == "." for part in led.parts):
            raise OutsideError(f"{name!r:.120} leads to {led.as_posix()!r:.120}, which is not opened.")
        return path

    def target(self, name: str) -> Path:
        """The path of a file that is written, which need not exist; see [`path`].

        Raises:
            OutsideError: Also if it, or a folder on its way, is a symbolic link: what it leads to would be replaced.
        """
        return self._unlinked(self.path(name), name)

    def own(self, name: str) -> Path:
        """The path of a hidden file that the app writes for itself, such as the log of a job. Raises [`OutsideError`]
        as [`target`] does."""
        return self._unlinked(self.folder.joinpath(*name.split("/")), name)

    def _unlinked(self, path: Path, name: str) -> Path:
        if not self.holds(path):
            raise OutsideError(f"{name!r:.120} leads out of the project folder.")
        if self.real(path) != path:
            raise OutsideError(f"{name!r:.120} is or lies behind a symbolic link, through which nothing is written.")
        return path

    def existing(self, name: str) -> Path:
        """The path of an existing file. Raises [`SampleError`] if there is none, or if it is too large."""
        path = self.path(name)
        if not path.is_file():
            raise SampleError(f"{name}: not found in the project folder.")
        if (size := path.stat().st_size) > LARGEST:
            raise SampleError(f"{name} has {size:,} bytes; the app opens files of up to {LARGEST:,} bytes.")
        return path

    def holds(self, path: str | Path) -> bool:
        """Whether a path, with its symbolic links followed, lies in the folder."""
        real = self.real(path)
        return real is not None and real.is_relative_to(self.folder)

    def public(self, message: str) -> str:
        """A message with names of the project instead of paths."""
        return message.replace(f"{self.folder}{os.sep}", "")

    @staticmethod
    def real(path: str | Path) -> Path | None:
        """A path with its symbolic links followed; None for a loop of links and a name that no file can have."""
        try:
            return Path(path).resolve()
        except (OSError, RuntimeError, ValueError):  # ValueError: half a surrogate pair
            return None

    def files(self) -> list[ProjectFile]:
        """The files that the page can open, by name."""
        return sorted(islice(self._walk(), _MOST_LISTED), key=lambda file: file.name)

    def _walk(self) -> Iterator[ProjectFile]:
        for folder, below, names in os.walk(self.folder):
            place = Path(folder).relative_to(self.folder)
            below[:] = sorted(name for name in below if name[0] != "." and len(place.parts) < _DEEPEST)
            for name in map(place.joinpath, sorted(names)):
                try:
                    status = self.path(name.as_posix()).stat()
                except (OutsideError, OSError):
                    continue
                if stat.S_ISREG(status.st_mode):  # reading a named pipe would never end
                    yield ProjectFile(name.as_posix(), status.st_size, status.st_mtime)


def write_example(project: Project) -> dict[str, Any]:
    """Copy the packaged example into the folder `example` of a project, and its checklist into the library. Files that
    are there are kept. The result is the names of the `files`, and the one to `open` first."""
    names = []
    for packed in sorted(files("checklist_rewards.ui").joinpath(EXAMPLE).iterdir(), key=lambda entry: entry.name):
        if not packed.name.endswith(".gz"):
            continue
        names.append(_PLACES.get(packed.name, f"{EXAMPLE}/{packed.name.removesuffix('.gz')}"))
        path = project.target(names[-1])
        if not path.exists():
            with atomic_path(path) as temporary:
                temporary.write_bytes(gzip.decompress(packed.read_bytes()))
    return {"files": names, "open": f"{EXAMPLE}/rewards.jsonl"}


def folder_of(name: str) -> str:
    """The folder of a file of the project; "" for the project itself."""
    return name.rpartition("/")[0]


def opened(file: Mapping[str, Any], logs: Mapping[str, str]) -> dict[str, Any]:
    """What the list of files shows of a file with a `name`, a `kind` and the `columns` of rows: `shown`, the name of
    the kind; and `actions`, the views that open the file, as pairs of a text and an address. The first of them is that
    of the file's name. `logs` has a reward log by folder."""
    name, kind, columns = file["name"], file["kind"], file.get("columns", ())
    folder = folder_of(name)

    def to(view: str, fragment: str = "", key: str = "file", of: str = name) -> str:
        return f"/{view}?{urlencode({key: of})}{fragment}"

    report, annotate, score = ("Report", to("report")), ("Annotate", to("annotate")), ("Score", to("batch"))
    compare, edit = ("Compare", to("compare")), ("Edit", to("library", key="name"))
    judged = "checklist" in columns and ("target" in columns or "completion" in columns)
    actions = {
        "scored": [report, ("Trust", to("report", "#/0/trust")), annotate, ("Score again", to("batch"))],
        "rewards": [report, ("Follow", to("live"))],
        "pairs": [report, compare],
        "improvement": [("Accept changes", to("improve"))],
        "monitor": [("Report of its run", to("report", "#/0/monitor", of=logs[folder]))] if folder in logs else [],
        "rows": [compare, score] if "candidates" in columns else [score, annotate] if judged else [score],
        "document": [edit] if folder in _FOLDERS else [],
    }
    if kind == "document" and folder == "checklists" and name.endswith(".json"):
        actions[kind].insert(0, ("Judge", to("judge", key="checklist")))
    shown = _FOLDERS.get(folder, kind) if kind == "document" else _KINDS.get(kind, kind)
    return {"shown": shown, "actions": actions.get(kind, [])}
