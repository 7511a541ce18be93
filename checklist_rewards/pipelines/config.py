"""The config of a pipeline: generator, refiners and scorer with their settings, as JSON or YAML.

    name: haiku
    generator: {prompt: my_writer.md, max_items: 6}
    refiners: [deduplicator]
    scorer: {mode: batch, metric: pass}

Missing settings use the default of the part. A config is validated when it is created, before any model is loaded:
unknown keys and names, missing or invalid prompts, and invalid values raise a [`ConfigError`] with the location, the
value and the allowed values. A prompt is the name of a packaged prompt or a file, never the text itself, so a
misspelled name is an error. Relative paths are resolved against the folder of the config and stored as absolute paths.

`PipelineConfig.load(path)` restores exactly what `save(path)` wrote.

Reply shapes have names in config files; in Python, generators accept any pydantic class as `shape`. Sources of
corpus-level pipelines (dimensions, observations, think-aloud protocols) come from objects, mappings or files. Their
schema is the pydantic model of the generator, which also has the documentation and an `example`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.config import Config
from checklist_rewards.errors import ChecklistRewardsError, ConfigError
from checklist_rewards.files.documents import in_folder, load, write_value
from checklist_rewards.judges.settings import ENGINE_SETTINGS, JudgeConfig, ScorerConfig
from checklist_rewards.pipelines.registry import GENERATORS, REFINERS, SCORERS, SURROUNDINGS, Entry, Registry
from checklist_rewards.prompts import prompt_file
from checklist_rewards.validation import unknown
from checklist_rewards.writer import WriterSampling

_SHAPES = {
    "questions": "Questions",
    "weighted": "WeightedQuestions",
    "categorized": "CategorizedQuestions",
    "checked": "CheckedQuestions",
}


def source_from(config: PipelineConfig, value: Any) -> BaseModel:
    """Parse and validate the source of a pipeline.

    Args:
        config ([`PipelineConfig`]): config of a corpus-level pipeline.
        value: an instance of `config.source`, a mapping, or the path of a JSON or YAML file.

    Raises:
        ConfigError: If the source is not valid. The message names the field, and the line of a file.
    """
    shape = config.source
    if shape is None:
        raise ConfigError(f"pipeline {config.name!r} writes a checklist per input and has no source.")
    if isinstance(value, shape):
        return value
    return load(value, shape) if isinstance(value, str | Path) else load(value, shape, "source")


_OF_A_MODE = [name for name in JudgeConfig.model_fields if name not in (*ENGINE_SETTINGS, "mode", "mass_floor")]


class _Part(Config):
    """Base of writer, refiner and scorer configs: a registered name and settings."""

    registry: ClassVar[Registry]

    kind: str
    options: dict[str, JsonValue] = {}
    """Further settings for registered parts with other parameters."""

    @field_validator("*", mode="wrap")
    @classmethod
    def _as_given(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        return check(value)  # 1 is 1.0 in a pipeline: keys of the store are made from it

    @property
    def entry(self) -> Entry:
        """The registered part. Raises [`ConfigError`] if its name is unknown."""
        return self.registry.get(self.kind)

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        """Validate the settings by creating the part (built-in parts only), which loads no model."""
        entry, what, settings = self.entry, self.registry.what, self.settings()
        misplaced = [name for name in self.options if name in type(self).model_fields or name in SURROUNDINGS]
        if misplaced:
            own = misplaced[0] in type(self).model_fields
            advice = "set it outside `options`" if own else "pass it to the command or to `pipeline`"
            raise ConfigError(f"options: {misplaced[0]!r} is not an option of a {what}; {advice}.")
        entry.check_settings(settings, what)
        if not entry.built_in:
            return self
        required: dict[str, Any] = {"store": False}
        if "judge" not in settings:  # an arbitrary model; it is not loaded. The backend requires no extra
            required |= {"model": "pocket", "backend": "openai"}
        if entry.takes("scorer"):
            required["scorer"] = SCORERS.get("checklist").factory(**required)
        try:
            entry.factory(**{name: value for name, value in required.items() if entry.takes(name)}, **settings)
        except TypeError as error:
            raise ConfigError(f"{what} {self.kind!r} cannot be created with {settings!r:.200} ({error}).") from None
        except ChecklistRewardsError as error:
            raise ConfigError(str(error)) from None
        return self

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of the part; unset values are omitted."""
        others = ("kind", "options", "model")
        named = {name: getattr(self, name) for name in type(self).model_fields if name not in others}
        return {name: value for name, value in named.items() if value is not None} | self.options


def _existing(prompt: str, info: ValidationInfo) -> str:
    placed: str = in_folder(prompt, info)
    prompt_file(placed)
    return placed


class WriterConfig(WriterSampling, _Part):
    """Settings of the writer: the generator of a pipeline, its model and how it is sampled."""

    registry = GENERATORS

    kind: str = "direct"
    model: str | None = None
    """Model that writes the checklists."""
    prompt: str | None = None
    """Writer prompt: the name of a packaged prompt, or a Markdown file."""
    prompts: dict[str, str] | None = None
    """For corpus-level generators: stage name to the prompt that replaces its default."""
    shape: str | None = None
    """JSON form of a reply: questions, weighted, categorized or checked. Defaults to a plain numbered list."""
    min_items: int | None = None
    """Minimum number of questions. A shorter list is rejected, and the model writes another."""
    max_items: int | None = None
    """Maximum number of questions. A longer list is rejected, and the model writes another."""
    constraints: bool | None = None
    """Begin each checklist with the code checks that rules find in the input; the model writes the rest. A rule may
    misread a requirement."""
    drop_faults: bool | None = None
    """Leave out faulty entries of a numbered list (statements, copies of the input, repetitions) instead of refusing
    the reply. English only."""
    num_candidates: int | None = None
    """Number of candidates to sample per input, for rows without candidates."""
    candidate_models: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Model to sample candidates from, for rows without candidates."""

    @field_validator("prompt")
    @classmethod
    def _prompt(cls, prompt: str | None, info: ValidationInfo) -> str | None:
        return prompt if prompt is None else _existing(prompt, info)

    @field_validator("prompts")
    @classmethod
    def _prompts(cls, prompts: dict[str, str] | None, info: ValidationInfo) -> dict[str, str] | None:
        return {stage: _existing(prompt, info) for stage, prompt in (prompts or {}).items()} or None

    @field_validator("shape")
    @classmethod
    def _shape(cls, shape: str | None) -> str | None:
        if shape is not None and shape not in _SHAPES:
            raise ConfigError(unknown("shape", shape, list(_SHAPES)))
        return shape

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of the generator; `shape` is the pydantic class instead of its name."""
        settings = super().settings()
        if self.shape is None:
            return settings
        from checklist_rewards.generators import shapes  # with all generators, half of the time to start a command

        return settings | {"shape": getattr(shapes, _SHAPES[self.shape])}


class RefinerConfig(_Part):
    """Settings of one refiner. A config may contain only the name instead of a mapping."""

    registry = REFINERS

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data


class ScorerPart(_Part, ScorerConfig):
    """Settings of the scorer, as [`ScorerConfig`]. null stands for the default."""

    registry = SCORERS

    kind: str = "checklist"
    judge: str | None = None
    """YAML file of judges; see [`ScorerConfig`]."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_the_default(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        given = {name: value for name, value in data.items() if value is not None}
        for name in ("store", "budget"):
            if given.pop(name, cls.model_fields[name].default) is not cls.model_fields[name].default:
                raise ConfigError(f"{name} is not allowed in a pipeline; pass it to the command or to `pipeline`.")
        return given

    def settings(self) -> dict[str, Any]:
        """The arguments of the scorer that the config sets, without its engine."""
        others = ("kind", "options", *ENGINE_SETTINGS)
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in others}
        changed = {name: value for name, value in values.items() if value != type(self).model_fields[name].default}
        return changed | self.options


class PipelineConfig(BaseModel):
    """The config of a pipeline."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str = Field(default="custom", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    description: str = ""
    paper: str | None = None
    generator: WriterConfig = Field(default_factory=WriterConfig)
    refiners: tuple[RefinerConfig, ...] = ()
    scorer: ScorerPart = Field(default_factory=ScorerPart)
    universal: tuple[ChecklistItem, ...] = ()
    """Items appended to every checklist."""

    @property
    def corpus_level(self) -> bool:
        """Whether the pipeline writes one checklist for a whole corpus instead of one per input."""
        return self.source is not None

    @property
    def source(self) -> type[BaseModel] | None:
        """The source class of a corpus-level pipeline; None for other pipelines."""
        return GENERATORS.get(self.generator.kind).source

    def replace(self, changes: Mapping[str, Any], where: str | None = None) -> PipelineConfig:
        """A copy of this config with changed values, which are validated.

        A mapping for `generator` or `scorer` changes only the given keys. Changing the scorer mode resets the settings
        that belong to the old mode, such as its prompt; mode quality and its metric come and go together.

        Raises:
            ConfigError: If a value is not valid. The message begins with `where`.
        """
        data = self.model_dump(mode="json")
        for name, value in changes.items():
            value = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
            merge = name in ("generator", "scorer") and isinstance(value, Mapping)
            if merge and name == "scorer" and value.get("mode") not in (None, self.scorer.mode):
                graded = "quality" in (value["mode"], self.scorer.metric)
                data[name] |= dict.fromkeys([*_OF_A_MODE, "metric"] if graded else _OF_A_MODE)
            data[name] = {**data[name], **value} if merge else value
        return self.parse(data, where or f"pipeline {self.name!r}")

    @classmethod
    def parse(cls, value: Any, where: str = "config", folder: str | Path | None = None) -> PipelineConfig:
        """Create a config from a mapping.

        Args:
            value (mapping): the content of a config file.
            where (`str`, *optional*, defaults to `"config"`): name of the config in error messages.
            folder (`str` or `Path`, *optional*): folder of relative paths. Defaults to the working directory.

        Raises:
            ConfigError: If the config is not valid. The message has `where`, the key, the value and what is allowed.
        """
        return load(value, cls, where, folder or ".")

    @classmethod
    def load(cls, path: str | Path) -> PipelineConfig:
        """Load a JSON or YAML file. Raises [`ConfigError`] that names the file and the line."""
        return load(path, cls)

    def save(self, path: str | Path) -> None:
        """Save to a JSON or YAML file, by its extension. Default values are omitted. Files such as prompts are named
        relative to the config, so that they can be moved or committed together.

        Raises:
            ConfigError: If the file has another extension.
        """
        value = self.model_dump(mode="json", exclude_defaults=True) | {"name": self.name}
        folder = Path(path).expanduser().resolve().parent
        for part in (value.get("generator", {}), value.get("scorer", {})):
            for key in part.keys() & {"prompt", "judge", "examples", "calibration", "weights"}:
                part[key] = _beside(part[key], folder)
            if prompts := part.get("prompts"):
                part["prompts"] = {stage: _beside(prompt, folder) for stage, prompt in prompts.items()}
        write_value(value, path)


def _beside(file: str, folder: Path) -> str:
    """An absolute path relative to a folder; a name unchanged."""
    return Path(os.path.relpath(file, folder)).as_posix() if Path(file).is_absolute() else file
