"""`fit`: better checklists from labels.

- `fit`: item weights from ratings or preferences.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from checklist_rewards.cli import options as o
from checklist_rewards.cli.options import Resamples, Seed, grouped
from checklist_rewards.cli.output import bars, check_outputs, console, write_json
from checklist_rewards.cli.trust import LABELS, Labelled
from checklist_rewards.datasets.rows import Columns
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap, JudgedRow
from checklist_rewards.evaluation.agreement.measures import DEFAULT_RESAMPLES
from checklist_rewards.evaluation.fitting import By, Fit, fit_weights, labelled_scores
from checklist_rewards.files.rows import read_rows

_SHOWN = 40
_QUESTION = 60
CHOSEN, REJECTED = "chosen", "rejected"


@grouped("output", "label_key", "pairs", "group_key", "by", "labels", "id_key")
def fit(
    rows: Annotated[
        Path, typer.Argument(metavar="SCORED", show_default=False, help="A file written by `score` or `run`.")
    ],
    labelled: Labelled,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", show_default=False, rich_help_panel=o.OUTPUT, help="JSON file of the weights."),
    ],
    pairs: Annotated[
        Path | None,
        typer.Option(
            show_default=False,
            rich_help_panel=LABELS,
            help="Preferences instead of labels: rows with `chosen` and `rejected`, each an id or the text of a "
            "scored row.",
        ),
    ] = None,
    by: Annotated[
        By | None,
        typer.Option(
            show_default="item if most items repeat, else category",
            rich_help_panel=LABELS,
            help="What has a weight of its own.",
        ),
    ] = None,
    target_key: o.TargetKey = None,
    bootstrap: Resamples = DEFAULT_RESAMPLES,
    seed: Seed = 0,
) -> None:
    r"""Fit the weights of checklist items to ratings or preferences of people.

    Weights shrink to the present ones, as far as cross-validation over groups finds useful, and are never of the other
    sign. All figures are measured on held-out groups. If the labels teach nothing, no file is written, and the message
    has the number of labels that would be needed. Pass the file to `score`, `run`, `replay` and other commands with
    **--weights**, or to a scorer or reward as `weights`. No model is used.

    **Examples**

    ```
    checklist-rewards fit scored.jsonl --label-key human --group-key document -o weights.json
    checklist-rewards fit scored.jsonl --pairs preferred.jsonl --by category -o weights.json
    checklist-rewards score answers.jsonl -o weighted.jsonl --model org/judge --weights weights.json
    ```
    """
    check_outputs([rows, labelled.labels, pairs], output=output)
    if pairs is not None and labelled.named:
        raise SampleError(f"--pairs {pairs} and labels are two kinds of labels; set only one of them.")
    labels = labelled.as_labels()
    scored = labels.read(rows)
    if pairs is None:
        given, _ = labels.of(scored)
        found = labelled_scores(scored, given, by=by)
    else:
        found = labelled_scores(scored, [None] * len(scored), by=by, pairs=_pairs(pairs, scored, target_key))
    with bars() as bar:
        fitted = fit_weights(found, Bootstrap(bootstrap, seed, bar("bootstrap draws", None)))
    _show(fitted)
    write_json(output, fitted.dumped())
    console.print(f"written: {output}", markup=False)


def _pairs(path: Path, rows: Sequence[JudgedRow], target_key: str | None) -> list[tuple[int, int]]:
    """The places of the chosen and the rejected row of each preference."""
    columns = Columns.of(rows[0].data, target=target_key)
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        for name in {row.id, str(row.data.get(columns.target))}:
            places.setdefault(name, []).append(place)
    found = []
    for pair in read_rows(path):
        of_pair = []
        for name in (CHOSEN, REJECTED):
            value = str(pair.data.get(name))
            if len(places.get(value, ())) != 1:
                what = "no scored row" if value not in places else f"{len(places[value])} scored rows"
                raise SampleError(
                    f"{pair.where}: {name!r} is {value!r:.60}, which is the id or text of {what}; it must name one."
                )
            of_pair += places[value]
        found.append((of_pair[0], of_pair[1]))
    return found


def _show(fitted: Fit) -> None:
    out = Console()
    what = "labels" if fitted.measure == "correlation" else "pairs"
    title = f"weights by {fitted.by}, {fitted.labels} {what} in {fitted.groups} groups"
    table = Table(fitted.by, "before", "weight", "95 % interval", "adds", "texts", title=title, title_justify="left")
    for line in sorted(fitted.weights, key=lambda line: -line.adds)[:_SHOWN]:
        interval = "" if line.low is None else f"{line.low:.2f} to {line.high:.2f}"
        numbers = (f"{line.before:.2f}", f"{line.weight:.2f}", interval, f"{line.adds:+.3f}", str(line.texts))
        table.add_row(escape(line.question[:_QUESTION]), *numbers)
    out.print(table)
    if len(fitted.weights) > _SHOWN:
        out.print(f"{len(fitted.weights) - _SHOWN} more are in the file.")
    names = {"present": "present weights", "fitted": "fitted weights", "gain": "gain", "train": "fitted, in training"}
    figures = Table(fitted.measure, "on held-out groups", show_header=True)
    for name, shown in names.items():
        figures.add_row(shown, fitted.figures[name].shown())
    out.print(figures)
    if fitted.needed is not None:
        console.print(
            f"[yellow]The gain is not shown: its interval includes 0. About {fitted.needed:,} {what} would be needed "
            "to show it.[/]"
        )
