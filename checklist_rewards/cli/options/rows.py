"""Options for files, columns, pipelines, the store, dry runs and budgets."""

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
        "Column of the input: text or chat messages. Repeatable; several columns are joined by a blank line.",
        "--input-key",
        default="prompt, else input",
    ),
]
TargetKey = Annotated[
    str | None, option(ROWS, "Column of the text to score.", "--target-key", default="target, else completion")
]
ChecklistKey = Annotated[
    str | None,
    option(
        ROWS,
        "Column of the checklist: a list of questions, or of items with weights.",
        "--checklist-key",
        default="checklist",
    ),
]
ChecklistFile = Annotated[Path | None, option(ROWS, "JSON file with a checklist to use for all rows.", "--checklist")]
Summary = Annotated[Path | None, option(OUTPUT, "Also write the summary to this JSON file.")]


@dataclass(frozen=True)
class Files:
    """The input and output files of a command."""

    rows: Annotated[
        Path,
        typer.Argument(metavar="ROWS", show_default=False, help="Input rows: a .jsonl, .csv or .parquet file."),
    ]
    output: Annotated[
        Path,
        option(
            OUTPUT,
            "Output file (.jsonl, .csv or .parquet). An existing file is replaced when the new one is complete.",
            "--output",
            "-o",
        ),
    ]
    summary: Summary = None


@dataclass(frozen=True)
class StoreOptions:
    """Where model answers are stored."""

    store: Annotated[
        Path | None,
        option(
            OUTPUT,
            "SQLite file that stores every model answer, so that no question is sent twice; with --ray a folder, "
            "with one file per shard.",
            "--store",
            default="in the user's cache folder",
        ),
    ] = None
    no_store: Annotated[bool, option(OUTPUT, "Do not store answers.", "--no-store")] = False

    def check(self) -> None:
        """Raises [`SampleError`] if both options are set."""
        if self.store is not None and self.no_store:
            raise SampleError(f"--store {self.store} and --no-store contradict each other; set only one of them.")

    def open(self) -> Store | None:
        """Open the store. Raises [`SampleError`] if both options are set."""
        self.check()
        return open_store(self.store or not self.no_store)


@dataclass(frozen=True)
class Dry:
    """Dry runs, prices and budgets."""

    dry_run: Annotated[
        bool,
        option(OUTPUT, "Print the expected calls, tokens and price. Loads no model and writes nothing.", "--dry-run"),
    ] = False
    price: Annotated[
        list[str] | None,
        option(
            OUTPUT,
            "US dollars per million prompt and reply tokens, as MODEL=IN,OUT, or a JSON or YAML file that maps models "
            "to such pairs. Repeatable.",
            "--price",
        ),
    ] = None
    budget: Annotated[
        float | None,
        option(
            OUTPUT,
            "Stop before more than this many US dollars are spent. Unanswered items are listed; rerun with a larger "
            "budget to continue.",
            "--budget",
            min=0,
        ),
    ] = None


@dataclass(frozen=True)
class Preset:
    """The pipeline. Other options override its settings."""

    pipeline: Annotated[
        str | None, option(PIPELINE, "Name of a pipeline; see `checklist-rewards list pipelines`.", "--pipeline")
    ] = None
    config: Annotated[
        Path | None, option(PIPELINE, "JSON or YAML file of a pipeline; check it with `checklist-rewards lint`.")
    ] = None

    def load(self) -> PipelineConfig:
        """The config. Raises [`ConfigError`]."""
        if self.pipeline is not None and self.config is not None:
            raise SampleError(f"--pipeline {self.pipeline} and --config {self.config}: set only one of them.")
        if self.pipeline is None and self.config is None:
            return PipelineConfig()
        return load_config(self.config if self.config is not None else str(self.pipeline))


@dataclass(frozen=True)
class Keys:
    """Columns of the input, the reference answer and the conversation history."""

    input_key: InputKey = None
    reference_key: Annotated[
        str | None, option(ROWS, "Column of a reference answer.", default="reference for the writer, else none")
    ] = None
    history_key: Annotated[
        str | None, option(ROWS, "Column of the conversation before the input, as text.", default="history")
    ] = None


@dataclass(frozen=True)
class WriterKeys(Keys):
    """Columns that some writer prompts use in addition."""

    context_key: Annotated[
        str | None, option(ROWS, "Column of a document the input refers to.", default="context")
    ] = None
    candidates_key: Annotated[
        str | None, option(ROWS, "Column of responses to compare: a list, best first.", default="candidates")
    ] = None
    chosen_key: Annotated[str | None, option(ROWS, "Column of the better of two responses.", default="chosen")] = None
    rejected_key: Annotated[str | None, option(ROWS, "Column of the worse one.", default="rejected")] = None
