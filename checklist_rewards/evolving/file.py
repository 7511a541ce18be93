"""The file of a buffer: JSONL, a first line with the format, then one line per prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.files.atomic import write_text

FORMAT = "checklist-rewards-buffer-1"


def write_buffer(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a buffer. The file is replaced at once."""
    lines = [{"format": FORMAT, "calls": state["calls"]}, *state["prompts"]]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def read_buffer(path: Path) -> dict[str, Any]:
    """The state in the file of a buffer. Raises [`SampleError`] if it is not one."""
    try:
        first, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if first["format"] != FORMAT:
            raise ValueError(f"the format is {first['format']!r}; this version reads {FORMAT!r}")
        return {"calls": first["calls"], "prompts": lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SampleError(f"{path}: not the file of a checklist buffer ({error}).") from error
