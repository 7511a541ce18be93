"""Reading config and source files with errors that name the line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from checklist_rewards.errors import ConfigError
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.pipelines.config import PipelineConfig, config_format
from checklist_rewards.validation import first_error, one_sentence


def read_config(path: str | Path) -> PipelineConfig:
    """Load a config file. Raises [`ConfigError`] that begins with the file and the line."""
    path = Path(path)
    config_format(path)
    text = read_text(path)
    value = read_value(text, path)
    try:
        return PipelineConfig.model_validate(value, context={"folder": path.resolve().parent})
    except ValidationError as error:
        line = line_of(text, first_error(error)["loc"])
        raise ConfigError(f"{path}:{line}: {one_sentence(error, PipelineConfig)}") from None


def line_of(text: str, place: Sequence[str | int]) -> int:
    """The line, from 1, of the innermost part of `place` that exists in the text."""
    line = 1
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # almost all JSON is valid YAML
    except (yaml.YAMLError, RecursionError):
        return line
    for step in place:
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == step:
                    child, line = value, key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            child = node.value[step]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line
