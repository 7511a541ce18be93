"""JSON and YAML documents: configurations, judge files, rubrics, sources.

A document is loaded completely. Invalid documents are rejected with an error that names the file and, if known, the
line. So are documents that would crash later code: nesting of thousands of levels, numbers with thousands of digits,
YAML aliases that are recursive or expand without bound.
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
_EXTRA_VALUES = 10_000


def read_text(path: str | Path) -> str:
    """Read a text file. Raises [`ConfigError`] if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
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
        value = json.loads(text) if is_json else yaml.safe_load(text)
        _check_size(value, 10 * len(text) + _EXTRA_VALUES)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid JSON ({error.msg}).") from None
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
