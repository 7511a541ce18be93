"""Changes of a checklist, and the writer that proposes them: other wordings, split questions and new items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, Field

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError
from checklist_rewards.evaluation.items.wording import Paraphraser
from checklist_rewards.evolving.proposer import FromGenerator, Group, Proposer
from checklist_rewards.files.store import Store
from checklist_rewards.generators.contrastive import ContrastiveGenerator
from checklist_rewards.generators.shapes import CategorizedQuestions, question_fault, tidy
from checklist_rewards.refiners.base import Asker

_MOST_NEW = 6

Kind = Literal["drop", "merge", "turn", "reword", "split", "new", "reweight"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A weak item."""

    item: ChecklistItem
    fault: str
    """One of `FAULTS`."""
    detail: str


@dataclass(frozen=True, slots=True)
class Change:
    """Items of a checklist, and what takes their place."""

    kind: Kind
    before: tuple[ChecklistItem, ...]
    after: tuple[ChecklistItem, ...]
    reason: str

    def of(self, checklist: Checklist) -> Checklist:
        """The changed checklist. Raises [`ChecklistError`] if no item with a weight is left."""
        items, new = [], list(self.after)
        for item in checklist.items:
            if not any(item is one for one in self.before):
                items.append(item)
            elif new:
                items += new
                new = []
        return checklist.model_validate(checklist.model_dump() | {"items": [*items, *new]})


class _Halves(BaseModel):
    """The reply to the prompt `refiners/split`."""

    questions: list[str] = Field(min_length=2, max_length=4)


class Rewriter:
    """Proposes changes that need a writer: other wordings, split questions, and new items.

    Args:
        model (`str`): the model that writes.
        backend, base_url, store: as in the refiners.
        proposer (callable, *optional*): proposes new items for groups of texts, best first by their residuals; see
            [`Proposer`]. Defaults to the prompt `generators/openrubrics_listwise`.
        wordings (`int`, *optional*, defaults to `2`): other wordings per weak item.
    """

    def __init__(
        self,
        model: str | Engine,
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        proposer: Proposer | None = None,
        wordings: int = 2,
        store: bool | str | Path | Store = True,
    ):
        engine = Engine.of(model, backend, base_url)
        self.failures: list[ChecklistError | GenerationError] = []
        """Why requests got no usable reply. They propose nothing."""
        self.paraphraser = Paraphraser(engine, count=wordings, store=store)
        self.splitter = Asker(engine, "auto", None, "refiners/split", ("item",), 512, 2, store)
        self.proposer = proposer or FromGenerator(
            ContrastiveGenerator(
                engine,
                prompt="generators/openrubrics_listwise",
                shape=CategorizedQuestions,
                max_items=20,
                max_attempts=2,
                store=store,
            )
        )

    def validate(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        self.paraphraser.validate()

    def changes(self, checklist: Checklist, findings: Sequence[Finding], groups: Sequence[Group]) -> list[Change]:
        """The proposals for a checklist; a request without a usable reply proposes nothing, see `failures`."""
        faults = {one.item.id: one for one in findings}
        double = [item for item in checklist.items if "two questions" in (question_fault(item.question) or "")]
        weak = [item for item in checklist.items if item.id in faults and item not in double and item.check is None]
        found = []
        for item, wordings in zip(weak, self.paraphraser.reword(weak) if weak else [], strict=True):
            other = dict.fromkeys(one for one in wordings if one.question != item.question)
            found += [Change("reword", (item,), (one,), faults[item.id].detail) for one in other]
        self.failures += self.paraphraser.failures if weak else []
        replies = self.splitter.ask([{"item": item.question} for item in double], _Halves) if double else []
        for item, reply in zip(double, replies, strict=True):
            if isinstance(reply, GenerationError):
                self.failures.append(reply)
            else:
                questions = list(dict.fromkeys(map(tidy, reply.questions)))
                parts = tuple(_worded(item, one, len(questions)) for one in questions if question_fault(one) is None)
                if len(parts) > 1:
                    found.append(Change("split", (item,), parts, "it asks two questions"))
        known = {item.question.casefold() for item in checklist.items}
        weight = fmean(abs(item.weight) for item in checklist.items)
        new: dict[str, Change] = {}
        for proposal in self.proposer(groups) if groups else []:
            if proposal is None:
                continue
            try:
                if isinstance(proposal, GenerationError):
                    raise proposal
                items = Checklist.parse(proposal, "the proposal").items
            except (ChecklistError, GenerationError) as error:
                self.failures.append(error)
                continue
            for item in items:
                added = ChecklistItem(question=item.question, weight=math.copysign(weight, item.weight))
                if item.question.casefold() not in known:
                    reason = "texts that the labels and the scores order differently"
                    new.setdefault(item.question.casefold(), Change("new", (), (added,), reason))
        return found + list(new.values())[:_MOST_NEW]


def _worded(item: ChecklistItem, question: str, parts: int) -> ChecklistItem:
    """A part of an item: its weight is divided by the number of parts."""
    fields = item.model_dump(exclude={"id", "question", "evidence"}) | {"weight": item.weight / parts}
    return ChecklistItem(**fields, question=question)
