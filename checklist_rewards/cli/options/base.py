"""What all options are made of: the panels of the help, and which of a group the user gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import typer
import yaml

from checklist_rewards.errors import SampleError

ROWS, JUDGE, WRITER, OUTPUT = "Rows", "Judge", "Checklist writer", "Output and store"
PIPELINE = "Pipeline"


def option(panel: str, help: str, *names: str, default: str | bool = False, **more: Any) -> Any:
    """An option under `panel`, whose help says what stands where it is not given."""
    return typer.Option(*names, rich_help_panel=panel, help=help, show_default=default, **more)


_NO_SETTINGS = (
    *("model", "backend", "base_url", "engine_options"),
    *("generator_model", "generator_base_url", "generator_engine_options", "refiner"),
)


def engine_settings(option: str, given: Sequence[str] | None) -> dict[str, Any]:
    """What `option` says that an engine is loaded with: NAME=VALUE pairs, or JSON objects.

    Raises [`SampleError`] for anything else.
    """
    settings: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        try:
            found = yaml.safe_load(text) if text.startswith("{") else {name: yaml.safe_load(value)} if equals else None
        except yaml.YAMLError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(key, str) and key for key in found):
            raise SampleError(
                f"{option} {text!r:.80}: expected NAME=VALUE, such as tensor_parallel_size=2, or a JSON object."
            )
        settings |= found
    return settings


def given(group: Any, renamed: Mapping[str, str]) -> dict[str, Any]:
    """The settings that the user gave, under the names that generators and scorers have for them."""
    values = {field.name: getattr(group, field.name) for field in fields(group) if field.name not in _NO_SETTINGS}
    return {renamed.get(name, name): value for name, value in values.items() if value is not None and value != []}
