"""Shared by all options: panel names for the help, and helpers to collect the values given by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import typer
import yaml

from checklist_rewards.errors import SampleError

ROWS, JUDGE, WRITER, OUTPUT = "Rows", "Judge", "Checklist writer", "Output and store"
PIPELINE = "Pipeline"


def option(panel: str | None, help: str, *names: str, default: str | bool = False, **more: Any) -> Any:
    """An option in the help panel `panel`. `default` is the default shown in the help."""
    return typer.Option(*names, rich_help_panel=panel, help=help, show_default=default, **more)


_NO_SETTINGS = (
    *("model", "backend", "base_url", "engine_options"),
    *("generator_model", "generator_base_url", "generator_engine_options", "refiner"),
)


def engine_settings(option: str, given: Sequence[str] | None) -> dict[str, Any]:
    """Engine settings from the values of `option`: NAME=VALUE pairs, or JSON objects.

    Raises:
        SampleError: For any other text.
    """
    settings: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        try:
            parsed = (
                yaml.safe_load(text) if text.startswith("{") else {name: yaml.safe_load(value)} if equals else None
            )
        except yaml.YAMLError:
            parsed = None
        if not isinstance(parsed, dict) or not all(isinstance(key, str) and key for key in parsed):
            raise SampleError(
                f"{option} {text!r:.80}: expected NAME=VALUE, such as tensor_parallel_size=2, or a JSON object."
            )
        settings |= parsed
    return settings


def given(group: Any, renamed: Mapping[str, str]) -> dict[str, Any]:
    """The settings given by the user, under the argument names of generators and scorers."""
    values = {field.name: getattr(group, field.name) for field in fields(group) if field.name not in _NO_SETTINGS}
    return {renamed.get(name, name): value for name, value in values.items() if value is not None and value != []}
