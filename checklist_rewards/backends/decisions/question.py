"""A typed question of the Decisions APIs, independent of the protocol.

In a [`ReadGroup`], the prefix is the input of the request and each tail is the JSON text of a question, so reads of
decisions are planned, deduplicated and stored like all others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, Self, get_args

from checklist_rewards.checklists import NO, YES

QuestionType = Literal["predicate", "choice", "score"]
TYPES: tuple[str, ...] = get_args(QuestionType)
PREDICATE_LABELS = (YES, NO)


@dataclass(frozen=True, slots=True)
class DecisionQuestion:
    """One question."""

    type: QuestionType
    """`predicate` (yes or no), `choice` (one of several options) or `score` (a level of an ordered scale)."""
    instructions: str
    """The question."""
    labels: tuple[str, ...] = PREDICATE_LABELS
    """The possible answers, as sent: the options of a choice, or the levels of a score from the lowest up."""

    def text(self) -> str:
        """The question as JSON text. [`parse`] restores it."""
        return json.dumps([self.type, self.instructions, *self.labels], ensure_ascii=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The question that [`text`] wrote. Raises `ValueError` for any other text."""
        kind, instructions, *labels = json.loads(text)
        if kind not in TYPES:
            raise ValueError(f"not a question of a decision: {text:.60}")
        return cls(kind, instructions, tuple(labels))
