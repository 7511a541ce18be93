"""Lazy import of the libraries in the extra `evaluation`: statistics, plots, BLEU, ROUGE."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from checklist_rewards.errors import SampleError


def import_extra(*names: str) -> list[Any]:
    """Import modules that belong to the extra `evaluation`.

    Args:
        *names (`str`): Full module names, such as "scipy.stats".

    Returns:
        `list`: The modules, in the same order.

    Raises:
        SampleError: If a module is not installed. The message names the extra to install.
    """
    try:
        return [import_module(name) for name in names]
    except ImportError as error:
        raise SampleError(f"this needs {error.name}: pip install 'checklist-rewards[evaluation]'.") from error
