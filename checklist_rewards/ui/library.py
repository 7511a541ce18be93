"""Checklists, prompts, pipelines and judges as files of the project folder, edited as text.

A file is checked before it is written, and only if nobody has changed it since it was opened: the page sends the stamp
that it got.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from checklist_rewards.checklists import Checklist, content_hash
from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import write_text
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.ui.judging import Judging

FOLDERS: Mapping[str, tuple[str, ...]] = {
    "checklists": (".json",),
    "prompts": (".md",),
    "pipelines": (".yaml", ".yml", ".json"),
    "judges": (".yaml", ".yml"),
}
"""The folders of the library, with the extensions of their files."""
LONGEST = 2**20


def listed(judging: Judging) -> dict[str, list[str]]:
    """The files of the library by folder."""
    names = [file.name for file in judging.project.files()]
    return {folder: [name for name in names if _is_in(name, folder)] for folder in FOLDERS}


def opened(judging: Judging, name: str) -> dict[str, str]:
    """The text of a file, with its stamp. Raises [`SampleError`]."""
    _folder(name)
    path = judging.project.existing(name)
    if path.stat().st_size > LONGEST:
        raise SampleError(f"{name} is larger than {LONGEST:,} bytes; edit it elsewhere.")
    text = read_text(path)
    return {"name": name, "text": text, "stamp": content_hash(text)}


def saved(judging: Judging, name: Any, text: Any, stamp: Any = None) -> dict[str, str]:
    """Check a file and write it.

    Args:
        judging ([`Judging`]): The project.
        name (`str`): Such as "checklists/polite.json".
        text (`str`): The content.
        stamp (`str`, *optional*): The stamp of the file as it was opened; None for a new file.

    Raises:
        ChecklistRewardsError: If the text is no such file, or the file has changed meanwhile. Nothing is written.
    """
    if not isinstance(name, str) or not isinstance(text, str) or len(text) > LONGEST:
        raise SampleError(f"a file needs a name and a text of up to {LONGEST:,} characters.")
    folder, path = _folder(name), judging.project.path(name)
    if path.exists() and (not path.is_file() or content_hash(read_text(path)) != stamp):
        raise SampleError(f"{name} exists and is not the version that was opened; open it, or choose another name.")
    if folder == "checklists":
        Checklist.parse(text, name)
    elif folder == "prompts":
        if not text.strip():
            raise SampleError(f"{name}: the prompt is empty.")
    else:
        value = read_value(text, path)
        if not isinstance(value, Mapping):
            raise SampleError(f"{name}: expected a mapping, got {type(value).__name__}.")
        judging.check_file(name, value)
        if folder == "pipelines":
            PipelineConfig.parse(value, name, path.parent)
        elif not isinstance(value.get("judges"), list):
            raise SampleError(f"{name}: `judges` must be a list of judges.")
    write_text(path, text)
    return {"name": name, "stamp": content_hash(text)}


def checklist_text(value: Any) -> str:
    """A checklist of the page as the text of its file."""
    Checklist.parse(value)
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _folder(name: str) -> str:
    folder = next((folder for folder in FOLDERS if _is_in(name, folder)), None)
    if folder is None:
        allowed = ", ".join(f"{folder}/NAME{ends[0]}" for folder, ends in FOLDERS.items())
        raise SampleError(f"{name!r:.120} is not a file of the library; allowed: {allowed}.")
    return folder


def _is_in(name: str, folder: str) -> bool:
    return name.startswith(f"{folder}/") and name.endswith(FOLDERS[folder])
