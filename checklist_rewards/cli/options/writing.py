"""Who writes the checklists, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from checklist_rewards.backends import Engine
from checklist_rewards.cli.options.base import WRITER, engine_settings, given, option
from checklist_rewards.cli.options.judging import Backend, BaseUrl, EngineSettings, Judge
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.remote import REMOTE, JudgeBackend


@dataclass(frozen=True)
class Writing:
    """How checklists are written."""

    refiner: Annotated[
        list[str] | None,
        option(WRITER, "A refiner; may be given several times, in order.", default="the pipeline's"),
    ] = None
    min_items: Annotated[
        int | None, option(WRITER, "Fewer questions than this are asked for again.", min=1, default="the pipeline's")
    ] = None
    max_items: Annotated[
        int | None, option(WRITER, "More questions than this are asked for again.", min=1, default="the pipeline's")
    ] = None
    temperature: Annotated[
        float | None,
        option(WRITER, "0 is greedy, and asks only once.", min=0, default="the pipeline's, else 0.7"),
    ] = None
    max_tokens: Annotated[
        int | None, option(WRITER, "Length of one reply; thinking needs more.", min=1, default="the generator's")
    ] = None
    seed: Annotated[int | None, option(WRITER, "Another seed, other samples.", default="0")] = None
    shape: Annotated[
        str | None,
        option(WRITER, "The JSON of a reply: questions, weighted, categorized or checked.", default="the pipeline's"),
    ] = None
    candidate_model: Annotated[
        list[str] | None,
        option(WRITER, "A model to sample candidates from, where rows have none; may be given several times."),
    ] = None
    num_candidates: Annotated[int | None, option(WRITER, "How many candidates to sample.", min=1)] = None

    @property
    def settings(self) -> dict[str, Any]:
        """What the user gave, as a generator's settings."""
        return given(self, {"generator_prompt": "prompt", "candidate_model": "candidate_models"})


@dataclass(frozen=True)
class Writer(Writing):
    """Who writes the checklists, where nobody judges."""

    model: Annotated[
        str,
        option(
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
    engine_options: EngineSettings = None
    generator_prompt: Annotated[
        str | None,
        option(
            WRITER,
            "The writer's prompt: a packaged one, or a Markdown file.",
            "--prompt",
            "--generator-prompt",
            default="the pipeline's",
        ),
    ] = None

    @property
    def engine(self) -> Engine:
        """The engine that writes."""
        return Engine(self.model, self.backend, self.base_url, engine_settings("--engine", self.engine_options))


@dataclass(frozen=True)
class OwnWriter(Writing):
    """Who writes the checklists, beside a judge."""

    generator_model: Annotated[
        str | None, option(WRITER, "The model that writes the checklists.", default="the judge")
    ] = None
    generator_base_url: Annotated[str | None, option(WRITER, "The server of --generator-model, if it is served.")] = (
        None
    )
    generator_engine_options: Annotated[
        list[str] | None,
        option(WRITER, "What the engine of --generator-model is loaded with, as in --engine.", "--generator-engine"),
    ] = None
    generator_prompt: Annotated[
        str | None,
        option(WRITER, "The writer's prompt: a packaged one, or a Markdown file.", default="the pipeline's"),
    ] = None

    def engine_beside(self, judge: Judge) -> Engine:
        """The engine that writes: the judge's, unless another model is named."""
        settings = engine_settings("--generator-engine", self.generator_engine_options)
        if self.generator_model is None:
            if settings:
                raise SampleError("--generator-engine needs --generator-model; --engine is for the judge.")
            return judge.engine
        url = self.generator_base_url
        return Engine(self.generator_model, _backend_beside(judge.backend, url), url, settings)


def policy(judge: Judge, model: str | None, base_url: str | None, settings: Sequence[str] | None) -> Engine | None:
    """The engine of --policy; None if no policy is named. Raises [`SampleError`] for settings of a policy that is not
    named."""
    if model is not None:
        found = engine_settings("--policy-engine", settings)
        return Engine(model, _backend_beside(judge.backend, base_url), base_url, found)
    if base_url is not None:
        raise SampleError(f"--policy-base-url {base_url} needs --policy, the model's name there.")
    if settings:
        raise SampleError(f"--policy-engine {settings[0]} needs --policy; --engine is for the judge.")
    return None


def _backend_beside(judge: JudgeBackend, base_url: str | None) -> JudgeBackend:
    """The backend of a second model: the judge's, unless one of the two is on a server of its own."""
    return "auto" if judge in ("openai", REMOTE) or base_url is not None else judge
