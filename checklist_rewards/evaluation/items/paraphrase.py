"""Paraphrases of questions, to measure whether a judge's answers depend on the wording.

A model writes the paraphrases (`prompts/refiners/paraphrase.md`). If a reply cannot be parsed or has too few
paraphrases, the original question fills the remaining places; `Paraphraser.unchanged` counts such items.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError
from checklist_rewards.files.store import Store
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.refiners.base import Asker
from checklist_rewards.validation import whole_number

DEFAULT_PROMPT = "refiners/paraphrase"


class _Wordings(BaseModel):
    wordings: list[str] = Field(min_length=1)


class Paraphraser:
    """Writes paraphrases of items.

    Args:
        model (`str`): the model that writes the paraphrases.
        count (`int`, *optional*, defaults to `2`): paraphrases per item.
        backend, base_url, prompt, max_tokens, max_attempts, store: as in the refiners. The placeholders of the prompt
            are `{item}` and `{count}`.
    """

    def __init__(
        self,
        model: str | Engine,
        *,
        count: int = 2,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        max_tokens: int = 512,
        max_attempts: int = 3,
        store: bool | str | Path | Store = True,
    ):
        whole_number("count", count)
        self.count = count
        self.asker = Asker(model, backend, base_url, prompt, ("item", "count"), max_tokens, max_attempts, store)
        self.unchanged = 0
        """Number of items in the last call that got fewer than `count` paraphrases."""

    def check(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        self.asker.check()

    def reword(self, items: Sequence[ChecklistItem]) -> list[list[ChecklistItem]]:
        """For every item, `count` copies that differ in the question only."""
        replies = self.asker.ask([{"item": item.question, "count": str(self.count)} for item in items], _Wordings)
        self.unchanged = 0
        out: list[list[ChecklistItem]] = []
        for item, reply in zip(items, replies, strict=True):
            texts = [] if isinstance(reply, GenerationError) else [text.strip() for text in reply.wordings]
            texts = [text for text in dict.fromkeys(texts) if text and text != item.question][: self.count]
            self.unchanged += len(texts) < self.count
            texts += [item.question] * (self.count - len(texts))
            out.append([_reworded(item, text) for text in texts])
        return out


def reworded(checklist: Checklist, wordings: Sequence[Sequence[ChecklistItem]], number: int) -> Checklist:
    """`checklist` with the paraphrase `number` (from 0) of each item."""
    return Checklist(items=tuple(of_item[number] for of_item in wordings))


def _reworded(item: ChecklistItem, question: str) -> ChecklistItem:
    return ChecklistItem(**item.model_dump(exclude={"id", "question"}), question=question)
