"""`cascade`: simulate a cascade of two judges from their scored files, and choose its margin."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from checklist_rewards.cli import options as o
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import console, write_json
from checklist_rewards.datasets.rows import read_checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import JudgedRow, labels_of, pairs_of, read_scored
from checklist_rewards.evaluation.cascade_replay import DEFAULT_TOLERANCE, as_rows, choose, plot_curve, replay
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.scores import Aggregation

_SHOWN_STEP = 5


@grouped
def cascade(
    cheap: Annotated[
        Path, typer.Argument(metavar="CHEAP", show_default=False, help="A file scored by the cheap judge.")
    ],
    strong: Annotated[
        Path, typer.Argument(metavar="STRONG", show_default=False, help="The same rows scored by the strong judge.")
    ],
    label_key: Annotated[
        str | None,
        typer.Option(
            show_default="the strong judge's answers",
            rich_help_panel=o.ROWS,
            help="Column of labels to measure agreement with.",
        ),
    ] = None,
    id_key: Annotated[
        str | None, typer.Option(show_default="id, else row number", rich_help_panel=o.ROWS, help="Column of row ids.")
    ] = None,
    cheap_cost: Annotated[float, typer.Option(min=0, help="Price of a cheap read relative to a strong read.")] = 0.0,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="Largest loss of agreement to accept for a lower cost.")
    ] = DEFAULT_TOLERANCE,
    threshold: Annotated[float, o.option_of(Aggregation, "threshold", panel=None, default=True, min=0, max=1)] = (
        Aggregation.threshold
    ),
    plot: Annotated[
        Path | None,
        typer.Option(show_default=False, rich_help_panel=o.OUTPUT, help="Plot of cost against agreement (.png)."),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(
            "--json",
            "-o",
            "--output",
            show_default=False,
            rich_help_panel=o.OUTPUT,
            help="JSON file of the curve.",
        ),
    ] = None,
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
) -> None:
    r"""Simulate a judge cascade from two scored files: cost against agreement at each margin.

    In a cascade, the cheap judge answers first. The strong judge is asked only if the margin of the cheap judge (the
    probability of its best answer minus that of the second best) is too small. This command calls no model: it tries
    every margin on the answers in both files.

    **Example**

    ```
    checklist-rewards cascade small.jsonl large.jsonl --label-key human --cheap-cost 0.05 --plot curve.png
    ```
    """
    check_outputs([cheap, strong, checklist], plot=plot, json=json)
    shared = None if checklist is None else read_checklist(checklist)
    files = [read_scored(path, id_key=id_key, checklist_key=checklist_key, shared=shared) for path in (cheap, strong)]
    pairs, unpaired = pairs_of(files[0], files[1], (str(cheap), str(strong)))
    curve = replay(
        [first.items for first, _ in pairs],
        [first.score for first, _ in pairs],
        [second.score for _, second in pairs],
        None if label_key is None else [_labels(first, label_key) for first, _ in pairs],
        cheap_cost=cheap_cost,
        threshold=threshold,
    )
    chosen = choose(curve, tolerance=tolerance)
    table = Table("margin", "escalated", "cost", "agreement", title="cascade", title_justify="left")
    for point in sorted({*curve[::_SHOWN_STEP], chosen}, key=lambda point: point.margin):
        agreement = "–" if point.agreement is None else f"{point.agreement:.4f}"
        mark = " <" if point == chosen else ""
        table.add_row(f"{point.margin:.2f}", f"{point.escalated:.1%}", f"{point.cost:.3f}", agreement + mark)
    console.print(table)
    console.print(
        f"{len(pairs)} rows; {chosen.coverage:.1%} of the reads have an answer and a label"
        + (f"; {unpaired} rows are in one file only" if unpaired else "")
        + f". Chosen margin: {chosen.margin:.2f}, the cheapest within {tolerance:g} of the best agreement."
    )
    if json is not None:
        write_json(json, {"rows": len(pairs), "unpaired": unpaired, "chosen": asdict(chosen), "curve": as_rows(curve)})
    if plot is not None:
        with atomic_path(plot) as temporary:
            plot_curve(curve, chosen, temporary)


def _labels(row: JudgedRow, key: str) -> list[str | None] | None:
    labels = labels_of(row, row.data.get(key), key)
    if isinstance(labels, float):
        raise SampleError(
            f"{row.where}: {key!r} must hold one label per item, got a single number for the whole target "
            f"({labels:g})."
        )
    return None if labels is None else [None if answer is None else answer.label for answer in labels]
