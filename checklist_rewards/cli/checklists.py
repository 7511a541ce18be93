"""`checklists import`: convert rubrics and checklists of other projects to rows with a checklist."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import console
from checklist_rewards.datasets.columns import PROMPT
from checklist_rewards.datasets.importing import imported_rows, listed_fields, write_imported
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import file_format

Format = Literal["auto", "rows", "autorubric", "rubric", "healthbench", "rar", "autochecklist"]

app = typer.Typer(no_args_is_help=True, help="Import checklists from other projects.")


@app.callback()
def _root() -> None:
    """Import checklists from other projects."""


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="A .jsonl, .csv or .parquet file of rows, or a single rubric as .json or .yaml.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            show_default=False,
            help="Rows to write (.jsonl, .csv or .parquet), or a single shared checklist (.json).",
        ),
    ],
    format: Annotated[Format, typer.Option(help="Format of FILE; auto detects it from the content.")] = "auto",
    may_abstain: Annotated[
        bool, typer.Option("--may-abstain", help='Allow "cannot_assess" as an answer to every item.')
    ] = False,
    prompt_key: Annotated[
        list[str] | None,
        typer.Option(show_default="prompt", help="Column of the prompt. Repeatable; joined by a blank line."),
    ] = None,
    target_key: Annotated[
        str | None, typer.Option(show_default=False, help="Column of the text to score; written as target.")
    ] = None,
    checklist_key: Annotated[str, typer.Option(help="Column of the checklist.")] = "checklist",
    item_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=KEY",
            show_default=False,
            help="Map a field of the items to its key in FILE, such as weight=points. Repeatable.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(show_default="the format", help="Value of the checklist_source column.")
    ] = None,
) -> None:
    r"""Convert rubrics and checklists of other projects to rows for **score** or for a training dataset.

    Formats: **autorubric**, a RubricDataset of Autorubric; **rubric**, a rubric file of Autorubric or of the rubric
    package; **healthbench** and **rar**, rows with a `rubrics` or `rubric` column; **autochecklist**, a Checklist of
    AutoChecklist or the rows of its runs; **rows**, rows with a checklist in this package's format under any column
    name.

    Weights, penalties, options, abstentions and gates are imported. Fields that items cannot hold are dropped and
    counted at the end. An input that would change a score is refused with its file, row and item.

    **Examples**

    ```
    checklist-rewards checklists import healthbench.jsonl -o rows.parquet
    checklist-rewards checklists import rubric.yaml -o rubric.json
    checklist-rewards score answers.jsonl -o scored.jsonl --checklist rubric.json
    checklist-rewards checklists import mine.jsonl -o rows.jsonl \
        --checklist-key rubric --item-key question=criterion --item-key weight=points
    ```
    """
    check_outputs([file], output=output)
    if output.suffix.lower() != ".json":
        file_format(output)
    imported = imported_rows(
        file,
        format=format,
        prompt_key=prompt_key or PROMPT,
        checklist_key=checklist_key,
        target_key=target_key,
        item_keys=_fields(item_key or []),
        may_abstain=may_abstain,
        source=source,
    )
    rows, items = write_imported(imported, file, output)
    what = f"one checklist with {items} items" if rows is None else f"{rows} rows with {items} items"
    console.print(f"{imported.format}: {what} in {output}", highlight=False)
    if imported.left_out:
        console.print(f"Dropped fields that items cannot hold: {listed_fields(imported.left_out)}", style="yellow")


def _fields(named: list[str]) -> dict[str, str]:
    pairs: dict[str, Any] = {}
    for entry in named:
        field, equals, key = entry.partition("=")
        if not equals or not field or not key:
            raise SampleError(f"--item-key {entry!r}: expected FIELD=KEY, such as weight=points.")
        pairs[field] = key
    return pairs
