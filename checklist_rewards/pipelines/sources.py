"""What corpus-level pipelines work from: dimensions, observations, thoughts; as objects, mappings, or files of them.

The generator's own pydantic model is the schema, so it is documented, checked and shown (`example`) in one place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from checklist_rewards.errors import ConfigError
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.pipelines.config import PipelineConfig, complaint, config_format
from checklist_rewards.pipelines.files import line_of


def source_from(config: PipelineConfig, value: Any) -> BaseModel:
    """What the pipeline works from, checked.

    Args:
        config ([`PipelineConfig`]): of a corpus-level pipeline.
        value: an object of `config.source`, a mapping that makes one, or a JSON or YAML file with one.

    Raises [`ConfigError`] that names the place, in a file with its line.
    """
    shape = config.source
    if shape is None:
        raise ConfigError(f"pipeline {config.name!r} writes a checklist per input, and works from no source.")
    if isinstance(value, shape):
        return value
    if isinstance(value, str | Path):
        config_format(Path(value))
        text = read_text(value)
        found, where = read_value(text, Path(value)), str(value)
    else:
        text, found, where = "", value, "source"
    try:
        return shape.model_validate(found)
    except ValidationError as error:
        place, message = complaint(error, shape)
        line = f":{line_of(text, error.errors(include_url=False)[0]['loc'])}" if text else ""
        raise ConfigError(f"{where}{line}: {f'{place}: ' if place else ''}{message}") from None
