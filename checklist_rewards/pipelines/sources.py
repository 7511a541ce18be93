"""Sources of corpus-level pipelines (dimensions, observations, think-aloud protocols) from objects, mappings or files.

The schema is the pydantic model of the generator, which also has the documentation and an `example`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from checklist_rewards.errors import ConfigError
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.pipelines.config import PipelineConfig, config_format
from checklist_rewards.pipelines.files import line_of
from checklist_rewards.validation import first_error, one_sentence


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
        config_format(Path(value))
        text = read_text(value)
        content, where = read_value(text, Path(value)), str(value)
    else:
        text, content, where = "", value, "source"
    try:
        return shape.model_validate(content)
    except ValidationError as error:
        line = f":{line_of(text, first_error(error)['loc'])}" if text else ""
        raise ConfigError(f"{where}{line}: {one_sentence(error, shape)}") from None
