"""Exceptions raised by this package.

Each message is one sentence for the user: the value received, the values allowed, the place (file, row, item) and the
fix. A failed *read* (one item answered about one target) raises nothing: it becomes a verdict with a reason (see
`scores/score.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger(__name__)
_MAX_LENGTH = 80
_warned: set[tuple[str, str, str]] = set()
"""Columns of files that have been warned of, with the warning."""
_LOGIN = re.compile(r"(?<=://)[^/\s@]{1,200}@")


def warn_once(where: str, key: str, what: str) -> None:
    """Warn of a column, at the first row of a file ("data.jsonl, line 3") or data set ("row 3") with this problem."""
    of = (where.rpartition(", ")[0], key, what)
    if of not in _warned:
        _warned.add(of)
        logger.warning("%s, %r: %s.", where, key, what)


def without_password(text: str) -> str:
    """A text with *** in place of the user name and the password of each address.

    >>> without_password("no server responds at http://me:secret@host/v1")
    'no server responds at http://***@host/v1'
    """
    return _LOGIN.sub("***@", text)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class ChecklistRewardsError(Exception):
    """Base class of all errors below. The CLI prints them as one line and exits with status 2. Passwords in addresses
    are replaced."""

    def __init__(self, *parts: Any):
        super().__init__(*(without_password(part) if isinstance(part, str) else part for part in parts))


class ChecklistError(ChecklistRewardsError, ValueError):
    """A checklist, item, weight or code check is invalid."""


class PromptError(ChecklistRewardsError, ValueError):
    """A prompt template is invalid, or a sample lacks a field that the template requires."""


class SampleError(ChecklistRewardsError, ValueError):
    """A sample, row or file is invalid."""


class ModelError(ChecklistRewardsError, ValueError):
    """A model cannot be found, loaded or used as a judge (for example, because yes and no share a token)."""


class NoServerError(ModelError):
    """No server responds at the given address. Several judges continue without this one (`judges/panel.py`)."""


class UnguardedScriptError(ModelError):
    """vLLM cannot start its engine, because the main script has no `if __name__ == "__main__":`."""


class BackendError(ChecklistRewardsError, RuntimeError):
    """An engine failed at run time. The affected reads are unanswered and do not count in any score."""


class CheckError(ChecklistRewardsError, RuntimeError):
    """A code check failed or timed out on a text. The item is unanswered and does not count in the score."""


class GenerationError(ChecklistRewardsError, RuntimeError):
    """A model's reply could not be parsed, for example into a checklist.

    Args:
        message (`str`): The error message.
        raw (`str`): The model's last reply, unchanged.
    """

    def __init__(self, message: str, raw: str = ""):
        super().__init__(message)
        self.raw = raw

    def __reduce__(self):
        return type(self), (self.args[0], self.raw)


class StageError(GenerationError):
    """A stage of a corpus-level generator failed.

    Args:
        message (`str`): The error message.
        raw (`str`, *optional*): The first invalid reply, unchanged.
        stage (`str`, *optional*): The name of the stage.
        parts (sequence of `str`, *optional*): The affected parts of the source, such as the names of dimensions.
    """

    def __init__(self, message: str, raw: str = "", stage: str = "", parts: Sequence[str] = ()):
        super().__init__(message, raw)
        self.stage, self.parts = stage, tuple(parts)

    def __reduce__(self):
        return type(self), (self.args[0], self.raw, self.stage, self.parts)


class ConfigError(ChecklistRewardsError, ValueError):
    """A configuration file or a name in it is invalid."""


class StoreError(ChecklistRewardsError, RuntimeError):
    """The verdict store cannot be opened."""


def shown(value: Any) -> str:
    """`repr(value)` for an error message, at most 80 characters."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested thousands deep; a number of more than 4,300 digits
        return f"a value of type {type(value).__name__} too large to show"
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."
