"""Scored files with their labels, as `agree` and `calibrate` take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli import options as o
from checklist_rewards.cli.columns import read_checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Answer, JudgedRow, labels_of, read_scored
from checklist_rewards.evaluation.agreement.scored import ID
from checklist_rewards.files.rows import read_rows

LABELS = "Labels and groups"
DEFAULT_KEY = "labels"

Given = list[list[Answer | None] | float | None]


@dataclass(frozen=True)
class Labelled:
    """Where labels are, and which rows belong to each other."""

    label_key: Annotated[
        str | None,
        typer.Option(
            show_default="labels",
            rich_help_panel=LABELS,
            help="Column of the labels: a list with one per item, a mapping from item ids, or a number per row.",
        ),
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(show_default="the scored file", rich_help_panel=LABELS, help="Another file that has the labels."),
    ] = None
    id_key: Annotated[
        str | None,
        typer.Option(
            show_default="id, else the row's place", rich_help_panel=LABELS, help="Column that tells rows apart."
        ),
    ] = None
    group_key: Annotated[
        str | None,
        typer.Option(
            show_default="each row by itself",
            rich_help_panel=LABELS,
            help="Column of what is not independent, such as the document: resampled and held out together.",
        ),
    ] = None
    checklist: o.ChecklistFile = None
    checklist_key: o.ChecklistKey = None

    @property
    def named(self) -> bool:
        """Whether labels were asked for."""
        return self.label_key is not None or self.labels is not None

    @property
    def shown(self) -> str:
        """The labels' name in tables."""
        return self.label_key or DEFAULT_KEY

    def read(self, path: Path) -> list[JudgedRow]:
        """The rows of a scored file. Raises [`SampleError`]."""
        shared: Checklist | None = None if self.checklist is None else read_checklist(self.checklist)
        return read_scored(
            path, id_key=self.id_key, group_key=self.group_key, checklist_key=self.checklist_key, shared=shared
        )

    def of(self, rows: Sequence[JudgedRow]) -> tuple[Given, int]:
        """The labels of every row, and how many labelled rows were not scored.

        Raises [`SampleError`] for a label that cannot be one, and if there are none.
        """
        key, unmatched = self.shown, 0
        values = [row.data.get(key) for row in rows]
        if self.labels is not None:
            known = self._known(self.labels, rows)
            values = [known.get(row.id) for row in rows]
            unmatched = len(known.keys() - {row.id for row in rows})
        if self.labels is None and not any(key in row.data for row in rows):
            keys = ", ".join(map(repr, rows[0].data)) or "no other columns"
            raise SampleError(f"{rows[0].where}: there is no column {key!r}; it has {keys} (--label-key, --labels).")
        given = [labels_of(row, value, key) for row, value in zip(rows, values, strict=True)]
        if not any(isinstance(each, float) or any(each or ()) for each in given):
            raise SampleError(f"{rows[0].where} and all others: nothing is labelled under {key!r}.")
        return given, unmatched

    def _known(self, path: Path, rows: Sequence[JudgedRow]) -> dict[str, Any]:
        found = list(read_rows(path))
        if not found:
            raise SampleError(f"{path} has no rows.")
        id_key = self.id_key or (ID if all(row.data.get(ID) is not None for row in found) else None)
        known: dict[str, Any] = {}
        for number, row in enumerate(found, start=1):
            for key in filter(None, (self.shown, id_key)):
                if key not in row.data:
                    keys = ", ".join(map(repr, row.data))
                    raise SampleError(f"{row.where}: there is no key {key!r}; the row has {keys}.")
            name = str(number) if id_key is None else str(row.data[id_key])
            if name in known:
                raise SampleError(f"{row.where}: the id {name!r} was there before; an id is one row's (--id-key).")
            known[name] = row.data[self.shown]
        if not any(row.id in known for row in rows):
            raise SampleError(
                f"{path} labels none of the scored rows: the first ids are {next(iter(known))!r} and {rows[0].id!r} "
                "(name the column with --id-key)."
            )
        return known


Resamples = Annotated[
    int,
    typer.Option(
        "--bootstrap", min=0, rich_help_panel=o.OUTPUT, help="Draws of the groups for 95 % intervals; 0 for none."
    ),
]
Seed = Annotated[int, typer.Option(min=0, rich_help_panel=o.OUTPUT, help="Another seed, other draws.")]
Json = Annotated[
    Path | None, typer.Option("--json", show_default=False, rich_help_panel=o.OUTPUT, help="All of it as JSON.")
]
Plots = Annotated[
    Path | None, typer.Option("--plots", show_default=False, rich_help_panel=o.OUTPUT, help="A folder for pictures.")
]


def check_outputs(inputs: Sequence[Path], *, json: Path | None, plots: Path | None) -> None:
    """Refuse outputs that cannot be written, or that are inputs. Raises [`SampleError`]."""
    if json is not None and json.is_dir():
        raise SampleError(f"--json {json} is a folder; give a file.")
    if json is not None and json.resolve() in [path.resolve() for path in inputs]:
        raise SampleError(f"--json {json} is a file that is read; give it a name of its own.")
    if plots is not None and plots.exists() and not plots.is_dir():
        raise SampleError(f"--plots {plots} is a file; give a folder.")
