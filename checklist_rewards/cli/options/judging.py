"""Options of the judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from checklist_rewards.backends import Engine
from checklist_rewards.cli.options.base import JUDGE, OUTPUT, engine_settings, given, option
from checklist_rewards.judges.remote import REMOTE, JudgeBackend
from checklist_rewards.scores import Abstention, PrimaryMetric

Model = Annotated[
    str,
    option(
        JUDGE,
        "Judge model: pocket, a local folder, a Hub id, or the model name on a server.",
        "--model",
        "-m",
        "--scorer-model",
        default=True,
    ),
]
Backend = Annotated[
    JudgeBackend,
    option(
        JUDGE,
        "Inference engine. auto: the server at --base-url if given, else encoder for a folder written by `distill`, "
        "else vLLM if installed, else transformers. remote: a `checklist-rewards serve` at --base-url, whose own "
        "judge settings apply.",
        default=True,
    ),
]
BaseUrl = Annotated[
    str | None,
    option(
        JUDGE,
        "URL of an OpenAI-compatible server, such as http://localhost:8000/v1, or of a reward server; or the name "
        "openai or openrouter.",
    ),
]
EngineSettings = Annotated[
    list[str] | None,
    option(
        JUDGE,
        "Engine argument NAME=VALUE, passed to vLLM or transformers (tensor_parallel_size=2, quantization=fp8, "
        "dtype=bfloat16, revision=v2, adapter=FOLDER), or a JSON object. Repeatable.",
        "--engine",
    ),
]
Concurrency = Annotated[int | None, option(OUTPUT, "Concurrent requests to a server.", min=1, default="the engine's")]
JudgePrompt = Annotated[
    str | None,
    option(
        JUDGE,
        "Judge prompt: the name of a packaged prompt, or a Markdown file.",
        "--prompt",
        "--scorer-prompt",
        default="the mode's",
    ),
]
Metric = Annotated[
    PrimaryMetric | None,
    option(JUDGE, "Metric to use as the primary score.", default="the pipeline's, else expected"),
]
Threshold = Annotated[float | None, option(JUDGE, "Lowest P(yes) that counts as yes, 0 to 1.", default="0.6")]
MinAnswered = Annotated[
    float | None,
    option(JUDGE, "Fraction of the item weight that must be answered; below it there is no score.", default="0.5"),
]
MassFloor = Annotated[
    float | None, option(JUDGE, "Lowest P(yes) + P(no) for a read to count as answered, 0 to 1.", default="0.5")
]


@dataclass(frozen=True)
class Judge:
    """Options of the judge and of the aggregation of its answers."""

    model: Model = "pocket"
    backend: Backend = "auto"
    base_url: BaseUrl = None
    engine_options: EngineSettings = None
    prompt: JudgePrompt = None
    mode: Annotated[
        Literal["item", "batch", "quality"] | None,
        option(
            JUDGE,
            "item: one read per question. batch: one reply that answers all questions. quality: batch, plus an "
            "overall grade from 1 to 5.",
            default="the pipeline's, else item",
        ),
    ] = None
    metric: Metric = None
    threshold: Threshold = None
    min_answered: MinAnswered = None
    mass_floor: MassFloor = None
    use_logprobs: Annotated[
        bool | None,
        option(
            JUDGE,
            "Read label probabilities, or parse the text of a reply.",
            "--logprobs/--no-logprobs",
            default="logprobs, if the mode and the engine support them",
        ),
    ] = None
    capture_reasoning: Annotated[
        bool | None, option(JUDGE, "Let the judge write a reason before each answer.", "--reasoning/--no-reasoning")
    ] = None
    samples: Annotated[
        int | None, option(JUDGE, "Replies per question, combined by majority vote.", min=1, default="1")
    ] = None
    scorer_temperature: Annotated[
        float | None,
        option(JUDGE, "Sampling temperature of the judge's replies.", min=0, default="0; with several --samples 0.7"),
    ] = None
    examples: Annotated[
        str | None,
        option(JUDGE, "File of labelled answers (target, question, label) to use as few-shot examples."),
    ] = None
    shots: Annotated[int | None, option(JUDGE, "Examples per question.", min=1, default="4")] = None
    example_reasons: Annotated[
        bool | None, option(JUDGE, "Include the reasons of the examples in the prompt.", "--example-reasons")
    ] = None
    abstention: Annotated[
        Abstention | None, option(JUDGE, "How to score an item answered cannot_assess.", default="skip")
    ] = None
    judge: Annotated[
        str | None, option(JUDGE, "YAML file that defines a panel or cascade of judges, instead of --model.")
    ] = None
    calibration: Annotated[
        str | None, option(JUDGE, "Calibration file of this judge, written by `checklist-rewards calibrate`.")
    ] = None
    scale: Annotated[
        int | None,
        option(
            JUDGE, "Grade items on a scale with this many steps instead of yes/no.", min=2, default="the pipeline's"
        ),
    ] = None
    checks: Annotated[
        Literal["only", "mean", "judge"] | None,
        option(
            JUDGE,
            "Items with a code check are answered by: only, the check; mean, the mean of check and judge; judge, the "
            "judge.",
            default="only",
        ),
    ] = None
    allow_code: Annotated[
        bool | None,
        option(
            JUDGE,
            "Let checks run code, which a model may have written, in an isolated interpreter "
            "(pip install 'checklist-rewards[code]').",
            "--allow-code",
        ),
    ] = None
    allow_unsafe_code: Annotated[
        bool | None,
        option(
            JUDGE,
            "Let checks run code in an ordinary process with access to your files and the network.",
            "--allow-unsafe-code",
        ),
    ] = None

    @property
    def engine(self) -> Engine:
        """The judge's engine."""
        return Engine(self.model, self.backend, self.base_url, engine_settings("--engine", self.engine_options))

    @property
    def shown(self) -> str:
        """The judge's name for messages: its model, the file of judges, or the URL of the reward server."""
        return self.judge or (str(self.base_url) if self.backend == REMOTE else self.model)

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of the scorer."""
        settings = given(self, {"scorer_temperature": "temperature"})
        if settings.pop("allow_unsafe_code", False):
            settings["allow_code"] = "unsafe"
        return settings


@dataclass(frozen=True)
class OnlyJudge(Judge):
    """Judge options for commands that need no writer model."""

    scorer_temperature: Annotated[
        float | None,
        option(
            JUDGE,
            "Sampling temperature of the judge's replies.",
            "--temperature",
            "--scorer-temperature",
            min=0,
            default="0; with several --samples 0.7",
        ),
    ] = None
