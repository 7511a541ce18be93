"""Options of the checklist writer and of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from checklist_rewards.backends import SERVED, Engine
from checklist_rewards.cli.options.base import WRITER, engine_settings, given, option
from checklist_rewards.cli.options.judging import Backend, BaseUrl, EngineSettings, Judge
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.remote import REMOTE, JudgeBackend


@dataclass(frozen=True)
class Writing:
    """Options of a checklist generator."""

    refiner: Annotated[
        list[str] | None,
        option(WRITER, "Refiner to apply to the checklists. Repeatable, applied in order.", default="the pipeline's"),
    ] = None
    min_items: Annotated[
        int | None,
        option(WRITER, "Fewest questions; the model is asked again for more.", min=1, default="the pipeline's"),
    ] = None
    max_items: Annotated[
        int | None,
        option(WRITER, "Most questions; the model is asked again for fewer.", min=1, default="the pipeline's"),
    ] = None
    temperature: Annotated[
        float | None,
        option(
            WRITER,
            "Sampling temperature. 0 is greedy and makes no second attempt.",
            min=0,
            default="the pipeline's, else 0.7",
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        option(WRITER, "Most tokens per reply; thinking models need more.", min=1, default="the generator's"),
    ] = None
    seed: Annotated[int | None, option(WRITER, "Random seed of the sampling.", default="0")] = None
    shape: Annotated[
        str | None,
        option(
            WRITER, "JSON schema of a reply: questions, weighted, categorized or checked.", default="the pipeline's"
        ),
    ] = None
    candidate_model: Annotated[
        list[str] | None,
        option(WRITER, "Model to sample candidates from, for rows without candidates. Repeatable."),
    ] = None
    num_candidates: Annotated[int | None, option(WRITER, "Number of candidates to sample.", min=1)] = None

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of the generator."""
        return given(self, {"generator_prompt": "prompt", "candidate_model": "candidate_models"})


@dataclass(frozen=True)
class Writer(Writing):
    """Writer options for commands that need no judge."""

    model: Annotated[
        str,
        option(
            WRITER,
            "Writer model: pocket, a local folder, a Hub id, or the model name on a server.",
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
            "Writer prompt: the name of a packaged prompt, or a Markdown file.",
            "--prompt",
            "--generator-prompt",
            default="the pipeline's",
        ),
    ] = None

    @property
    def engine(self) -> Engine:
        """The writer's engine."""
        return Engine(self.model, self.backend, self.base_url, engine_settings("--engine", self.engine_options))


@dataclass(frozen=True)
class OwnWriter(Writing):
    """Writer options for commands that also have a judge."""

    generator_model: Annotated[
        str | None, option(WRITER, "Model that writes the checklists.", default="the judge")
    ] = None
    generator_base_url: Annotated[str | None, option(WRITER, "URL of the server of --generator-model.")] = None
    generator_engine_options: Annotated[
        list[str] | None,
        option(WRITER, "Engine argument of --generator-model, as in --engine. Repeatable.", "--generator-engine"),
    ] = None
    generator_prompt: Annotated[
        str | None,
        option(WRITER, "Writer prompt: the name of a packaged prompt, or a Markdown file.", default="the pipeline's"),
    ] = None

    def engine_beside(self, judge: Judge) -> Engine:
        """The writer's engine: the judge's engine unless --generator-model is set."""
        settings = engine_settings("--generator-engine", self.generator_engine_options)
        if self.generator_model is None:
            if settings:
                raise SampleError("--generator-engine requires --generator-model; use --engine for the judge.")
            return judge.engine
        url = self.generator_base_url
        return Engine(self.generator_model, _backend_beside(judge.backend, url), url, settings)


def policy(judge: Judge, model: str | None, base_url: str | None, settings: Sequence[str] | None) -> Engine | None:
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
