"""`report`: files of a run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checklist_rewards.cli import options as o
from checklist_rewards.cli.groups import grouped
from checklist_rewards.cli.labels import Labelled, Resamples, Seed
from checklist_rewards.cli.options.rows import InputKey
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import bars, console
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap
from checklist_rewards.evaluation.agreement.measures import DEFAULT_RESAMPLES
from checklist_rewards.ui.report import MAX_ROWS, write_report


@grouped
def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            show_default=False,
            help="Scored files, reward logs, pairs (.jsonl, .csv, .parquet); annotations, monitor logs (.jsonl); "
            "--json of agree, calibrate and inspect, --summary of score (.json).",
        ),
    ],
    labelled: Labelled,
    output: Annotated[
        Path, typer.Option("--output", "-o", rich_help_panel=o.OUTPUT, help="HTML file to write.")
    ] = Path("report.html"),
    title: Annotated[
        str | None,
        typer.Option(show_default="the names of the files", rich_help_panel=o.OUTPUT, help="Title of the page."),
    ] = None,
    max_rows: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=o.OUTPUT,
            help="Most rows per file on the page. Of a larger file a random sample is shown; figures use all rows.",
        ),
    ] = MAX_ROWS,
    input_key: InputKey = None,
    target_key: Annotated[
        str | None,
        typer.Option(
            show_default="target, else completion", rich_help_panel=o.ROWS, help="Column of the judged text."
        ),
    ] = None,
    bootstrap: Resamples = DEFAULT_RESAMPLES,
    seed: Seed = 0,
) -> None:
    r"""Write one HTML page about a run: scores, every answer, training curves, comparisons, agreement with labels.

    The page is a single file that opens from disk and loads nothing. A reward log (**log=** of a reward) shows what
    the policy learned. Two scored files with the same rows, and two reward logs, are compared as **agree** does. With
    **--label-key** or **--labels** the page shows how far the judge agrees with people.

    **Examples**

    ```
    checklist-rewards report scored.jsonl -o report.html
    checklist-rewards report runs/demo/rewards.jsonl -o runs/demo/report.html
    checklist-rewards report small.jsonl large.jsonl --label-key human -o judges.html
    checklist-rewards report scored.jsonl agreement.json calibration.json summary.json
    ```
    """
    check_outputs([*files, labelled.labels], output=output)
    inputs = [path.resolve() for path in [*files, *filter(None, [labelled.labels])]]
    if len(set(inputs)) < len(inputs):
        raise SampleError(f"each file may be given only once, got {', '.join(map(str, files))}.")
    with bars() as bar:
        shown = write_report(
            output,
            files,
            title=title,
            labels=labelled if labelled.named else None,
            max_rows=max_rows,
            seed=seed,
            intervals=Bootstrap(bootstrap, seed),
            inputs=input_key,
            target=target_key,
            id_key=labelled.id_key,
            progress=bar,
        )
    for file in shown:
        part = "" if file.shown == file.rows else f", a sample of {file.shown:,} on the page"
        console.print(f"{file.name}: {file.rows:,} rows{part}")
    console.print(f"written: {output}", markup=False)
