"""What is read and written: files, keys, pipelines, the store, and what a run may cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from checklist_rewards.cli.options.base import OUTPUT, PIPELINE, ROWS, option
from checklist_rewards.errors import SampleError
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.pipelines import PipelineConfig, load_config

InputKey = Annotated[
    list[str] | None,
    option(
        ROWS,
        "Key of what was asked; given several times, the texts are joined by an empty line.",
        "--input-key",
        default="prompt, else input",
    ),
]
TargetKey = Annotated[
    str | None, option(ROWS, "Key of the text being scored.", "--target-key", default="target, else completion")
]
ChecklistKey = Annotated[
    str | None,
    option(
        ROWS,
        "Key of the checklist: a list of questions, or of items with weights.",
        "--checklist-key",
        default="checklist",
    ),
]
ChecklistFile = Annotated[Path | None, option(ROWS, "JSON file with one checklist for all rows.", "--checklist")]
Summary = Annotated[Path | None, option(OUTPUT, "Write the summary to this JSON file as well.")]


@dataclass(frozen=True)
class Files:
    """What is read and what is written."""

    rows: Annotated[
        Path,
        typer.Argument(metavar="ROWS", show_default=False, help="The rows: a .jsonl, .csv or .parquet file."),
    ]
    output: Annotated[
        Path,
        option(
            OUTPUT,
            "The file to write (.jsonl, .csv or .parquet). It appears when it is whole, and replaces what was there.",
            "--output",
            "-o",
        ),
    ]
    summary: Summary = None


@dataclass(frozen=True)
class Kept:
    """Where answers are kept."""

    store: Annotated[
        Path | None,
        option(
            OUTPUT,
            "File that keeps every answer of a model, so that nothing is asked twice.",
            "--store",
            default="the user's cache folder",
        ),
    ] = None
    no_store: Annotated[bool, option(OUTPUT, "Keep no answers.", "--no-store")] = False

    def opened(self) -> Store | None:
        """The store. Raises [`SampleError`] where the options contradict each other."""
        if self.store is not None and self.no_store:
            raise SampleError(f"--store {self.store} and --no-store contradict each other; give one of them.")
        return open_store(self.store or not self.no_store)


@dataclass(frozen=True)
class Dry:
    """Whether to count calls instead of making them, and what they cost."""

    dry_run: Annotated[
        bool, option(OUTPUT, "Print the calls, tokens and price to come; load no model, write nothing.", "--dry-run")
    ] = False
    price: Annotated[
        list[str] | None,
        option(
            OUTPUT,
            "US dollars per million prompt and reply tokens, as MODEL=IN,OUT; or a JSON or YAML file of such pairs.",
            "--price",
        ),
    ] = None
    budget: Annotated[
        float | None,
        option(
            OUTPUT,
            "Stop before more than this many US dollars are spent; unanswered items are listed, and the same command "
            "with a larger budget continues.",
            "--budget",
            min=0,
        ),
    ] = None


@dataclass(frozen=True)
class Preset:
    """The pipeline that all other options change."""

    pipeline: Annotated[
        str | None, option(PIPELINE, "A pipeline by name; see `checklist-rewards list pipelines`.", "--pipeline")
    ] = None
    config: Annotated[
        Path | None, option(PIPELINE, "A pipeline from a JSON or YAML file; see `checklist-rewards lint`.")
    ] = None

    def load(self) -> PipelineConfig:
        """The config. Raises [`ConfigError`]."""
        if self.pipeline is not None and self.config is not None:
            raise SampleError(f"--pipeline {self.pipeline} and --config {self.config}: give one of them.")
        if self.pipeline is None and self.config is None:
            return PipelineConfig()
        return load_config(self.config if self.config is not None else str(self.pipeline))


@dataclass(frozen=True)
class Keys:
    """Keys of the input and of what belongs to it."""

    input_key: InputKey = None
    reference_key: Annotated[
        str | None, option(ROWS, "Key of a known good answer.", default="reference for the writer, else none")
    ] = None
    history_key: Annotated[str | None, option(ROWS, "Key of the turns before the input.", default="history")] = None


@dataclass(frozen=True)
class WriterKeys(Keys):
    """Keys of what else a writer may be shown."""

    context_key: Annotated[str | None, option(ROWS, "Key of a text that the input speaks of.", default="context")] = (
        None
    )
    candidates_key: Annotated[
        str | None, option(ROWS, "Key of responses to compare, a list; the best first.", default="candidates")
    ] = None
    chosen_key: Annotated[str | None, option(ROWS, "Key of the better of two responses.", default="chosen")] = None
    rejected_key: Annotated[str | None, option(ROWS, "Key of the worse one.", default="rejected")] = None
