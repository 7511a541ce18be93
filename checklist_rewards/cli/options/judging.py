"""Options of the judge, generated from [`JudgeSettings`], [`Aggregation`] and [`CheckSettings`]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from checklist_rewards.backends import Engine
from checklist_rewards.cli.options.base import JUDGE, OUTPUT, engine_settings, given, option
from checklist_rewards.cli.options.generated import NOT_AN_OPTION, SPELLED, group_of, option_of, setting
from checklist_rewards.fields import settings_of
from checklist_rewards.judges.checked import CheckSettings
from checklist_rewards.judges.remote import REMOTE
from checklist_rewards.judges.settings import ENGINE_SETTINGS, JudgeSettings
from checklist_rewards.pipelines import ScorerConfig
from checklist_rewards.scores import Aggregation

Concurrency = Annotated[
    int | None, option(OUTPUT, "Concurrent requests to a server, per address.", min=1, default="the engine's")
]

ENGINE = (
    setting(JudgeSettings, "backend", always=True),
    setting(JudgeSettings, "base_url"),
    (
        "engine_options",
        Annotated[
            list[str] | None,
            option_of(JudgeSettings, "engine", "--engine", form="NAME=VALUE or a JSON object, repeatable."),
        ],
        None,
    ),
)
_MODEL: Any = group_of(setting(JudgeSettings, "model", always=True), *ENGINE, setting(JudgeSettings, "prompt"))
_PROBED: Any = group_of(setting(Aggregation, "threshold"), setting(JudgeSettings, "mass_floor"))
_APART: dict[str, dict[str, Any]] = {
    "mode": {"default": "the pipeline's, else {}"},
    "primary_metric": {"attribute": "metric", "default": "the pipeline's, else {}"},
    "temperature": {"attribute": "scorer_temperature"},
}
_JUDGE: Any = group_of(
    *(
        setting(owner, name, **_APART.get(name, {}))
        for owner in (JudgeSettings, Aggregation)
        for name in settings_of(owner)
        if name not in (*ENGINE_SETTINGS, "prompt", *NOT_AN_OPTION)
    ),
    ("judge", Annotated[str | None, option_of(ScorerConfig, "judge")], None),
    ("scale", Annotated[int | None, option_of(ScorerConfig, "scale", min=2, default="the pipeline's")], None),
    setting(CheckSettings, "checks"),
)


@dataclass(frozen=True)
class JudgeModel(_MODEL):
    """The judge's engine and prompt."""

    @property
    def engine(self) -> Engine:
        """The judge's engine."""
        name = settings_of(JudgeSettings)["model"].default if self.model is None else self.model
        return Engine(name, self.backend, self.base_url, engine_settings("--engine", self.engine_options))


@dataclass(frozen=True)
class ProbeOptions(_PROBED, JudgeModel):
    """Options of a judge to test."""

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of `probe`."""
        return given(self, {})


@dataclass(frozen=True)
class JudgeOptions(_JUDGE, JudgeModel):
    """Options of the judge and of the aggregation of its answers."""

    model: Annotated[
        str | None, option_of(JudgeSettings, "model", *SPELLED["model"], default="the pipeline's, else pocket")
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
    def shown(self) -> str:
        """The judge's name for messages: its model, the file of judges, or the URL of the reward server."""
        return self.judge or (str(self.base_url) if self.backend == REMOTE else self.engine.model)

    @property
    def names_no_model(self) -> bool:
        """Whether the judge is the pipeline's: the user named neither a model nor a server."""
        return self.model is None and self.base_url is None and self.backend != REMOTE

    @property
    def settings(self) -> dict[str, Any]:
        """The options given by the user, as arguments of the scorer."""
        settings = given(self, {"scorer_temperature": "temperature"})
        if settings.pop("allow_unsafe_code", False):
            settings["allow_code"] = "unsafe"
        return settings


@dataclass(frozen=True)
class OnlyJudge(JudgeOptions):
    """Judge options for commands that need no writer model."""

    scorer_temperature: Annotated[
        float | None, option_of(JudgeSettings, "temperature", "--temperature", "--scorer-temperature", min=0)
    ] = None
    max_tokens: Annotated[int | None, option_of(JudgeSettings, "max_tokens", min=1)] = None


@dataclass(frozen=True)
class OtherJudge(OnlyJudge):
    """Judge options for a command that can also use stored answers."""

    model: Annotated[
        str | None, option_of(JudgeSettings, "model", *SPELLED["model"], default="the stored answers")
    ] = None

    @property
    def asks(self) -> bool:
        """Whether a judge answers."""
        named = self.model is not None or self.judge is not None or self.base_url is not None
        return named or self.backend != settings_of(JudgeSettings)["backend"].default
