"""`checklists import`: rubrics and checklists of other projects in, rows with a checklist out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli.files import RowFile
from checklist_rewards.cli.report import console, write_json
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import write_rows

Format = Literal["auto", "rows", "autorubric", "rubric", "healthbench", "rar", "autochecklist"]

app = typer.Typer(no_args_is_help=True, help="Checklists as files.")


@app.callback()
def _root() -> None:
    """Checklists as files: import what other projects wrote."""


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", show_default=False, help="A .jsonl, .csv or .parquet file; a rubric also .json or .yaml."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            show_default=False,
            help="The rows to write (.jsonl, .csv or .parquet); .json for one checklist that all rows share.",
        ),
    ],
    format: Annotated[Format, typer.Option(help="What FILE is; auto looks at its beginning.")] = "auto",
    may_abstain: Annotated[
        bool, typer.Option("--may-abstain", help='Allow "cannot_assess" as an answer to every question.')
    ] = False,
    prompt_key: Annotated[
        list[str] | None,
        typer.Option(show_default="prompt", help="Of rows: key of the prompt; several are joined by an empty line."),
    ] = None,
    target_key: Annotated[
        str | None, typer.Option(show_default=False, help="Of rows: key of the text to be scored; becomes target.")
    ] = None,
    checklist_key: Annotated[str, typer.Option(help="Of rows: key of the checklist.")] = "checklist",
    item_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=KEY", show_default=False, help="Of rows: a field of the items that has another name."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(show_default="the format", help="Where the checklists come from, for the column.")
    ] = None,
) -> None:
    r"""Turn rubrics and checklists of other projects into rows for **score**, or for a training set.

    **autorubric** is a RubricDataset of Autorubric, **rubric** a rubric file of Autorubric or of the rubric package,
    **healthbench** and **rar** are rows with `rubrics` and `rubric`, **autochecklist** is a Checklist of AutoChecklist
    or the rows of its runs. **rows** are rows with a checklist as this package has it, under any names.

    Weights, penalties, options, abstentions and gates are kept. What an item has no place for is counted at the end;
    what would change a score is refused, naming file, row and item.

    **Examples**

    ```
    checklist-rewards checklists import healthbench.jsonl -o rows.parquet
    checklist-rewards checklists import rubric.yaml -o rubric.json
    checklist-rewards score answers.jsonl -o scored.jsonl --checklist rubric.json
    checklist-rewards checklists import mine.jsonl -o rows.jsonl \
        --checklist-key rubric --item-key question=criterion --item-key weight=points
    ```
    """
    from checklist_rewards.datasets.columns import CHECKLIST_COLUMNS, PROMPT, checklist_columns  # takes a second
    from checklist_rewards.datasets.importing import imported_rows, listed_fields

    shared = output.suffix.lower() == ".json"
    if shared:
        _check_output(file, output)
    else:
        RowFile(file, output)
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
    rows = items = 0
    if shared:
        checklists = {checklist.id: checklist for _, checklist in imported.rows}
        checklist = _one(checklists, file, output)
        write_json(output, checklist.model_dump(mode="json"))
        items = len(checklist)
    else:
        with write_rows(output) as out:
            for row, checklist in imported.rows:
                if PROMPT not in row:
                    raise SampleError(
                        f"{file}: it holds one checklist and no prompt, so there are no rows; give a .json file as "
                        "--output, for `score --checklist`."
                    )
                others = {name: value for name, value in row.items() if name not in (PROMPT, *CHECKLIST_COLUMNS)}
                out.write({PROMPT: row[PROMPT]} | others | checklist_columns(checklist))
                rows, items = rows + 1, items + len(checklist)
            if not rows:
                raise SampleError(f"{file}: the file has no rows.")
    what = f"one checklist with {items} items" if shared else f"{rows} rows with {items} items"
    console.print(f"{imported.format}: {what} in {output}", highlight=False)
    if imported.left_out:
        console.print(f"left out, as items have no place for it: {listed_fields(imported.left_out)}", style="yellow")


def _check_output(file: Path, output: Path) -> None:
    if output.is_dir():
        raise SampleError(f"--output {output} is a folder; give a file.")
    if file.exists() and output.exists() and file.samefile(output):
        raise SampleError(f"--output {output} is the file itself; give the result a name of its own.")


def _fields(named: list[str]) -> dict[str, str]:
    pairs: dict[str, Any] = {}
    for entry in named:
        field, equals, key = entry.partition("=")
        if not equals or not field or not key:
            raise SampleError(f"--item-key {entry!r}: give FIELD=KEY, such as weight=points.")
        pairs[field] = key
    return pairs


def _one(checklists: dict[str, Checklist], file: Path, output: Path) -> Checklist:
    if len(checklists) != 1:
        found = f"{len(checklists)} different checklists" if checklists else "no rows"
        raise SampleError(
            f"{file}: it has {found}, and --output {output} holds exactly one; give a .jsonl, .csv or .parquet file."
        )
    [checklist] = checklists.values()
    return checklist
