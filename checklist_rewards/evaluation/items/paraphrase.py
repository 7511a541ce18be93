"""Other wordings of a question, to see whether its answers depend on the words.

A model writes them (`prompts/refiners/paraphrase.md`). An item whose reply cannot be read, or that gets fewer wordings
than asked for, keeps its own words in the places that are left: such a repeat proves nothing and harms nothing, and
the number of these is told.
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
from checklist_rewards.refiners.base import Asker, whole_number

DEFAULT_PROMPT = "refiners/paraphrase"


class _Wordings(BaseModel):
    wordings: list[str] = Field(min_length=1)


class Paraphraser:
    """Writes other wordings of items.

    Args:
        model (`str`): who writes.
        count (`int`, *optional*, defaults to `2`): wordings per item.
        backend, base_url, prompt, max_tokens, max_attempts, store: as in the refiners. The prompt has `{item}` and
            `{count}`.
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
        """Items of the last call that kept their own words somewhere."""

    def check(self) -> None:
        """Refuse a model that is not there. Raises [`ModelError`]."""
        self.asker.check()

    def reword(self, items: Sequence[ChecklistItem]) -> list[list[ChecklistItem]]:
        """Of every item, `count` items that differ in their words alone."""
        replies = self.asker.ask([{"item": item.question, "count": str(self.count)} for item in items], _Wordings)
        self.unchanged = 0
        out: list[list[ChecklistItem]] = []
        for item, reply in zip(items, replies, strict=True):
            found = [] if isinstance(reply, GenerationError) else [text.strip() for text in reply.wordings]
            found = [text for text in dict.fromkeys(found) if text and text != item.question][: self.count]
            self.unchanged += len(found) < self.count
            found += [item.question] * (self.count - len(found))
            out.append([_reworded(item, text) for text in found])
        return out


def reworded(checklist: Checklist, wordings: Sequence[Sequence[ChecklistItem]], number: int) -> Checklist:
    """`checklist` in its `number`-th other wording."""
    return Checklist(items=tuple(found[number] for found in wordings))


def _reworded(item: ChecklistItem, question: str) -> ChecklistItem:
    return ChecklistItem(**item.model_dump(exclude={"id", "question"}), question=question)
