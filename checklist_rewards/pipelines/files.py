"""Config and source files: JSON or YAML, read into pydantic classes, with errors that name the line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from checklist_rewards.errors import ConfigError
from checklist_rewards.files.atomic import write_text
from checklist_rewards.files.documents import read_text, read_value
from checklist_rewards.validation import first_error, one_sentence

FORMATS = (".json", ".yaml", ".yml")
Model = TypeVar("Model", bound=BaseModel)


def read_model(cls: type[Model], path: str | Path) -> Model:
    """Read a file into a pydantic class. The file's folder is the validation context `folder`.

    Raises:
        ConfigError: If the file is not valid. The message begins with the file and the line.
    """
    path = Path(path)
    _check_extension(path)
    text = read_text(path)
    value = read_value(text, path)
    try:
        return cls.model_validate(value, context={"folder": path.resolve().parent})
    except ValidationError as error:
        line = _line_of(text, first_error(error)["loc"])
        raise ConfigError(f"{path}:{line}: {one_sentence(error, cls)}") from None


def write_value(value: Mapping[str, Any], path: str | Path) -> None:
    """Write a mapping to a JSON or YAML file, by its extension. Raises [`ConfigError`] for another extension."""
    path = Path(path)
    _check_extension(path)
    if path.suffix.lower() == ".json":
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    else:
        # U+0085 is a line break to YAML, and the dumper does not always escape it.
        readable = "\x85" not in json.dumps(value, ensure_ascii=False)
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=readable)
    write_text(path, text)


def _check_extension(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: the extension of a config must be one of {', '.join(FORMATS)}.")


def _line_of(text: str, location: Sequence[str | int]) -> int:
    """The line, from 1, of the innermost part of `location` that exists in the text."""
    line = 1
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)  # almost all JSON is valid YAML
    except (yaml.YAMLError, RecursionError):
        return line
    for step in location:
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
