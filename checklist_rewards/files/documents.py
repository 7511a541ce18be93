"""JSON and YAML documents: configs, files of judges, rubrics, sources.

A document is read whole. What is not valid, or would break whoever works with it (nested thousands deep, numbers of
thousands of digits, YAML aliases that contain themselves or expand without bound), is refused with one sentence that
names the file, and the line where one is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from checklist_rewards.errors import ConfigError

MAX_DEPTH = 100
_MAX_BITS = 1024
_ROOM = 10_000


def read_text(path: str | Path) -> str:
    """The text of a file. Raises [`ConfigError`] if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text ({error}).") from None


def read_value(text: str, path: str | Path) -> Any:
    """What the text of a document holds: JSON if `path` ends in .json, else YAML.

    Raises:
        ConfigError: naming `path` and the line.
    """
    is_json = Path(path).suffix.lower() == ".json"
    try:
        value = json.loads(text) if is_json else yaml.safe_load(text)
        _check_size(value, 10 * len(text) + _ROOM)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid JSON ({error.msg}).") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{path}{line}: not valid YAML ({problem}).") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested more than {MAX_DEPTH} deep.") from None
    except (AttributeError, TypeError, ValueError) as error:  # a date or a number that is none
        raise ConfigError(f"{path}: not valid {'JSON' if is_json else 'YAML'} ({error}).") from None
    return value


def _check_size(value: Any, most: int) -> None:
    """Raises [`ValueError`] or [`RecursionError`]. Without aliases no document has more values than characters."""
    left = [(value, 0)]
    count = 0
    while left:
        entry, depth = left.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise RecursionError
        if count > most:
            raise ValueError("its aliases expand to too many values")
        if isinstance(entry, int) and entry.bit_length() > _MAX_BITS:
            raise ValueError("a number of more than 300 digits")
        if isinstance(entry, Mapping):
            left += [(each, depth + 1) for pair in entry.items() for each in pair]
        elif isinstance(entry, list | tuple | set):
            left += [(each, depth + 1) for each in entry]
