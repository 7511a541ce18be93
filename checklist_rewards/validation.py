"""The libraries of the extra `evaluation`, imported when they are first needed: statistics, pictures, BLEU, ROUGE."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from checklist_rewards.errors import SampleError


def import_extra(*names: str) -> list[Any]:
    """Import modules of the extra `evaluation` by name. Raises [`SampleError`] that names the extra to install."""
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        raise SampleError(f"this needs {error.name}: pip install 'checklist-rewards[evaluation]'.") from error
