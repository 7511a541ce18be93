"""The options that commands share, and what is built from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checklist_rewards.backends import BackendName
from checklist_rewards.errors import SampleError
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import PrimaryMetric

ROWS, JUDGE, WRITER, OUTPUT = "Rows", "Judge", "Checklist writer", "Output and store"

Rows = Annotated[
    Path, typer.Argument(metavar="ROWS", show_default=False, help="The rows: a .jsonl, .csv or .parquet file.")
]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        show_default=False,
        rich_help_panel=OUTPUT,
        help="The file to write (.jsonl, .csv or .parquet). It appears when it is whole, and replaces what was there.",
    ),
]
Summary = Annotated[
    Path | None,
    typer.Option(show_default=False, rich_help_panel=OUTPUT, help="Write the summary to this JSON file as well."),
]
StorePath = Annotated[
    Path | None,
    typer.Option(
        "--store",
        show_default="the user's cache folder",
        rich_help_panel=OUTPUT,
        help="File that keeps every answer of a model, so that nothing is asked twice.",
    ),
]
NoStore = Annotated[bool, typer.Option("--no-store", rich_help_panel=OUTPUT, help="Keep no answers.")]

InputKey = Annotated[
    list[str] | None,
    typer.Option(
        "--input-key",
        show_default="prompt, else input",
        rich_help_panel=ROWS,
        help="Key of what was asked; given several times, the texts are joined by an empty line.",
    ),
]
TargetKey = Annotated[
    str | None,
    typer.Option(
        "--target-key",
        show_default="target, else completion",
        rich_help_panel=ROWS,
        help="Key of the text being scored.",
    ),
]
ReferenceKey = Annotated[
    str | None,
    typer.Option("--reference-key", show_default="none", rich_help_panel=ROWS, help="Key of a known good answer."),
]
ChecklistKey = Annotated[
    str | None,
    typer.Option(
        "--checklist-key",
        show_default="checklist",
        rich_help_panel=ROWS,
        help="Key of the checklist: a list of questions, or of items with weights.",
    ),
]
ChecklistFile = Annotated[
    Path | None,
    typer.Option(
        "--checklist", show_default=False, rich_help_panel=ROWS, help="JSON file with one checklist for all rows."
    ),
]

Model = Annotated[
    str,
    typer.Option("--model", "-m", rich_help_panel=JUDGE, help="The judge: pocket, a folder, a Hub id, a served name."),
]
Backend = Annotated[
    BackendName,
    typer.Option(rich_help_panel=JUDGE, help="The engine. auto: a server with --base-url, else vLLM if installed."),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        show_default=False,
        rich_help_panel=JUDGE,
        help="An OpenAI-compatible server, such as http://localhost:8000/v1.",
    ),
]
JudgePrompt = Annotated[
    str,
    typer.Option("--prompt", rich_help_panel=JUDGE, help="The judge's prompt: a packaged one, or a Markdown file."),
]
Metric = Annotated[
    PrimaryMetric, typer.Option(rich_help_panel=JUDGE, help="Which aggregate becomes the primary score.")
]
Threshold = Annotated[float, typer.Option(rich_help_panel=JUDGE, help="An answer is yes from this P(yes) up, 0 to 1.")]
MinAnswered = Annotated[
    float, typer.Option(rich_help_panel=JUDGE, help="Share of the weight that must be answered for a score, 0 to 1.")
]
MassFloor = Annotated[
    float, typer.Option(rich_help_panel=JUDGE, help="Least P(yes) + P(no) for an answer to count at all, 0 to 1.")
]

WriterModel = Annotated[
    str,
    typer.Option(
        "--model", "-m", rich_help_panel=WRITER, help="The writer: pocket, a folder, a Hub id, a served name."
    ),
]
WriterPrompt = Annotated[
    str,
    typer.Option("--prompt", rich_help_panel=WRITER, help="The writer's prompt: a packaged one, or a Markdown file."),
]
MinItems = Annotated[
    int, typer.Option(min=1, rich_help_panel=WRITER, help="Fewer questions than this are asked for again.")
]
MaxItems = Annotated[
    int, typer.Option(min=1, rich_help_panel=WRITER, help="More questions than this are asked for again.")
]
MaxTokens = Annotated[
    int, typer.Option(min=1, rich_help_panel=WRITER, help="Length of one reply; thinking needs more.")
]
Temperature = Annotated[float, typer.Option(min=0, rich_help_panel=WRITER, help="0 is greedy, and asks only once.")]
Seed = Annotated[int, typer.Option(rich_help_panel=WRITER, help="Another seed, other samples.")]


def store_from(path: Path | None, no_store: bool) -> bool | Path:
    """What [`ChecklistScorer`] takes as `store`."""
    if path is not None and no_store:
        raise SampleError(f"--store {path} and --no-store contradict each other; give one of them.")
    return path or not no_store


def backend_beside(judge: BackendName, base_url: str | None) -> BackendName:
    """The engine of a second model: the judge's, unless one of the two is on a server of its own."""
    return "auto" if judge == "openai" or base_url is not None else judge


def scorer_from(
    model: str,
    backend: BackendName,
    base_url: str | None,
    prompt: str,
    metric: PrimaryMetric,
    threshold: float,
    min_answered: float,
    mass_floor: float,
    store: bool | Path,
) -> ChecklistScorer:
    """A scorer; no model is loaded."""
    return ChecklistScorer(
        model,
        backend=backend,
        base_url=base_url,
        prompt=prompt,
        primary_metric=metric,
        threshold=threshold,
        min_answered=min_answered,
        mass_floor=mass_floor,
        store=store,
    )
