"""JSON results that a report can show: of `agree`, `calibrate` and `inspect`, and summaries of `score` and others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.files.documents import read_text, read_value

_KEYS: Mapping[str, tuple[str, ...]] = {
    "agree": ("comparisons", "tests", "bootstrap"),
    "calibrate": ("judge", "kinds", "left_out"),
    "inspect": ("targets", "items", "flags"),
    "summary": ("command", "reads", "receipt"),
}


def read_document(path: Path) -> dict[str, Any]:
    """A JSON file with its kind.

    Raises:
        ConfigError: If the file is not valid JSON.
        SampleError: If it is the result of none of these commands.
    """
    value = read_value(read_text(path), path)
    for kind, keys in _KEYS.items():
        if isinstance(value, Mapping) and all(key in value for key in keys):
            return {"name": path.name, "kind": kind, "value": dict(value)}
    raise SampleError(
        f"{path} is not a result that a report can show; allowed: --json of agree, calibrate or inspect, and "
        "--summary."
    )
