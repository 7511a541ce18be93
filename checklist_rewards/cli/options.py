"""The options of all commands, in the groups that commands take, and what is built from them.

What a pipeline has a default for is None here: only what the user gave beats the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from checklist_rewards.backends import BackendName
from checklist_rewards.backends.remote import REMOTE
from checklist_rewards.errors import SampleError
from checklist_rewards.pipelines import PipelineConfig, load_config
from checklist_rewards.replies import Engine
from checklist_rewards.scores import Abstention, PrimaryMetric
from checklist_rewards.store import Store, open_store

ROWS, JUDGE, WRITER, OUTPUT = "Rows", "Judge", "Checklist writer", "Output and store"
PIPELINE = "Pipeline"


def _option(panel: str, help: str, *names: str, default: str | bool = False, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, help=help, show_default=default, **more)


Model = Annotated[
    str,
    _option(
        JUDGE,
        "The judge: pocket, a folder, a Hub id, a served name.",
        "--model",
        "-m",
        "--scorer-model",
        default=True,
    ),
]
Backend = Annotated[
    BackendName,
    _option(
        JUDGE,
        "The engine. auto: a server with --base-url, else vLLM if installed. remote: `checklist-rewards serve` at "
        "--base-url, which asks in its own way.",
        default=True,
    ),
]
BaseUrl = Annotated[
    str | None,
    _option(
        JUDGE, "An OpenAI-compatible server: http://localhost:8000/v1, or openai, openrouter; or a reward server."
    ),
]
Concurrency = Annotated[int | None, _option(OUTPUT, "Requests at once to a server.", min=1, default="the engine's")]
JudgePrompt = Annotated[
    str | None,
    _option(
        JUDGE,
        "The judge's prompt: a packaged one, or a Markdown file.",
        "--prompt",
        "--scorer-prompt",
        default="the mode's",
    ),
]
Metric = Annotated[
    PrimaryMetric | None,
    _option(JUDGE, "Which aggregate becomes the primary score.", default="the pipeline's, else expected"),
]
Threshold = Annotated[float | None, _option(JUDGE, "An answer is yes from this P(yes) up, 0 to 1.", default="0.6")]
MinAnswered = Annotated[
    float | None, _option(JUDGE, "Share of the weight that must be answered for a score, 0 to 1.", default="0.5")
]
MassFloor = Annotated[
    float | None, _option(JUDGE, "Least P(yes) + P(no) for an answer to count at all, 0 to 1.", default="0.5")
]
InputKey = Annotated[
    list[str] | None,
    _option(
        ROWS,
        "Key of what was asked; given several times, the texts are joined by an empty line.",
        "--input-key",
        default="prompt, else input",
    ),
]
TargetKey = Annotated[
    str | None, _option(ROWS, "Key of the text being scored.", "--target-key", default="target, else completion")
]
ChecklistKey = Annotated[
    str | None,
    _option(
        ROWS,
        "Key of the checklist: a list of questions, or of items with weights.",
        "--checklist-key",
        default="checklist",
    ),
]
ChecklistFile = Annotated[Path | None, _option(ROWS, "JSON file with one checklist for all rows.", "--checklist")]
Summary = Annotated[Path | None, _option(OUTPUT, "Write the summary to this JSON file as well.")]


@dataclass(frozen=True)
class Files:
    """What is read and what is written."""

    rows: Annotated[
        Path,
        typer.Argument(metavar="ROWS", show_default=False, help="The rows: a .jsonl, .csv or .parquet file."),
    ]
    output: Annotated[
        Path,
        _option(
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
        _option(
            OUTPUT,
            "File that keeps every answer of a model, so that nothing is asked twice.",
            "--store",
            default="the user's cache folder",
        ),
    ] = None
    no_store: Annotated[bool, _option(OUTPUT, "Keep no answers.", "--no-store")] = False

    def opened(self) -> Store | None:
        """The store. Raises [`SampleError`] where the options contradict each other."""
        if self.store is not None and self.no_store:
            raise SampleError(f"--store {self.store} and --no-store contradict each other; give one of them.")
        return open_store(self.store or not self.no_store)


@dataclass(frozen=True)
class Dry:
    """Whether to count calls instead of making them, and what they cost."""

    dry_run: Annotated[
        bool, _option(OUTPUT, "Print the calls, tokens and price to come; load no model, write nothing.", "--dry-run")
    ] = False
    price: Annotated[
        list[str] | None,
        _option(
            OUTPUT,
            "US dollars per million prompt and reply tokens, as MODEL=IN,OUT; or a JSON or YAML file of such pairs.",
            "--price",
        ),
    ] = None
    budget: Annotated[
        float | None,
        _option(
            OUTPUT,
            "Stop asking when so many US dollars are spent; what is missing is listed, and the store goes on from it.",
            "--budget",
            min=0,
        ),
    ] = None


@dataclass(frozen=True)
class Preset:
    """The pipeline that all other options change."""

    pipeline: Annotated[
        str | None, _option(PIPELINE, "A pipeline by name; see `checklist-rewards list pipelines`.", "--pipeline")
    ] = None
    config: Annotated[
        Path | None, _option(PIPELINE, "A pipeline from a JSON or YAML file; see `checklist-rewards lint`.")
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
        str | None, _option(ROWS, "Key of a known good answer.", default="reference for the writer, else none")
    ] = None
    history_key: Annotated[str | None, _option(ROWS, "Key of the turns before the input.", default="history")] = None


@dataclass(frozen=True)
class WriterKeys(Keys):
    """Keys of what else a writer may be shown."""

    context_key: Annotated[str | None, _option(ROWS, "Key of a text that the input speaks of.", default="context")] = (
        None
    )
    candidates_key: Annotated[
        str | None, _option(ROWS, "Key of responses to compare, a list; the best first.", default="candidates")
    ] = None
    chosen_key: Annotated[str | None, _option(ROWS, "Key of the better of two responses.", default="chosen")] = None
    rejected_key: Annotated[str | None, _option(ROWS, "Key of the worse one.", default="rejected")] = None


@dataclass(frozen=True)
class Judge:
    """Who answers the questions, and how the answers are added up."""

    model: Model = "pocket"
    backend: Backend = "auto"
    base_url: BaseUrl = None
    prompt: JudgePrompt = None
    mode: Annotated[
        Literal["item", "batch", "quality"] | None,
        _option(
            JUDGE,
            "item: a read per question. batch: one reply to all. quality: one reply to all, with a grade from 1 to 5.",
            default="the pipeline's, else item",
        ),
    ] = None
    metric: Metric = None
    threshold: Threshold = None
    min_answered: MinAnswered = None
    mass_floor: MassFloor = None
    use_logprobs: Annotated[
        bool | None,
        _option(
            JUDGE,
            "Read probabilities, or the words of a reply.",
            "--logprobs/--no-logprobs",
            default="where the mode and the engine can",
        ),
    ] = None
    capture_reasoning: Annotated[
        bool | None, _option(JUDGE, "Have a reason written before each answer.", "--reasoning/--no-reasoning")
    ] = None
    samples: Annotated[
        int | None, _option(JUDGE, "Replies per question; the majority counts.", min=1, default="1")
    ] = None
    scorer_temperature: Annotated[
        float | None, _option(JUDGE, "Of the judge's replies.", min=0, default="0, of several samples 0.7")
    ] = None
    examples: Annotated[
        str | None,
        _option(JUDGE, "Labelled answers (target, question, label), a few of which are shown with each question."),
    ] = None
    shots: Annotated[int | None, _option(JUDGE, "How many of them per question.", min=1, default="4")] = None
    example_reasons: Annotated[bool | None, _option(JUDGE, "Show their reasons too.", "--example-reasons")] = None
    abstention: Annotated[Abstention | None, _option(JUDGE, "What cannot_assess counts for.", default="skip")] = None
    judge: Annotated[
        str | None, _option(JUDGE, "A YAML file that makes several judges a panel or a cascade, instead of --model.")
    ] = None
    calibration: Annotated[
        str | None, _option(JUDGE, "What `checklist-rewards calibrate` has fitted on reads of this judge.")
    ] = None
    scale: Annotated[
        int | None, _option(JUDGE, "Grades of so many steps instead of yes and no.", min=2, default="the pipeline's")
    ] = None
    checks: Annotated[
        Literal["only", "mean", "judge"] | None,
        _option(JUDGE, "Who answers a question with a code check: the check, both (mean), the judge.", default="only"),
    ] = None
    allow_code: Annotated[
        bool | None, _option(JUDGE, "Let checks run code that a model may have written.", "--allow-code")
    ] = None

    @property
    def engine(self) -> Engine:
        """Who judges."""
        return Engine(self.model, self.backend, self.base_url)

    @property
    def shown(self) -> str:
        """Who judges, in words: the model, the file of several, or the address of a reward server."""
        return self.judge or (str(self.base_url) if self.backend == REMOTE else self.model)

    @property
    def settings(self) -> dict[str, Any]:
        """What the user gave, as a scorer's settings."""
        return _given(self, {"scorer_temperature": "temperature"})


@dataclass(frozen=True)
class OnlyJudge(Judge):
    """Who answers the questions, where nobody else is asked anything."""

    scorer_temperature: Annotated[
        float | None,
        _option(
            JUDGE,
            "Of the judge's replies.",
            "--temperature",
            "--scorer-temperature",
            min=0,
            default="0, of several samples 0.7",
        ),
    ] = None


@dataclass(frozen=True)
class Writing:
    """How checklists are written."""

    refiner: Annotated[
        list[str] | None,
        _option(WRITER, "A refiner; may be given several times, in order.", default="the pipeline's"),
    ] = None
    min_items: Annotated[
        int | None, _option(WRITER, "Fewer questions than this are asked for again.", min=1, default="the pipeline's")
    ] = None
    max_items: Annotated[
        int | None, _option(WRITER, "More questions than this are asked for again.", min=1, default="the pipeline's")
    ] = None
    temperature: Annotated[
        float | None,
        _option(WRITER, "0 is greedy, and asks only once.", min=0, default="the pipeline's, else 0.7"),
    ] = None
    max_tokens: Annotated[
        int | None, _option(WRITER, "Length of one reply; thinking needs more.", min=1, default="the generator's")
    ] = None
    seed: Annotated[int | None, _option(WRITER, "Another seed, other samples.", default="0")] = None
    shape: Annotated[
        str | None,
        _option(WRITER, "The JSON of a reply: questions, weighted, categorized or checked.", default="the pipeline's"),
    ] = None
    candidate_model: Annotated[
        list[str] | None,
        _option(WRITER, "A model to sample candidates from, where rows have none; may be given several times."),
    ] = None
    num_candidates: Annotated[int | None, _option(WRITER, "How many candidates to sample.", min=1)] = None

    @property
    def settings(self) -> dict[str, Any]:
        """What the user gave, as a generator's settings."""
        return _given(self, {"generator_prompt": "prompt", "candidate_model": "candidate_models"})


@dataclass(frozen=True)
class Writer(Writing):
    """Who writes the checklists, where nobody judges."""

    model: Annotated[
        str,
        _option(
            WRITER,
            "The writer: pocket, a folder, a Hub id, a served name.",
            "--model",
            "-m",
            "--generator-model",
            default=True,
        ),
    ] = "pocket"
    backend: Backend = "auto"
    base_url: BaseUrl = None
    generator_prompt: Annotated[
        str | None,
        _option(
            WRITER,
            "The writer's prompt: a packaged one, or a Markdown file.",
            "--prompt",
            "--generator-prompt",
            default="the pipeline's",
        ),
    ] = None

    @property
    def engine(self) -> Engine:
        """Who writes."""
        return Engine(self.model, self.backend, self.base_url)


@dataclass(frozen=True)
class OwnWriter(Writing):
    """Who writes the checklists, beside a judge."""

    generator_model: Annotated[
        str | None, _option(WRITER, "The model that writes the checklists.", default="the judge")
    ] = None
    generator_base_url: Annotated[str | None, _option(WRITER, "The server of --generator-model, if it is served.")] = (
        None
    )
    generator_prompt: Annotated[
        str | None,
        _option(WRITER, "The writer's prompt: a packaged one, or a Markdown file.", default="the pipeline's"),
    ] = None

    def engine_beside(self, judge: Judge) -> Engine:
        """Who writes: the judge, unless another model is named."""
        if self.generator_model is None:
            return judge.engine
        url = self.generator_base_url
        return Engine(self.generator_model, backend_beside(judge.backend, url), url)


def backend_beside(judge: BackendName, base_url: str | None) -> BackendName:
    """The engine of a second model: the judge's, unless one of the two is on a server of its own."""
    return "auto" if judge in ("openai", REMOTE) or base_url is not None else judge


_NO_SETTINGS = ("model", "backend", "base_url", "generator_model", "generator_base_url", "refiner")


def _given(group: Any, renamed: Mapping[str, str]) -> dict[str, Any]:
    values = {field.name: getattr(group, field.name) for field in fields(group) if field.name not in _NO_SETTINGS}
    return {renamed.get(name, name): value for name, value in values.items() if value is not None and value != []}
