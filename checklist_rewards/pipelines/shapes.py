"""The named reply shapes for config files. In Python, generators accept any pydantic class as `shape`."""

from __future__ import annotations

from pydantic import BaseModel

from checklist_rewards.errors import ConfigError
from checklist_rewards.generators.shapes import CategorizedQuestions, CheckedQuestions, Questions, WeightedQuestions
from checklist_rewards.validation import unknown

SHAPES: dict[str, type[BaseModel]] = {
    "questions": Questions,
    "weighted": WeightedQuestions,
    "categorized": CategorizedQuestions,
    "checked": CheckedQuestions,
}


def shape_named(name: str) -> type[BaseModel]:
    """The shape with this name. Raises [`ConfigError`] that lists the known names."""
    if name not in SHAPES:
        raise ConfigError(unknown("shape", name, list(SHAPES)))
    return SHAPES[name]
