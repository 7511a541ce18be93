"""Pipelines: a generator, refiners and a scorer under one name.

    pipe = pipeline("rlcf_direct", generator_model="org/writer", scorer_model="org/judge")
    result = pipe("Write a haiku about rain.", target="...", reference="...")

Ten pipelines are built in (`builtin.py`). Define your own with a config file, with a Markdown prompt
([`register_custom_pipeline`]), or with registered parts (`registry.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from checklist_rewards.pipelines.builtin import (
    get_pipeline,
    list_pipelines,
    load_config,
    register_custom_pipeline,
    register_pipeline,
)
from checklist_rewards.pipelines.config import (
    PipelineConfig,
    RefinerConfig,
    ScorerPart,
    WriterConfig,
    source_from,
)
from checklist_rewards.pipelines.registry import (
    GENERATORS,
    REFINERS,
    SCORERS,
    ConfigError,
    register_generator,
    register_refiner,
    register_scorer,
)

if TYPE_CHECKING:
    from checklist_rewards.pipelines.assembly import Pipeline, PipelineResult, assemble, pipeline

_LATE = ("Pipeline", "PipelineResult", "assemble", "pipeline")

__all__ = [
    "GENERATORS",
    "REFINERS",
    "SCORERS",
    "ConfigError",
    "WriterConfig",
    "Pipeline",
    "PipelineConfig",
    "PipelineResult",
    "RefinerConfig",
    "ScorerPart",
    "assemble",
    "get_pipeline",
    "list_pipelines",
    "load_config",
    "pipeline",
    "register_custom_pipeline",
    "register_generator",
    "register_pipeline",
    "register_refiner",
    "register_scorer",
    "source_from",
]


def __getattr__(name: str) -> Any:
    # The module imports all generators and refiners, which a command that shows its help does not need.
    if name in _LATE:
        return getattr(import_module("checklist_rewards.pipelines.assembly"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
