"""Sources of corpus-level pipelines (dimensions, observations, think-aloud protocols) from objects, mappings or files.

The schema is the pydantic model of the generator, which also has the documentation and an `example`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from checklist_rewards.errors import ConfigError
from checklist_rewards.pipelines.config import PipelineConfig
from checklist_rewards.pipelines.files import read_model
from checklist_rewards.validation import one_sentence


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
    if isinstance(value, str | Path):
        return read_model(shape, value)
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"source: {one_sentence(error, shape)}") from None
