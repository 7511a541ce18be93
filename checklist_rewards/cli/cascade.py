"""`cascade`: two scored files in, the margin of a cascade of their judges out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from checklist_rewards.cli import options as o
from checklist_rewards.cli.columns import read_checklist
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.report import console, write_json
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import JudgedRow, labels_of, pairs_of, read_scored
from checklist_rewards.evaluation.cascade_replay import DEFAULT_TOLERANCE, as_rows, choose, plot_curve, replay
from checklist_rewards.files.rows import atomic_path

_SHOWN_STEP = 5


@grouped
def cascade(
    cheap: Annotated[
        Path, typer.Argument(metavar="CHEAP", show_default=False, help="A file scored by a cheap judge.")
    ],
    strong: Annotated[
        Path, typer.Argument(metavar="STRONG", show_default=False, help="The same rows, scored better.")
    ],
    label_key: Annotated[
        str | None,
        typer.Option(
            show_default="the strong judge is the truth", rich_help_panel=o.ROWS, help="Key of true answers."
        ),
    ] = None,
    id_key: Annotated[
        str | None, typer.Option(show_default="id, else the place", rich_help_panel=o.ROWS, help="Key of the rows.")
    ] = None,
    cheap_cost: Annotated[
        float, typer.Option(min=0, help="Price of a cheap read, as a multiple of a strong one.")
    ] = 0.0,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="How much agreement may be given up for a lower price.")
    ] = DEFAULT_TOLERANCE,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="An answer is yes from this P(yes) up.")] = 0.6,
    plot: Annotated[
        Path | None,
        typer.Option(show_default=False, rich_help_panel=o.OUTPUT, help="Cost against agreement, as an image (.png)."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", show_default=False, rich_help_panel=o.OUTPUT, help="The curve as JSON.")
    ] = None,
    checklist: o.ChecklistFile = None,
    checklist_key: o.ChecklistKey = None,
) -> None:
    r"""Find out from two scored files what a cascade of their judges would cost, and how well it would do.

    In a cascade the cheap judge answers first, and only where its margin (P of the best answer less that of the
    second) is too small is the strong one asked. Here nobody is asked: both files are read, and every margin is tried.

    **Example**

    ```
    checklist-rewards cascade small.jsonl large.jsonl --label-key human --cheap-cost 0.05 --plot curve.png
    ```
    """
    for path in (plot, json):
        if path is not None and path.is_dir():
            raise SampleError(f"{path} is a folder; give a file.")
        if path is not None and path.resolve() in (cheap.resolve(), strong.resolve()):
            raise SampleError(f"{path} is one of the scored files; give the result a name of its own.")
    shared = None if checklist is None else read_checklist(checklist)
    files = [read_scored(path, id_key=id_key, checklist_key=checklist_key, shared=shared) for path in (cheap, strong)]
    pairs, alone = pairs_of(files[0], files[1], (str(cheap), str(strong)))
    curve = replay(
        [first.items for first, _ in pairs],
        [first.score for first, _ in pairs],
        [second.score for _, second in pairs],
        None if label_key is None else [_labels(first, label_key) for first, _ in pairs],
        cheap_cost=cheap_cost,
        threshold=threshold,
    )
    chosen = choose(curve, tolerance=tolerance)
    table = Table("margin", "sent on", "cost", "agreement", title="cascade", title_justify="left")
    for point in sorted({*curve[::_SHOWN_STEP], chosen}, key=lambda point: point.margin):
        agreement = "–" if point.agreement is None else f"{point.agreement:.4f}"
        mark = " <" if point == chosen else ""
        table.add_row(f"{point.margin:.2f}", f"{point.escalated:.1%}", f"{point.cost:.3f}", agreement + mark)
    console.print(table)
    console.print(
        f"{len(pairs)} rows, {chosen.coverage:.1%} of their reads have an outcome and a truth"
        + (f"; {alone} rows are in one file only" if alone else "")
        + f". Margin {chosen.margin:.2f}: the cheapest within {tolerance:g} of the best agreement."
    )
    if json is not None:
        write_json(json, {"rows": len(pairs), "unpaired": alone, "chosen": asdict(chosen), "curve": as_rows(curve)})
    if plot is not None:
        with atomic_path(plot) as temporary:
            plot_curve(curve, chosen, temporary)


def _labels(row: JudgedRow, key: str) -> list[str | None] | None:
    found = labels_of(row, row.data.get(key), key)
    if isinstance(found, float):
        raise SampleError(f"{row.where}: {key!r} must label the items; got a number for the whole target ({found:g}).")
    return None if found is None else [None if answer is None else answer.label for answer in found]
