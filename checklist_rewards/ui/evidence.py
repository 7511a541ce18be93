"""Evidence that people marked in the app, for a report: the spans of annotation files (`annotations/<name>.jsonl`).

The last line of a row and item counts. A span is shown only where the response still has its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.files.rows import read_rows

_COLUMNS = {"file", "row", "item", "label", "spans"}

Key = tuple[str, str]
"""Row id and item key."""


def is_annotations(path: Path) -> bool:
    """Whether a file has answers of an annotator."""
    first = next(iter(read_rows(path)), None) if path.suffix.lower() == ".jsonl" else None
    return first is not None and first.data.keys() >= _COLUMNS


class Evidence:
    """The marked spans of several annotators.

    Args:
        paths (iterable of `Path`): Annotation files. The name of a file is the name of the annotator.
    """

    def __init__(self, paths: Iterable[Path]):
        self._last: dict[str, dict[tuple[str, str, str], Mapping[str, Any]]] = {}
        for path in paths:
            for row in read_rows(path):
                name = Path(str(row.data.get("file"))).name
                key = str(row.data.get("row")), str(row.data.get("item")), path.stem
                self._last.setdefault(name, {})[key] = row.data

    def files(self) -> list[str]:
        """Names of the annotated files."""
        return list(self._last)

    def of(self, path: Path) -> dict[Key, list[dict[str, Any]]]:
        """The spans of a file: by row and item a list of `by`, `label`, `start`, `end` (in characters), and `text`."""
        found: dict[Key, list[dict[str, Any]]] = {}
        for (row, item, name), line in self._last.get(path.name, {}).items():
            spans = line.get("spans")
            for span in spans if isinstance(spans, list) else ():
                if isinstance(span, Mapping) and all(isinstance(span.get(end), int) for end in ("start", "end")):
                    place = {"start": span["start"], "end": span["end"], "text": span.get("text")}
                    found.setdefault((row, item), []).append({"by": name, "label": line.get("label"), **place})
        return found


def marked(target: str | None, spans: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The spans whose text the response has at their place, without their text.

    >>> spans = [{"by": "ann", "start": 2, "end": 5, "text": "red"}, {"by": "ann", "start": 0, "end": 2, "text": "x"}]
    >>> marked("a red thing", spans)
    [{'by': 'ann', 'start': 2, 'end': 5}]
    """
    return [
        {name: value for name, value in span.items() if name != "text"}
        for span in spans
        if target is not None
        and 0 <= span["start"] < span["end"]
        and target[span["start"] : span["end"]] == span["text"]
    ]
