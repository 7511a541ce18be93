"""Who answers the questions, and how."""

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
        "The judge: pocket, a folder, a Hub id, a served name.",
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
        "The engine. auto: a server with --base-url, else vLLM if installed; for a folder by `distill`, encoder. "
        "remote: `checklist-rewards serve` at --base-url, which asks in its own way.",
        default=True,
    ),
]
BaseUrl = Annotated[
    str | None,
    option(JUDGE, "An OpenAI-compatible server: http://localhost:8000/v1, or openai, openrouter; or a reward server."),
]
EngineSettings = Annotated[
    list[str] | None,
    option(
        JUDGE,
        "What the engine is loaded with, NAME=VALUE by its own names (tensor_parallel_size=2, quantization=fp8, "
        "dtype=bfloat16, revision=v2, adapter=FOLDER), or a JSON object; may be given several times.",
        "--engine",
    ),
]
Concurrency = Annotated[int | None, option(OUTPUT, "Requests at once to a server.", min=1, default="the engine's")]
JudgePrompt = Annotated[
    str | None,
    option(
        JUDGE,
        "The judge's prompt: a packaged one, or a Markdown file.",
        "--prompt",
        "--scorer-prompt",
        default="the mode's",
    ),
]
Metric = Annotated[
    PrimaryMetric | None,
    option(JUDGE, "Which aggregate becomes the primary score.", default="the pipeline's, else expected"),
]
Threshold = Annotated[float | None, option(JUDGE, "An answer is yes from this P(yes) up, 0 to 1.", default="0.6")]
MinAnswered = Annotated[
    float | None, option(JUDGE, "Share of the weight that must be answered for a score, 0 to 1.", default="0.5")
]
MassFloor = Annotated[
    float | None, option(JUDGE, "Least P(yes) + P(no) for an answer to count at all, 0 to 1.", default="0.5")
]


@dataclass(frozen=True)
class Judge:
    """Who answers the questions, and how the answers are added up."""

    model: Model = "pocket"
    backend: Backend = "auto"
    base_url: BaseUrl = None
    engine_options: EngineSettings = None
    prompt: JudgePrompt = None
    mode: Annotated[
        Literal["item", "batch", "quality"] | None,
        option(
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
        option(
            JUDGE,
            "Read probabilities, or the words of a reply.",
            "--logprobs/--no-logprobs",
            default="where the mode and the engine can",
        ),
    ] = None
    capture_reasoning: Annotated[
        bool | None, option(JUDGE, "Have a reason written before each answer.", "--reasoning/--no-reasoning")
    ] = None
    samples: Annotated[int | None, option(JUDGE, "Replies per question; the majority counts.", min=1, default="1")] = (
        None
    )
    scorer_temperature: Annotated[
        float | None, option(JUDGE, "Of the judge's replies.", min=0, default="0, of several samples 0.7")
    ] = None
    examples: Annotated[
        str | None,
        option(JUDGE, "Labelled answers (target, question, label), a few of which are shown with each question."),
    ] = None
    shots: Annotated[int | None, option(JUDGE, "How many of them per question.", min=1, default="4")] = None
    example_reasons: Annotated[bool | None, option(JUDGE, "Show their reasons too.", "--example-reasons")] = None
    abstention: Annotated[Abstention | None, option(JUDGE, "What cannot_assess counts for.", default="skip")] = None
    judge: Annotated[
        str | None, option(JUDGE, "A YAML file that makes several judges a panel or a cascade, instead of --model.")
    ] = None
    calibration: Annotated[
        str | None, option(JUDGE, "What `checklist-rewards calibrate` has fitted on reads of this judge.")
    ] = None
    scale: Annotated[
        int | None, option(JUDGE, "Grades of so many steps instead of yes and no.", min=2, default="the pipeline's")
    ] = None
    checks: Annotated[
        Literal["only", "mean", "judge"] | None,
        option(JUDGE, "Who answers a question with a code check: the check, both (mean), the judge.", default="only"),
    ] = None
    allow_code: Annotated[
        bool | None,
        option(
            JUDGE,
            "Let checks run code that a model may have written, in an isolated interpreter "
            "(pip install 'checklist-rewards[code]').",
            "--allow-code",
        ),
    ] = None
    allow_unsafe_code: Annotated[
        bool | None,
        option(
            JUDGE,
            "Let them run it in a plain process, which can reach your files and the network.",
            "--allow-unsafe-code",
        ),
    ] = None

    @property
    def engine(self) -> Engine:
        """The engine that judges."""
        return Engine(self.model, self.backend, self.base_url, engine_settings("--engine", self.engine_options))

    @property
    def shown(self) -> str:
        """Who judges, in words: the model, the file of several, or the address of a reward server."""
        return self.judge or (str(self.base_url) if self.backend == REMOTE else self.model)

    @property
    def settings(self) -> dict[str, Any]:
        """What the user gave, as a scorer's settings."""
        settings = given(self, {"scorer_temperature": "temperature"})
        if settings.pop("allow_unsafe_code", False):
            settings["allow_code"] = "unsafe"
        return settings


@dataclass(frozen=True)
class OnlyJudge(Judge):
    """Who answers the questions, where nobody else is asked anything."""

    scorer_temperature: Annotated[
        float | None,
        option(
            JUDGE,
            "Of the judge's replies.",
            "--temperature",
            "--scorer-temperature",
            min=0,
            default="0, of several samples 0.7",
        ),
    ] = None
