"""`checklists import` and `export`: rubrics of other projects to rows with a checklist, and rows to other trainers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from checklist_rewards.chat import prompt_text
from checklist_rewards.checklists import Checklist
from checklist_rewards.cli.outputs import check_outputs
from checklist_rewards.cli.report import console
from checklist_rewards.datasets.columns import PROMPT
from checklist_rewards.datasets.exporting import export_file
from checklist_rewards.datasets.importing import Found, imported_rows, listed_fields, write_imported
from checklist_rewards.datasets.rubrics import known_formats
from checklist_rewards.datasets.sources import source_files
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import file_format

Trainer = Literal["verl", "openrlhf", "swift", "open-instruct", "nemo-gym", "verifiers"]
_SHOWN = 100
"""Characters of a text that is shown."""

app = typer.Typer(no_args_is_help=True, help="Import checklists from other projects, and export them.")


@app.callback()
def _root() -> None:
    """Import checklists from other projects, and export them."""


@app.command("import")
def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            show_default=False,
            help="File (.jsonl, .csv, .parquet, .json, .yaml), folder or pattern of files, or dataset of the hub.",
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
    format: Annotated[
        str, typer.Option(help="Name of a format (see below), or a YAML file that describes one; auto detects it.")
    ] = "auto",
    may_abstain: Annotated[
        bool, typer.Option("--may-abstain", help='Allow "cannot_assess" as an answer to every item.')
    ] = False,
    prompt_key: Annotated[
        list[str] | None,
        typer.Option(show_default="detected", help="Key of the prompt. Repeatable; joined by a blank line."),
    ] = None,
    target_key: Annotated[
        str | None, typer.Option(show_default=False, help="Key of the text to score; written as target.")
    ] = None,
    checklist_key: Annotated[
        str | None, typer.Option(show_default="detected", help="Key of the criteria; dotted inside another column.")
    ] = None,
    item_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=KEY",
            show_default="detected",
            help="Key of a part of the items, such as weight=points. Repeatable.",
        ),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD=NUMBER", show_default=False, help="Number for a weight in words. Repeatable."),
    ] = None,
    pitfalls: Annotated[
        Literal["fault", "avoided"] | None,
        typer.Option(
            show_default="ask",
            help="What texts with a negative weight say that do not say it: a fault, or what is avoided.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            show_default=False,
            help="Drop this key of items although it may be part of the score. Repeatable.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(show_default="the format", help="Value of the checklist_source column.")
    ] = None,
    head: Annotated[int, typer.Option(min=0, help="Rows to show as the judge is asked about them.")] = 2,
) -> None:
    r"""Convert rubrics and checklists of other projects to rows for **score** or for a training dataset.

    Criteria are found by their shape: lists of objects with a text and a number, numbered text, sections, levels of a
    grade, trees, IFEval's instructions. The output says what was taken for what.

    Known formats: FORMATS.

    Weights, penalties, options, abstentions and gates are imported. Fields that items cannot hold are dropped and
    counted; those that may be part of the score are refused, with the file, row and item.

    **Examples**

    ```
    checklist-rewards checklists import healthbench.jsonl -o rows.parquet
    checklist-rewards checklists import 'rubrichub/*.parquet' -o rows.parquet
    checklist-rewards checklists import rubric.yaml -o rubric.json
    checklist-rewards checklists import mine.jsonl -o rows.jsonl \
        --checklist-key rubric --item-key question=criterion --item-key weight=points
    ```
    """
    check_outputs(source_files(file) or [], output=output)
    if output.suffix.lower() != ".json":
        file_format(output)
    imported = imported_rows(
        file,
        format=format,
        prompt_key=prompt_key,
        checklist_key=checklist_key,
        target_key=target_key,
        item_keys=_pairs("--item-key", "FIELD=KEY, such as weight=points", item_key or []),
        may_abstain=may_abstain,
        source=source,
        drop=drop or (),
        pitfalls=pitfalls,
        weights=_numbers(weights or []),
    )
    shown: list[Found] = []
    imported = replace(imported, rows=_remembering(imported.rows, shown, head))
    rows, items = write_imported(imported, file, output)
    what = f"one checklist with {items} items" if rows is None else f"{rows} rows with {items} items"
    console.print(f"{imported.format.name}: {what} in {output}", highlight=False)
    for line in imported.taken():
        console.print(f"  {line}", highlight=False, markup=False)
    if imported.left_out:
        console.print(f"Dropped fields that items cannot hold: {listed_fields(imported.left_out)}", style="yellow")
    for row, checklist in shown:
        _show(row, checklist)


@app.command("export")
def export_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", show_default=False, help="Rows with a prompt and a checklist (.jsonl, .csv, .parquet)."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", show_default=False, help="Rows to write.")],
    to: Annotated[Trainer, typer.Option(show_default=False, help="The trainer that reads them.")],
) -> None:
    """Write rows with a checklist in the shape that a trainer other than TRL reads.

    The adapters of `checklist_rewards.rewards.integrations` find the checklist there. All other columns are kept, and
    **checklists import** reads the rows back.

    **Example**

    ```
    checklist-rewards checklists export rows.parquet --to verl -o train.parquet
    ```
    """
    check_outputs([file], output=output)
    file_format(output)
    rows = export_file(file, output, to)
    console.print(f"{to}: {rows} rows in {output}", highlight=False)


import_.__doc__ = (import_.__doc__ or "").replace("FORMATS", ", ".join(sorted(known_formats())))


def _remembering(rows: Iterator[Found], shown: list[Found], most: int) -> Iterator[Found]:
    for found in rows:
        if len(shown) < most:
            shown.append(found)
        yield found


def _show(row: Mapping[str, Any], checklist: Checklist) -> None:
    prompt = row.get(PROMPT)
    text = prompt_text(prompt)[0] if prompt is not None else None
    console.print()
    if text:
        console.print(f"prompt: {_short(text)}", highlight=False, markup=False)
    for item in checklist.items:
        kind = "check" if item.check else "choice" if item.options and not item.yes_no else "yes/no"
        notes = [
            f"weight {item.weight:g}",
            kind,
            *([item.category] if item.category else []),
            *(["gate"] if item.required else []),
        ]
        console.print(f"  {_short(item.question)}  ({', '.join(notes)})", highlight=False, markup=False)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _pairs(option: str, expected: str, named: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for entry in named:
        name, equals, value = entry.partition("=")
        if not equals or not name or not value:
            raise SampleError(f"{option} {entry!r}: expected {expected}.")
        pairs[name] = value
    return pairs


def _numbers(named: list[str]) -> dict[str, float] | None:
    numbers: dict[str, float] = {}
    for word, number in _pairs("--weights", "WORD=NUMBER, such as Critical=4", named).items():
        try:
            numbers[word] = float(number)
        except ValueError:
            raise SampleError(f"--weights {word}={number}: expected WORD=NUMBER, such as Critical=4.") from None
    return numbers or None
