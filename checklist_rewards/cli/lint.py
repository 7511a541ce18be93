"""`lint`: are these prompts, configs and checklists usable? Every file is looked at; each complaint names file and
line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from checklist_rewards.checklists import Checklist
from checklist_rewards.cli.columns import read_checklist
from checklist_rewards.cli.report import console, refuse
from checklist_rewards.errors import ChecklistRewardsError, PromptError, SampleError
from checklist_rewards.judges.checked import usable_check
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.pipelines.config import FORMATS
from checklist_rewards.prompts import Kind, lint_prompt, prompts_dir
from checklist_rewards.rows import read_rows

CHECKLIST = "checklist"
"""The key of the rows that holds it."""


def lint(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", show_default="the packaged prompts", help="What to check."),
    ] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(show_default="found out by its placeholders", help="What the prompts are for."),
    ] = None,
) -> None:
    """Check prompts (.md), pipeline configs (.json, .yaml) and checklists (.json; rows of them .jsonl, .parquet).

    A prompt is a **judge** ({target}, then {question}), a **batch** ({target}, then {checklist}), a **generator**
    ({input}) or a **stage** (anything else). A config is checked with all that it names, a checklist with its code
    checks.

    Exit code 2 if something is wrong.

    **Examples**

    ```
    checklist-rewards lint my_judge.md my_pipeline.yaml
    checklist-rewards lint prompts/writer.md --kind generator
    checklist-rewards lint checklists.jsonl
    ```
    """
    wrong = 0
    for path in files or sorted(prompts_dir().glob("*/*.md")):
        try:
            typer.echo(f"{path}: {_checked(path, kind)}")
        except ChecklistRewardsError as error:
            wrong += 1
            refuse(str(error))
    if wrong:
        console.print(f"{wrong} of {len(files or [])} files cannot be used.")
        raise typer.Exit(2)


def _checked(path: Path, kind: Kind | None) -> str:
    if path.suffix.lower() == ".md":
        prompt = lint_prompt(path, kind)
        fields = ", ".join(f"{{{name}}}" for name in sorted(prompt.placeholders))
        return f"a {prompt.kind} prompt with {fields or 'no placeholders'}"
    if path.suffix.lower() in (".jsonl", ".parquet"):
        return _rows(path)
    if path.suffix.lower() not in FORMATS:
        raise PromptError(
            f"{path}: neither a prompt (.md) nor a config ({', '.join(FORMATS)}) nor checklists (.jsonl)."
        )
    if path.suffix.lower() == ".json" and _holds_checklist(path):
        return f"a checklist: {_counted([_usable(read_checklist(path), str(path))])}"
    config = PipelineConfig.load(path)
    return f"pipeline {config.name!r}: {config.generator.kind} generator, {config.scorer.kind} scorer"


def _holds_checklist(path: Path) -> bool:
    """Whether a JSON file has the form of a checklist; a config is a mapping without items."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False  # whoever reads it as a config says what is wrong
    return isinstance(value, list) or (isinstance(value, dict) and "items" in value)


def _rows(path: Path) -> str:
    found = [
        _usable(Checklist.parse(row.data[CHECKLIST], row.where), row.where)
        for row in read_rows(path)
        if row.data.get(CHECKLIST) is not None
    ]
    if not found:
        raise SampleError(f"{path}: no row has a {CHECKLIST!r}.")
    return f"{len(found)} checklists: {_counted(found)}"


def _usable(checklist: Checklist, where: str) -> Checklist:
    """The checklist, if all its code checks can be used. Raises [`ChecklistError`]."""
    for item in checklist.items:
        if item.check is not None:
            usable_check(item, where, allow_code="unsafe")  # nothing runs here
    return checklist


def _counted(checklists: Sequence[Checklist]) -> str:
    items = [item for checklist in checklists for item in checklist.items]
    return f"{len(items)} items, {sum(item.check is not None for item in items)} with code checks"
