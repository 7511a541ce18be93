"""Options of the checklist writer and of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from checklist_rewards.backends import SERVED, Engine
from checklist_rewards.backends.models import POCKET
from checklist_rewards.cli.options.base import WRITER, engine_settings, given, option
from checklist_rewards.cli.options.generated import group_of, option_of
from checklist_rewards.cli.options.judging import ENGINE, JudgeOptions
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.remote import REMOTE, JudgeBackend
from checklist_rewards.pipelines import GeneratorConfig

_PIPELINE = "the pipeline's"


def _field(name: str, *names: str, default: str | bool = False, **more: Any) -> Any:
    return option_of(GeneratorConfig, name, *names, panel=WRITER, default=default, **more)


@dataclass(frozen=True)
class Writing:
    """Options of a checklist generator."""

    refiner: Annotated[
        list[str] | None,
        option(WRITER, "Refiner to apply to the checklists. Repeatable, applied in order.", default=_PIPELINE),
    ] = None
    min_items: Annotated[int | None, _field("min_items", min=1, default=_PIPELINE)] = None
    max_items: Annotated[int | None, _field("max_items", min=1, default=_PIPELINE)] = None
    temperature: Annotated[float | None, _field("temperature", min=0, default="the pipeline's, else 0.7")] = None
    max_tokens: Annotated[int | None, _field("max_tokens", min=1, default="the generator's")] = None
    seed: Annotated[int | None, _field("seed", default="0")] = None
    shape: Annotated[str | None, _field("shape", default=_PIPELINE)] = None
    constraints: Annotated[bool | None, _field("constraints", default=_PIPELINE)] = None
    candidate_model: Annotated[list[str] | None, _field("candidate_models", form="Repeatable.")] = None
    num_candidates: Annotated[int | None, _field("num_candidates", min=1)] = None

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of the generator."""
        return given(self, {"generator_prompt": "prompt", "candidate_model": "candidate_models"})


_WRITER: Any = group_of(
    (
        "model",
        Annotated[
            str | None,
            option(
                WRITER,
                "Writer model: pocket, english-writer, a local folder, a Hub id, or the model name on a server.",
                "--model",
                "-m",
                "--generator-model",
                default="the pipeline's, else pocket",
            ),
        ],
        None,
    ),
    *ENGINE,
)


@dataclass(frozen=True)
class Writer(_WRITER, Writing):
    """Writer options for commands that need no judge."""

    generator_prompt: Annotated[str | None, _field("prompt", "--prompt", "--generator-prompt", default=_PIPELINE)] = (
        None
    )

    @property
    def engine(self) -> Engine:
        """The writer's engine."""
        model = self.model or POCKET
        return Engine(model, self.backend, self.base_url, engine_settings("--engine", self.engine_options))

    @property
    def names_no_model(self) -> bool:
        """Whether the writer is the pipeline's: the user named neither a model nor a server."""
        return self.model is None and self.base_url is None


@dataclass(frozen=True)
class OwnWriter(Writing):
    """Writer options for commands that also have a judge."""

    generator_model: Annotated[
        str | None, option(WRITER, "Model that writes the checklists.", default="the judge, or the pipeline's")
    ] = None
    generator_base_url: Annotated[str | None, option(WRITER, "URL of the server of --generator-model.")] = None
    generator_engine_options: Annotated[
        list[str] | None,
        option(WRITER, "Engine argument of --generator-model, as in --engine. Repeatable.", "--generator-engine"),
    ] = None
    generator_prompt: Annotated[str | None, _field("prompt", default=_PIPELINE)] = None

    @property
    def names_no_model(self) -> bool:
        """Whether the user named no writer."""
        return self.generator_model is None

    def engine_beside(self, judge: JudgeOptions) -> Engine:
        """The writer's engine: the judge's engine unless --generator-model is set."""
        settings = engine_settings("--generator-engine", self.generator_engine_options)
        if self.generator_model is None:
            if settings:
                raise SampleError("--generator-engine requires --generator-model; use --engine for the judge.")
            return judge.engine
        url = self.generator_base_url
        return Engine(self.generator_model, _backend_beside(judge.backend, url), url, settings)


def policy(
    judge: JudgeOptions, model: str | None, base_url: str | None, settings: Sequence[str] | None
) -> Engine | None:
    """The engine of --policy, or None without --policy. Raises [`SampleError`] for policy options without --policy."""
    if model is not None:
        found = engine_settings("--policy-engine", settings)
        return Engine(model, _backend_beside(judge.backend, base_url), base_url, found)
    if base_url is not None:
        raise SampleError(f"--policy-base-url {base_url} requires --policy, the model name on that server.")
    if settings:
        raise SampleError(f"--policy-engine {settings[0]} requires --policy; use --engine for the judge.")
    return None


def _backend_beside(judge: JudgeBackend, base_url: str | None) -> JudgeBackend:
    """The backend of a second model: the judge's backend unless one of the two models is on a server."""
    return "auto" if judge in (*SERVED, REMOTE) or base_url is not None else judge
