"""The names that rubrics use for their parts: the table `names.yaml`. The inference of a format and the reader of
criteria share it."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from checklist_rewards.files.documents import load


class Names(BaseModel):
    """The table; its comments explain the lists."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lists: tuple[str, ...]
    prompts: tuple[str, ...]
    references: tuple[str, ...]
    questions: tuple[str, ...]
    weights_beside: tuple[str, ...]
    texts: tuple[str, ...]
    weights: tuple[str, ...]
    categories: tuple[str, ...]
    expected: tuple[str, ...]
    levels: tuple[str, ...]
    levels_of_one: tuple[str, ...]
    inner: tuple[str, ...]
    titles: tuple[str, ...]
    around: tuple[str, ...]
    of_a_checklist: tuple[str, ...]
    words: tuple[dict[str, float], ...]
    answers: dict[str, str]
    scales: frozenset[str]
    ranks: frozenset[str]
    grades: frozenset[str]
    unused: frozenset[str]


NAMES = load(Path(__file__).with_name("names.yaml"), Names)
