"""The built-in pipelines, ten of them with the defaults of AutoChecklist, but RLCF's scorer; and further ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from checklist_rewards.backends.packaged import ENGLISH_ENCODER, ENGLISH_WRITER
from checklist_rewards.errors import ConfigError
from checklist_rewards.pipelines.config import PipelineConfig
from checklist_rewards.prompts import load_prompt
from checklist_rewards.validation import unknown

UNIVERSAL = (
    "Does the response do all that the instruction asks, in the form and tone that fit it, without straying from it "
    "or adding what nobody needs?"
)
"""RLCF's universal requirement, added to every checklist with full weight (arXiv:2507.18624, section 2)."""

_BATCH = {"mode": "batch", "metric": "pass"}
_RLCF: dict[str, Any] = {
    # The paper averages 25 sampled grades; the expected grade under the token probabilities is the limit of that mean.
    "scorer": {"mode": "item", "metric": "expected", "prompt": "judges/rlcf", "scale": 10},
    "universal": [{"question": UNIVERSAL, "weight": 100}],
    "paper": "RLCF (arXiv:2507.18624)",
}
_RLCF_WRITER = {"shape": "weighted", "temperature": 0.0, "min_items": 1, "max_items": 7}
_OPENRUBRICS = {"kind": "contrastive", "shape": "categorized", "temperature": 0.0, "min_items": 1}

_BUILT_IN: dict[str, dict[str, Any]] = {
    "tick": {
        "description": "Questions about what one instruction asks for.",
        "paper": "TICK (arXiv:2410.03608)",
        "generator": {
            "prompt": "generators/tick",
            "temperature": 0.7,
            "min_items": 2,
            "max_items": 8,
        },
        "scorer": _BATCH,
    },
    "rocketeval": {
        "description": "Questions from the instruction and a reference, answered by a small judge's probabilities.",
        "paper": "RocketEval (arXiv:2503.05142)",
        "generator": {
            "prompt": "generators/rocketeval",
            "shape": "questions",
            "temperature": 0.7,
            "min_items": 1,
            "max_items": 10,
        },
        "scorer": {"mode": "item", "metric": "normalized", "prompt": "judges/rocketeval", "use_logprobs": True},
    },
    "rlcf_direct": {
        "description": "Weighted questions from the instruction and a reference.",
        "generator": {"prompt": "generators/rlcf_direct", **_RLCF_WRITER},
        **_RLCF,
    },
    "rlcf_candidate": {
        "description": "Weighted questions from how candidates of differing quality fall short of a reference.",
        "generator": {"kind": "contrastive", "prompt": "generators/rlcf_candidate", **_RLCF_WRITER},
        **_RLCF,
    },
    "rlcf_candidates_only": {
        "description": "Weighted questions from how candidates of differing quality fall short, without a reference.",
        "generator": {"kind": "contrastive", "prompt": "generators/rlcf_candidates_only", **_RLCF_WRITER},
        **_RLCF,
    },
    "openrubrics_pairwise": {
        "description": "Hard rules and principles that tell a chosen response from a rejected one.",
        "paper": "OpenRubrics (arXiv:2510.07743)",
        "generator": {"prompt": "generators/openrubrics_pairwise", "max_items": 15, **_OPENRUBRICS},
        "scorer": _BATCH,
    },
    "openrubrics_listwise": {
        "description": "Hard rules and principles that explain a ranking of responses.",
        "paper": "OpenRubrics (arXiv:2510.07743)",
        "generator": {"prompt": "generators/openrubrics_listwise", "max_items": 20, **_OPENRUBRICS},
        "scorer": _BATCH,
    },
    "checkeval": {
        "description": "One checklist for a corpus, from dimensions of quality and their parts.",
        "paper": "CheckEval (arXiv:2403.18771)",
        "generator": {"kind": "deductive", "temperature": 0.7},
        "scorer": _BATCH,
    },
    "interacteval": {
        "description": "One checklist for a corpus, from what people and models thought aloud about a dimension.",
        "paper": "InteractEval (arXiv:2409.07355)",
        "generator": {"kind": "interactive", "temperature": 0.7},
        "scorer": _BATCH,
    },
    "feedback": {
        "description": "One checklist for a corpus, from observations and complaints about its texts.",
        "paper": "From Feedback to Checklists (arXiv:2507.17717)",
        "generator": {"kind": "inductive", "temperature": 0.7, "max_items": 20},
        "scorer": _BATCH,
    },
    "english": {
        "description": "Code checks that rules find and questions by a small packaged model, for English without GPU "
        "and key.",
        "generator": {
            "model": ENGLISH_WRITER,
            "prompt": "generators/tick",
            "temperature": 0.3,
            "min_items": 1,
            "max_items": 8,
            "constraints": True,
        },
        "scorer": {"model": ENGLISH_ENCODER, "mode": "item", "metric": "normalized"},
    },
}
_registered: dict[str, PipelineConfig] = {}


@cache
def _built_in(name: str) -> PipelineConfig:
    # Validated at first use, not at import, because validation reads prompt files.
    return PipelineConfig.parse({"name": name, **_BUILT_IN[name]}, f"pipeline {name!r}")


def list_pipelines() -> list[str]:
    """The names of all pipelines, built-in ones first."""
    return [*_BUILT_IN, *_registered]


def has_own_prompt(config: PipelineConfig) -> bool:
    """Whether this is a registered pipeline, and its writer has the prompt that was registered with it."""
    known = config.name in list_pipelines()
    return known and config.generator.prompt == get_pipeline(config.name).generator.prompt


def get_pipeline(name: str) -> PipelineConfig:
    """The config with this name. Raises [`ConfigError`] that lists the known names."""
    if name in _registered:
        return _registered[name]
    if name not in _BUILT_IN:
        raise ConfigError(unknown("pipeline", name, list_pipelines()))
    return _built_in(name)


def load_config(config: str | Path | PipelineConfig) -> PipelineConfig:
    """Load a config by name or from a file; a config is returned unchanged. Raises [`ConfigError`]."""
    if isinstance(config, PipelineConfig):
        return config
    if isinstance(config, Path) or str(config).endswith((".json", ".yaml", ".yml")):
        return PipelineConfig.load(config)
    return get_pipeline(config)


def register_pipeline(config: PipelineConfig, *, replace: bool = False) -> PipelineConfig:
    """Register a config under its name and return it.

    Raises [`ConfigError`] for a built-in name, and for another that is taken unless `replace`.
    """
    if config.name in _BUILT_IN:
        raise ConfigError(f"the pipeline name {config.name!r} is a built-in name; choose another.")
    if config.name in _registered and not replace:
        raise ConfigError(f"the pipeline name {config.name!r} is taken; pass replace=True to replace it.")
    _registered[config.name] = config
    return config


def register_custom_pipeline(
    name: str, prompt: str | Path, *, replace: bool = False, **settings: Any
) -> PipelineConfig:
    """Register a pipeline that consists of a Markdown prompt.

    Args:
        name (`str`): name of the new pipeline.
        prompt (`str` or `Path`): the prompt of the generator, with `{input}` and optionally further placeholders. The
            generator is "contrastive" if it has a placeholder for candidates or for chosen and rejected responses,
            otherwise "direct".
        replace (`bool`, *optional*, defaults to `False`): whether to replace an existing registration of this name.
        **settings: `generator` and `scorer` (mappings of settings), `refiners`, `universal`, `description`, `paper`.

    Raises:
        ConfigError, PromptError: If the settings or the prompt are not valid.
    """
    fields = load_prompt(prompt, "generator").placeholders
    compares = fields & {"candidates", "responses", "chosen", "rejected"}
    generator = {"kind": "contrastive" if compares else "direct", **settings.pop("generator", {})}
    data = {"name": name, **settings, "generator": {**generator, "prompt": str(prompt)}}
    return register_pipeline(PipelineConfig.parse(data, f"pipeline {name!r}"), replace=replace)
