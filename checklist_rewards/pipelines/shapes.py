"""The shapes of replies that a config can name; any other pydantic class is given to a generator in Python."""

from __future__ import annotations

from pydantic import BaseModel

from checklist_rewards.errors import ConfigError
from checklist_rewards.generators.shapes import CategorizedQuestions, CheckedQuestions, Questions, WeightedQuestions
from checklist_rewards.pipelines.registry import unknown

SHAPES: dict[str, type[BaseModel]] = {
    "questions": Questions,
    "weighted": WeightedQuestions,
    "categorized": CategorizedQuestions,
    "checked": CheckedQuestions,
}


def shape_named(name: str) -> type[BaseModel]:
    """The shape of that name. Raises [`ConfigError`] naming those there are."""
    if name not in SHAPES:
        raise ConfigError(unknown("shape", name, list(SHAPES)))
    return SHAPES[name]
