"""What all options are made of: the panels of the help, and which of a group the user gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import typer

ROWS, JUDGE, WRITER, OUTPUT = "Rows", "Judge", "Checklist writer", "Output and store"
PIPELINE = "Pipeline"


def option(panel: str, help: str, *names: str, default: str | bool = False, **more: Any) -> Any:
    """An option under `panel`, whose help says what stands where it is not given."""
    return typer.Option(*names, rich_help_panel=panel, help=help, show_default=default, **more)


_NO_SETTINGS = ("model", "backend", "base_url", "generator_model", "generator_base_url", "refiner")


def given(group: Any, renamed: Mapping[str, str]) -> dict[str, Any]:
    """The settings that the user gave, under the names that generators and scorers have for them."""
    values = {field.name: getattr(group, field.name) for field in fields(group) if field.name not in _NO_SETTINGS}
    return {renamed.get(name, name): value for name, value in values.items() if value is not None and value != []}
