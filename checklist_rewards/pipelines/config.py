"""A pipeline as data: which generator, refiners and scorer, with which settings. JSON and YAML hold the same.

    name: haiku
    generator: {prompt: my_writer.md, max_items: 6}
    refiners: [deduplicator]
    scorer: {mode: batch, metric: pass}

What is left out is the part's own default. Everything is checked when a config is made, before any model: an unknown
key or name, a prompt that is not there or fails its lint, a value that the part refuses. The error says where, what
was got and what is allowed. A prompt is always a packaged name or a file, never the text itself, so a misspelt name is
an error and not a prompt; a relative path counts from the config's own folder, and is kept as an absolute one.

`PipelineConfig.load(path)` of what `save(path)` wrote is equal to what was saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ChecklistRewardsError, ConfigError
from checklist_rewards.files.rows import atomic_path
from checklist_rewards.pipelines.parts import GENERATORS, REFINERS, SCORERS
from checklist_rewards.pipelines.registry import SURROUNDINGS, Entry
from checklist_rewards.pipelines.shapes import shape_named
from checklist_rewards.prompts import prompts_dir

FORMATS = (".json", ".yaml", ".yml")
DEFAULT_MODE = "item"
_RENAMED = {"metric": "primary_metric"}
_OF_A_MODE = (
    "prompt",
    "use_logprobs",
    "capture_reasoning",
    "samples",
    "temperature",
    "max_tokens",
    "examples",
    "shots",
    "example_reasons",
    "calibration",
)


class _Part(BaseModel):
    """What generators, refiners and scorers have in common: a registered name, and settings by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    options: dict[str, JsonValue] = {}
    """Further settings, of a registered part that takes others than those above."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        _try(self)
        return self

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of the part: what is set, without what is left to its own defaults."""
        named = {name: getattr(self, name) for name in type(self).model_fields if name not in ("kind", "options")}
        return {_RENAMED.get(name, name): value for name, value in named.items() if value is not None} | self.options


class GeneratorConfig(_Part):
    """Who writes the checklists, and how."""

    kind: str = "direct"
    prompt: str | None = None
    """A packaged name or a Markdown file."""
    prompts: dict[str, str] | None = None
    """The same for corpus-level generators: one for each stage that is to have another than its own."""
    shape: str | None = None
    """What a reply must hold, as JSON: questions, weighted, categorized or checked. None: a plain numbered list."""
    min_items: int | None = None
    max_items: int | None = None
    temperature: float | None = Field(default=None, allow_inf_nan=False)
    max_tokens: int | None = None
    max_attempts: int | None = None
    seed: int | None = None
    num_candidates: int | None = None
    """Candidates to sample per input, where a generator compares some and the row has none."""
    candidate_models: tuple[str, ...] | None = None
    candidate_temperature: float | None = Field(default=None, allow_inf_nan=False)

    @field_validator("prompt")
    @classmethod
    def _prompt(cls, prompt: str | None, info: Any) -> str | None:
        return _located(prompt, info.context)

    @field_validator("prompts")
    @classmethod
    def _prompts(cls, prompts: dict[str, str] | None, info: Any) -> dict[str, str] | None:
        found = {stage: _located(prompt, info.context) for stage, prompt in (prompts or {}).items()}
        return {stage: prompt for stage, prompt in found.items() if prompt is not None} or None

    @field_validator("shape")
    @classmethod
    def _shape(cls, shape: str | None) -> str | None:
        if shape is not None:
            shape_named(shape)
        return shape

    def settings(self) -> dict[str, Any]:
        """See [`_Part.settings`]; the shape is the pydantic class that its name stands for."""
        settings = super().settings()
        return settings if self.shape is None else settings | {"shape": shape_named(self.shape)}


class RefinerConfig(_Part):
    """One step that improves a checklist. In a config its bare name will do."""

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data


class ScorerConfig(_Part):
    """How the questions are answered and added up."""

    kind: str = "checklist"
    mode: str | None = None
    metric: str | None = None
    prompt: str | None = None
    use_logprobs: bool | None = None
    capture_reasoning: bool | None = None
    samples: int | None = None
    temperature: float | None = Field(default=None, allow_inf_nan=False)
    max_tokens: int | None = None
    threshold: float | None = Field(default=None, allow_inf_nan=False)
    min_answered: float | None = Field(default=None, allow_inf_nan=False)
    abstention: str | None = None
    mass_floor: float | None = Field(default=None, allow_inf_nan=False)
    examples: str | None = None
    """A file of labelled answers to show with the questions (see `judges/examples.py`)."""
    shots: int | None = None
    example_reasons: bool | None = None
    checks: str | None = None
    allow_code: bool | Literal["unsafe"] | None = None
    """Whether code checks may run what a model may have written, and how (see [`ChecklistScorer`])."""
    judge: str | None = None
    """A file of several judges, instead of the model (see `judges/jury.py`)."""
    calibration: str | None = None
    """A file that `checklist-rewards calibrate` has written (see `calibration.py`)."""
    scale: int | None = Field(default=None, ge=2)
    """Grades instead of yes and no: how many steps from worst to best (see `scales.py`)."""

    @field_validator("prompt")
    @classmethod
    def _prompt(cls, prompt: str | None, info: Any) -> str | None:
        return _located(prompt, info.context)

    @field_validator("examples", "calibration", "judge")
    @classmethod
    def _file(cls, file: str | None, info: Any) -> str | None:
        return file and str(Path((info.context or {}).get("folder") or ".", file).expanduser().resolve())

    def settings(self) -> dict[str, Any]:
        """See [`_Part.settings`]; the scale is put on the checklists and is no setting of a scorer."""
        settings = super().settings()
        settings.pop("scale", None)
        return settings


class PipelineConfig(BaseModel):
    """A whole pipeline."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="custom", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    description: str = ""
    paper: str | None = None
    generator: GeneratorConfig = Field(default_factory=GeneratorConfig)
    refiners: tuple[RefinerConfig, ...] = ()
    scorer: ScorerConfig = Field(default_factory=ScorerConfig)
    universal: tuple[ChecklistItem, ...] = ()
    """Items that every checklist gets, after those that were written for it."""

    @field_validator("refiners", mode="before")
    @classmethod
    def _one_is_a_list(cls, refiners: Any) -> Any:
        return [refiners] if isinstance(refiners, str) else refiners

    @property
    def corpus_level(self) -> bool:
        """Whether one checklist is written for a whole corpus, instead of one per input."""
        return self.source is not None

    @property
    def source(self) -> type[BaseModel] | None:
        """What a corpus-level pipeline works from."""
        return GENERATORS.get(self.generator.kind).source

    def replace(self, changes: Mapping[str, Any], where: str | None = None) -> PipelineConfig:
        """This config with other values, which are checked; a mapping for `generator` or `scorer` changes only what it
        names. With another scorer mode go the prompt and the ways of asking that belong to the old one.

        Raises [`ConfigError`] that begins with `where`.
        """
        data = self.model_dump(mode="json")
        for name, value in changes.items():
            value = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
            merge = name in ("generator", "scorer") and isinstance(value, Mapping)
            if merge and name == "scorer" and value.get("mode") not in (None, data[name]["mode"] or DEFAULT_MODE):
                data[name] |= dict.fromkeys(_OF_A_MODE)
            data[name] = {**data[name], **value} if merge else value
        return self.parse(data, where or f"pipeline {self.name!r}")

    @classmethod
    def parse(cls, value: Any, where: str = "config", folder: str | Path | None = None) -> PipelineConfig:
        """A config from a mapping.

        Args:
            value (mapping): as a file holds it.
            where (`str`): how to name it in an error.
            folder (`str` or `Path`, *optional*): where relative prompt files are; else the working directory.

        Raises:
            ConfigError: one sentence with `where`, the key, the value and what is allowed.
        """
        try:
            return cls.model_validate(value, context={"folder": folder})
        except ValidationError as error:
            place, message = complaint(error)
            raise ConfigError(f"{where}: {f'{place}: ' if place else ''}{message}") from None

    @classmethod
    def load(cls, path: str | Path) -> PipelineConfig:
        """Read a JSON or YAML file. Raises [`ConfigError`] naming the file and the line."""
        from checklist_rewards.pipelines.files import read_config  # YAML is only needed here

        return read_config(path)

    def save(self, path: str | Path) -> None:
        """Write a JSON or YAML file, by its extension. What is left to defaults is left out.

        Raises [`ConfigError`] for another extension.
        """
        path = Path(path)
        config_format(path)
        data = self.model_dump(mode="json", exclude_defaults=True) | {"name": self.name}
        if path.suffix.lower() == ".json":
            text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        else:
            import yaml

            # U+0085 is a line break to YAML, and the dumper does not always escape it.
            readable = "\x85" not in json.dumps(data, ensure_ascii=False)
            text = yaml.safe_dump(data, sort_keys=False, allow_unicode=readable)
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")


def config_format(path: Path) -> str:
    """The extension of a config file. Raises [`ConfigError`] if it is none of `FORMATS`."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a config is one of {', '.join(FORMATS)}.")
    return path.suffix.lower()


def complaint(error: ValidationError, shape: type[BaseModel] = PipelineConfig) -> tuple[str, str]:
    """The first complaint of pydantic about a `shape`: the place ("generator.prompt"), and a sentence."""
    detail = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in detail["loc"])
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        message = f"unknown key; allowed: {', '.join(_keys_at(shape, detail['loc'][:-1]))}."
    elif detail["type"] == "model_type":
        message = f"expected a mapping, got {detail['input']!r:.80}."
    elif detail["type"] not in ("value_error", "missing"):
        message = f"{message}, got {detail['input']!r:.80}."
    return place, message if message.endswith(".") else f"{message}."


def _keys_at(shape: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys that a model has at a place inside `shape`."""
    schema = shape.model_json_schema()
    node = schema
    for step in (None, *place):
        node = node["items"] if isinstance(step, int) else node["properties"][step] if step is not None else node
        node = next((choice for choice in node.get("anyOf", ()) if "$ref" in choice), node)
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return list(node["properties"])


def entry_of(part: _Part) -> Entry:
    """The registered part that a config names. Raises [`ConfigError`]."""
    registries = {GeneratorConfig: GENERATORS, RefinerConfig: REFINERS, ScorerConfig: SCORERS}
    return registries[type(part)].get(part.kind)


def _try(part: _Part) -> None:
    """Refuse settings that the part would refuse, by making one of a built-in part: that loads nothing."""
    entry = entry_of(part)
    what = {GeneratorConfig: "generator", RefinerConfig: "refiner", ScorerConfig: "scorer"}[type(part)]
    settings = part.settings()
    clash = [name for name in part.options if name in type(part).model_fields or name in SURROUNDINGS]
    if clash:
        raise ConfigError(f"{clash[0]!r} is no option of a {what}: it has a place of its own.")
    entry.check_settings(settings, what)
    if entry.built_in:
        try:
            around = {"model": "pocket", "store": False}  # any model will do: none is loaded
            entry.factory(**{name: value for name, value in around.items() if entry.takes(name)}, **settings)
        except TypeError as error:
            raise ConfigError(f"{what} {part.kind!r} cannot be made of {settings!r:.200} ({error}).") from None
        except ChecklistRewardsError as error:
            raise ConfigError(str(error).replace("primary_metric=", "metric=", 1)) from None


def _located(prompt: str | None, context: Mapping[str, Any] | None) -> str | None:
    """A packaged name as it is; a file by its absolute path."""
    if prompt is None or (prompts_dir() / f"{prompt}.md").is_file():
        return prompt
    path = Path((context or {}).get("folder") or ".", prompt).expanduser()
    if path.is_file():
        return str(path.resolve())
    known = sorted(str(p.relative_to(prompts_dir()).with_suffix("")) for p in prompts_dir().glob("*/*.md"))
    raise ConfigError(f"there is no prompt {prompt!r}: give a Markdown file or one of {', '.join(known)}.")
