"""Every error that this package raises on purpose.

Each message is one sentence for a user: what was got, what is allowed, where (file, row, item), what to do. A failed
*read* is not an error: it is a verdict with a reason (see `scores.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SHOWN = 80


class ChecklistRewardsError(Exception):
    """Base of all errors below; the CLI prints them as one line and exits with 2."""


class ChecklistError(ChecklistRewardsError, ValueError):
    """A checklist, an item or a weight that cannot be used."""


class PromptError(ChecklistRewardsError, ValueError):
    """A prompt template that fails the lint, or a sample that lacks what its prompt needs."""


class SampleError(ChecklistRewardsError, ValueError):
    """A sample, row or file that cannot be scored as it is."""


class ModelError(ChecklistRewardsError, ValueError):
    """A model that cannot be found, loaded, or used as a judge (for example: yes and no share a token)."""


class NoServerError(ModelError):
    """Nobody answers at a server's address. Of several judges the others go on without it (`judges/several.py`)."""


class BackendError(ChecklistRewardsError, RuntimeError):
    """An engine that failed while it was running. The reads concerned stay unanswered; nothing is scored."""


class CheckError(ChecklistRewardsError, RuntimeError):
    """A code check that broke, or ran out of time, on a text. The item stays unanswered; nothing is scored."""


class GenerationError(ChecklistRewardsError, RuntimeError):
    """A checklist could not be read from a model's reply; carries the raw text.

    Args:
        message (`str`): what was wrong, for the user.
        raw (`str`): the model's last reply, unchanged.
    """

    def __init__(self, message: str, raw: str = ""):
        super().__init__(message)
        self.raw = raw

    def __reduce__(self):
        return type(self), (self.args[0], self.raw)


class StageError(GenerationError):
    """A stage of a corpus-level generator broke; `raw` is the first reply that could not be used.

    Args:
        message (`str`): what was wrong, for the user.
        raw (`str`, *optional*): the reply, unchanged.
        stage (`str`, *optional*): the name of the stage.
        parts (sequence of `str`, *optional*): what of the source is concerned, such as names of dimensions.
    """

    def __init__(self, message: str, raw: str = "", stage: str = "", parts: Sequence[str] = ()):
        super().__init__(message, raw)
        self.stage, self.parts = stage, tuple(parts)

    def __reduce__(self):
        return type(self), (self.args[0], self.raw, self.stage, self.parts)


class ConfigError(ChecklistRewardsError, ValueError):
    """A pipeline's config, or a name in it, that cannot be used."""


class StoreError(ChecklistRewardsError, RuntimeError):
    """The verdict store cannot be opened."""


def shown(value: Any) -> str:
    """`repr(value)` for an error message, at most 80 characters."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested thousands deep; a number of more than 4,300 digits
        return f"a value of type {type(value).__name__} too large to show"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
