"""Formats of rubrics: where a row has its prompt, its criteria and their parts.

A [`Format`] is a small YAML document. Those in `formats.yaml` are known by name and detected; a file of the user's own
is passed as `format="mine.yaml"`. For everything else, `rubrics.py` infers one. `criteria.py` reads the criteria of
all of them.

    name: healthbench
    about: HealthBench (OpenAI, simple-evals)
    prompt: [prompt]
    checklist: rubrics
    item: {question: criterion, weight: points}
    metric: net
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator

from checklist_rewards.errors import ConfigError
from checklist_rewards.files.documents import load, read_text
from checklist_rewards.scores.score import PrimaryMetric

Shape = Literal["items", "text", "levels", "tree", "instructions", "asserts"]
PARTS = ("question", "weight", "category", "required", "options", "id", "check", "expected")
"""The parts of an item that a format can name."""
ROWS = "rows"
"""The name of formats that are inferred."""
_PACKAGED = Path(__file__).with_name("formats.yaml")


class Format(BaseModel):
    """Where rows have their parts. All keys may be dotted (`reward_model.rubrics`) and may lead through JSON text.

    Args:
        name (`str`): The name, also the value of `checklist_source`.
        about (`str`): One line: whose format it is.
        checklist (`str`): The key of the criteria. With "{n}", each criterion has a column of its own, and empty ones
            are left out: `criterion_{n}`.
        shape (`str`): How they are written: `items` (a list of objects or texts, in sections or not), `text`
            (numbered), `levels` (of a grade), `tree`, `instructions` (IFEval's), `asserts` (promptfoo's).
        prompt (list of `str`): The keys of the prompt: text, or chat messages. Several are joined by blank lines. Keys
            with "{n}" are turns: `["prompt_{n}", "response_{n}"]`. Empty for rubrics without a prompt.
        promptless (`bool`): Whether rows may have no prompt.
        item (mapping): The key of each part of an item; the parts are `PARTS`.
        reference, target (`str`, *optional*): The keys of the reference answer and of a text to score.
        grade (`str`, *optional*): The key of what people answered, which becomes `labels`: one grade with the shape
            `levels`, otherwise a list with one answer per item.
        words (mapping, *optional*): Weights in words, lower case.
        default_weight (`float`, *optional*): The weight of a criterion without one.
        section_weights (`str`, *optional*): The key of a mapping from sections to factors.
        pitfalls (`bool`): Whether negative weights stand both for faults and for what good responses avoid.
        drop (list of `str`): Keys of items that may be dropped, although they sound like part of the score.
        needs (list of `str`): More keys that a row of this format has.
        metric (`str`, *optional*): The primary metric that gives the data set's own score.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    about: str = ""
    checklist: str
    shape: Shape = "items"
    prompt: tuple[str, ...] = ()
    promptless: bool = False
    item: dict[str, str] = Field(default_factory=dict)
    reference: str | None = None
    target: str | None = None
    grade: str | None = None
    words: dict[str, float] | None = None
    default_weight: float | None = None
    section_weights: str | None = None
    pitfalls: bool = False
    drop: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    metric: PrimaryMetric | None = None

    @field_validator("prompt", "drop", "needs", mode="before")
    @classmethod
    def _one_or_several(cls, keys: Any) -> Any:
        return (keys,) if isinstance(keys, str) else keys

    @field_validator("item")
    @classmethod
    def _known_parts(cls, item: dict[str, str]) -> dict[str, str]:
        for name in item:
            if name not in PARTS:
                raise ValueError(f"{name!r} is not a part of an item; allowed: {', '.join(PARTS)}")
        return item


def own_format(file: str | Path) -> Format:
    """The format that a user describes in a file (.yaml, .yml, .json).

    Raises:
        ConfigError: If the file is not a format, or has the name of a packaged one.
    """
    format = load(file, Format)
    if format.name == ROWS or format.name in known_formats():
        raise ConfigError(f"{file}: the name {format.name!r} is taken by a packaged format; choose another one.")
    return format


@lru_cache(maxsize=1)
def known_formats() -> Mapping[str, Format]:
    """The packaged formats by name."""
    formats = map(Format.model_validate, yaml.safe_load_all(read_text(_PACKAGED)))
    return {format.name: format for format in formats}
