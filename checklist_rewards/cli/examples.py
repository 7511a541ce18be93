"""`--example-input`: an example input of a pipeline, as a template to fill in."""

from __future__ import annotations

import inspect
import json
from typing import Annotated

import typer

from checklist_rewards.cli.options import PIPELINE
from checklist_rewards.pipelines import PipelineConfig, load_config
from checklist_rewards.pipelines.registry import GENERATORS
from checklist_rewards.prompts import load_prompt

_ROW = {
    "input": "Write a polite answer to this complaint: my parcel is late.",
    "target": "We are sorry for the delay. Your parcel will reach you tomorrow.",
}
_EXTRA_FIELDS = {
    "reference": "I am sorry that your parcel is late. I have asked the carrier, and it will arrive on Friday.",
    "history": "user: Hello, I ordered on Monday.\n\nassistant: How can I help?",
    "context": "Orders arrive within five days.",
    "candidates": ["It is late.", "Sorry! It will come on Friday, I have checked."],
    "responses": ["Sorry! It will come on Friday, I have checked.", "It is late."],
    "chosen": "Sorry! It will come on Friday, I have checked.",
    "rejected": "It is late.",
}


def example_input(config: PipelineConfig) -> str:
    """An example row (JSONL) of a pipeline, or the example source (JSON) of a corpus-level pipeline.

    A source type without an example is shown as its JSON schema.
    """
    if config.source is not None:
        example = getattr(config.source, "example", None)
        if example is None:
            return json.dumps(config.source.model_json_schema(), indent=2)
        return example().model_dump_json(indent=2)
    parameters = inspect.signature(GENERATORS.get(config.generator.kind).factory).parameters
    prompt = config.generator.prompt or (parameters["prompt"].default if "prompt" in parameters else None)
    placeholders = load_prompt(prompt, "generator").placeholders if prompt else ()
    row = _ROW | {
        "candidates" if name == "responses" else name: value
        for name, value in _EXTRA_FIELDS.items()
        if name in placeholders
    }
    return json.dumps(row, ensure_ascii=False)


def _show(name: str | None) -> None:
    if name is not None:
        typer.echo(example_input(load_config(name)))
        raise typer.Exit


ExampleInput = Annotated[
    str | None,
    typer.Option(
        "--example-input",
        metavar="PIPELINE",
        rich_help_panel=PIPELINE,
        show_default=False,
        is_eager=True,
        callback=_show,
        help="Print an example input of this pipeline and exit.",
    ),
]
