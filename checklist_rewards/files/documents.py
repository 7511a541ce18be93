"""JSON and YAML documents: configurations, judge files, rubrics, sources.

A document is loaded completely. Invalid documents are rejected with an error that names the file and, if known, the
line. So are documents that would crash later code: nesting of thousands of levels, numbers with thousands of digits,
YAML aliases that are recursive or expand without bound. A key that is in a mapping twice is rejected as well.

Configurations and sources are read into pydantic classes by [`load`], with errors that name the line.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError, ValidationInfo

from checklist_rewards.config import sentence
from checklist_rewards.errors import ConfigError, shown
from checklist_rewards.files.atomic import write_json, write_text
from checklist_rewards.files.cells import MAX_DEPTH, UTF16_MARKS
from checklist_rewards.validation import first_error

_MAX_BITS = 1024
_EXTRA_VALUES = 10_000


def read_text(path: str | Path) -> str:
    """Read a text file: UTF-8, or UTF-16 with a byte order mark, as files of rows. Raises [`ConfigError`] if it cannot
    be read."""
    try:
        content = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}).") from None
    try:
        encoding = "utf-16" if content.startswith(UTF16_MARKS) else "utf-8-sig"
        return io.TextIOWrapper(io.BytesIO(content), encoding).read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text ({error}).") from None


def read_value(text: str, path: str | Path) -> Any:
    """Parse the text of a document as JSON if `path` ends in .json, otherwise as YAML.

    Args:
        text (`str`): The text of the document.
        path (`str` or `Path`): The path, which determines the format and is named in errors.

    Raises:
        ConfigError: If the document is invalid. The message names `path` and the line.
    """
    is_json = Path(path).suffix.lower() == ".json"
    try:
        value = json.loads(text, object_pairs_hook=_object) if is_json else yaml.load(text, _Loader)
        _check_size(value, 10 * len(text) + _EXTRA_VALUES)
    except json.JSONDecodeError as error:
        lines = "; rename a file with one value per line to .jsonl" if error.msg == "Extra data" else ""
        raise ConfigError(f"{path}:{error.lineno}: not valid JSON ({error.msg}){lines}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{path}{line}: not valid YAML ({problem}).") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested more than {MAX_DEPTH} levels deep.") from None
    except (AttributeError, TypeError, ValueError) as error:  # for example an invalid date or number
        raise ConfigError(f"{path}: not valid {'JSON' if is_json else 'YAML'} ({error}).") from None
    return value


class _Loader(yaml.SafeLoader):
    """Rejects a key that is in a mapping twice, of which YAML keeps the last value."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.composer.ComposerError(problem=_twice(key.value), problem_mark=key.start_mark)
            seen.add((key.tag, key.value))
        return node


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{_twice(twice)} in {shown(value)}")
    return value


def _twice(key: str) -> str:
    return f"duplicate key {shown(key)}"


def _check_size(value: Any, most: int) -> None:
    """Raises [`ValueError`] or [`RecursionError`]. Without aliases, a document cannot have more values than
    characters."""
    pending = [(value, 0)]
    count = 0
    while pending:
        entry, depth = pending.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise RecursionError
        if count > most:
            raise ValueError("its aliases expand to too many values")
        if isinstance(entry, int) and entry.bit_length() > _MAX_BITS:
            raise ValueError("a number of more than 300 digits")
        if isinstance(entry, Mapping):
            pending += [(each, depth + 1) for pair in entry.items() for each in pair]
        elif isinstance(entry, list | tuple | set):
            pending += [(each, depth + 1) for each in entry]


FORMATS = (".json", ".yaml", ".yml")
Model = TypeVar("Model", bound=BaseModel)


def load(source: Any, model: type[Model], where: str | None = None, folder: str | Path | None = None) -> Model:
    """Read a configuration or another pydantic model.

    Args:
        source (`str`, `Path` or mapping):
            A JSON or YAML file, or what one would hold.
        model (pydantic model class):
            What is read.
        where (`str`, *optional*):
            What errors begin with. Defaults to the file and the line.
        folder (`str` or `Path`, *optional*):
            Where relative paths start; see [`in_folder`]. Defaults to the folder of the file.

    Raises:
        ConfigError: If the source is not valid. One sentence with the place, the name, the value and what is allowed.
    """
    text, value = None, source
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        _check_extension(path)
        text = read_text(path)
        value = read_value(text, path) if text.strip() else {}
        folder = folder or path.resolve().parent
    try:
        return model.model_validate(value, context={"folder": folder})
    except ValidationError as error:
        if where is None:
            where = model.__name__ if text is None else f"{source}:{_line_of(text, first_error(error)['loc'])}"
        raise ConfigError(f"{where}: {sentence(error, model)}") from None


def in_folder(value: Any, info: ValidationInfo) -> Any:
    """The path of a file that a configuration names, for its validators: a relative path of a file in the folder of
    the configuration becomes absolute. Other values stay, such as the names of packaged prompts."""
    folder = (info.context or {}).get("folder")
    if folder is None or not isinstance(value, str | Path):
        return value
    path = Path(folder, Path(value).expanduser())
    return str(path.resolve()) if path.is_file() else value


def write_value(value: Mapping[str, Any], path: str | Path) -> None:
    """Write a mapping to a JSON or YAML file, by its extension. Raises [`ConfigError`] for another extension."""
    path = Path(path)
    _check_extension(path)
    if path.suffix.lower() == ".json":
        write_json(path, value)
    else:
        # U+0085 is a line break to YAML, and the dumper does not always escape it.
        readable = "\x85" not in json.dumps(value, ensure_ascii=False)
        write_text(path, yaml.safe_dump(value, sort_keys=False, allow_unicode=readable))


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
