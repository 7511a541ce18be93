"""The labels that the app has exported, for the report of the annotated file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import JudgedRow, labels_of, read_scored
from checklist_rewards.files.rows import read_rows
from checklist_rewards.ui.project import Project
from checklist_rewards.ui.records import ID

FOLDER = "labels"
COLUMN = "labels"


@dataclass(frozen=True)
class ExportedLabels:
    """A labels file, read as `agree --labels` reads it.

    Args:
        path (`Path`): The file.
    """

    path: Path
    shown: str = COLUMN

    def read(self, path: Any) -> list[JudgedRow]:
        """The rows of a scored file."""
        return read_scored(path)

    def of(self, rows: Sequence[JudgedRow]) -> tuple[Any, int]:
        """The labels of every row, and the number of labelled rows that were not scored. Raises [`SampleError`] if no
        row has a label."""
        by_id = {str(row.data.get(ID)): row.data.get(COLUMN) for row in read_rows(self.path)}
        labels = [labels_of(row, by_id.get(row.id), COLUMN) for row in rows]
        if not any(isinstance(each, float) or any(each or ()) for each in labels):
            raise SampleError(f"{self.path.name} has labels for none of the rows.")
        return labels, len(by_id.keys() - {row.id for row in rows})


def name_of(file: str | Path) -> str:
    """The name of the labels file of an annotated file."""
    return f"{FOLDER}/{Path(file).stem}.jsonl"


def exported(project: Project, path: Path) -> ExportedLabels | None:
    """The labels that were exported for a file of the project, if any."""
    labels = project.path(name_of(path))
    return ExportedLabels(labels) if labels.is_file() and labels != path else None
