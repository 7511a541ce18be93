"""`lint`: are these prompts and configs usable? Every file is looked at; each complaint names file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checklist_rewards.cli.report import console, refuse
from checklist_rewards.errors import ChecklistRewardsError, PromptError
from checklist_rewards.pipelines import PipelineConfig
from checklist_rewards.pipelines.config import FORMATS
from checklist_rewards.prompts import Kind, lint_prompt, prompts_dir


def lint(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", show_default="the packaged prompts", help="Prompts (.md) and configs."),
    ] = None,
    kind: Annotated[
        Kind | None,
        typer.Option(show_default="found out by its placeholders", help="What the prompts are for."),
    ] = None,
) -> None:
    """Check prompts (.md) and pipeline configs (.json, .yaml).

    A prompt is a **judge** ({target}, then {question}), a **batch** ({target}, then {checklist}), a **generator**
    ({input}) or a **stage** (anything else). A config is checked with all that it names.

    Exit code 2 if something is wrong.

    **Examples**

    ```
    checklist-rewards lint my_judge.md my_pipeline.yaml
    checklist-rewards lint prompts/writer.md --kind generator
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
    if path.suffix.lower() not in FORMATS:
        raise PromptError(f"{path}: neither a prompt (.md) nor a config ({', '.join(FORMATS)}).")
    config = PipelineConfig.load(path)
    return f"pipeline {config.name!r}: {config.generator.kind} generator, {config.scorer.kind} scorer"
