"""Scored files with labels: the options and checks shared by `agree` and `calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.datasets.rows import read_checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Answer, JudgedRow, labels_of, read_scored
from checklist_rewards.evaluation.agreement.scored import ID
from checklist_rewards.files.rows import read_rows

LABELS = "Labels and groups"
DEFAULT_KEY = "labels"

Given = list[list[Answer | None] | float | None]


@dataclass(frozen=True)
class Labelled:
    """Options for the columns of labels, row ids and groups."""

    label_key: Annotated[
        str | None,
        typer.Option(
            show_default="labels",
            rich_help_panel=LABELS,
            help="Column of the labels: a list with one label per item, a mapping by item id, or a number per row.",
        ),
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(show_default="the scored file", rich_help_panel=LABELS, help="Separate file with the labels."),
    ] = None
    id_key: Annotated[
        str | None,
        typer.Option(
            show_default="id, else row number",
            rich_help_panel=LABELS,
            help="Column of row ids, to match rows across files.",
        ),
    ] = None
    group_key: Annotated[
        str | None,
        typer.Option(
            show_default="each row on its own",
            rich_help_panel=LABELS,
            help="Column of groups of dependent rows, such as the document. A group is resampled and held out as one.",
        ),
    ] = None
    checklist: o.ChecklistFile = None
    checklist_key: o.ChecklistKey = None

    @property
    def named(self) -> bool:
        """Whether the user set an option for labels."""
        return self.label_key is not None or self.labels is not None

    @property
    def shown(self) -> str:
        """The name of the labels in tables."""
        return self.label_key or DEFAULT_KEY

    def read(self, path: Path) -> list[JudgedRow]:
        """The rows of a scored file. Raises [`SampleError`]."""
        shared: Checklist | None = None if self.checklist is None else read_checklist(self.checklist)
        return read_scored(
            path, id_key=self.id_key, group_key=self.group_key, checklist_key=self.checklist_key, shared=shared
        )

    def of(self, rows: Sequence[JudgedRow]) -> tuple[Given, int]:
        """The labels of every row, and the number of labelled rows that were not scored.

        Raises:
            SampleError: For an invalid label, or if no row has a label.
        """
        key, unmatched = self.shown, 0
        values = [row.data.get(key) for row in rows]
        if self.labels is not None:
            by_id = self._by_id(self.labels, rows)
            values = [by_id.get(row.id) for row in rows]
            unmatched = len(by_id.keys() - {row.id for row in rows})
        if self.labels is None and not any(key in row.data for row in rows):
            columns = ", ".join(map(repr, rows[0].data)) or "no other columns"
            raise SampleError(
                f"{rows[0].where}: column {key!r} not found; the row has {columns} (set --label-key or --labels)."
            )
        labels = [labels_of(row, value, key) for row, value in zip(rows, values, strict=True)]
        if not any(isinstance(each, float) or any(each or ()) for each in labels):
            raise SampleError(f"{rows[0].where}: neither this row nor any other has a label in column {key!r}.")
        return labels, unmatched

    def _by_id(self, path: Path, rows: Sequence[JudgedRow]) -> dict[str, Any]:
        labelled = list(read_rows(path))
        if not labelled:
            raise SampleError(f"{path} has no rows.")
        id_key = self.id_key or (ID if all(row.data.get(ID) is not None for row in labelled) else None)
        labels: dict[str, Any] = {}
        for number, row in enumerate(labelled, start=1):
            for key in filter(None, (self.shown, id_key)):
                if key not in row.data:
                    columns = ", ".join(map(repr, row.data))
                    raise SampleError(f"{row.where}: column {key!r} not found; the row has {columns}.")
            name = str(number) if id_key is None else str(row.data[id_key])
            if name in labels:
                raise SampleError(f"{row.where}: duplicate id {name!r}; ids must be unique (--id-key).")
            labels[name] = row.data[self.shown]
        if not any(row.id in labels for row in rows):
            raise SampleError(
                f"{path} has labels for none of the scored rows: its first id is {next(iter(labels))!r}, the scored "
                f"file's is {rows[0].id!r} (set the id column with --id-key)."
            )
        return labels


Resamples = Annotated[
    int,
    typer.Option(
        "--bootstrap",
        min=0,
        rich_help_panel=o.OUTPUT,
        help="Bootstrap resamples for the 95 % intervals; 0 for no intervals.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, rich_help_panel=o.OUTPUT, help="Random seed.")]
Json = Annotated[
    Path | None,
    typer.Option("--json", show_default=False, rich_help_panel=o.OUTPUT, help="JSON file to write all figures to."),
]
JsonOutput = Annotated[
    Path | None,
    typer.Option(
        "--json",
        "-o",
        "--output",
        show_default=False,
        rich_help_panel=o.OUTPUT,
        help="JSON file to write all figures to.",
    ),
]
"""[`Json`] of a command that writes nothing else."""
Plots = Annotated[
    Path | None,
    typer.Option("--plots", show_default=False, rich_help_panel=o.OUTPUT, help="Folder to write plots to."),
]
