"""Changes of a checklist, and the writer that proposes them: other wordings, split questions and new items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Literal, Unpack

from pydantic import BaseModel, Field

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError
from checklist_rewards.evaluation.wording import Paraphraser
from checklist_rewards.evolving.proposer import FromGenerator, Group, Proposer, new_items
from checklist_rewards.generators.contrastive import ContrastiveGenerator
from checklist_rewards.generators.shapes import CategorizedQuestions, tidy
from checklist_rewards.judges.faults import question_fault
from checklist_rewards.writer import Writer, WriterKwargs, prompt_with, writer_of

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
        model (`str`, [`Engine`] or [`Writer`]): the model that writes.
        **settings: the other fields of [`Writer`]. By default `temperature` is 0, `max_tokens` 512 and `max_attempts`
            2.
    """

    writing: ClassVar[WriterKwargs] = {"temperature": 0.0, "max_tokens": 512, "max_attempts": 2}

    def __init__(self, model: str | Engine | Writer, **settings: Unpack[WriterKwargs]):
        self.writer = writer_of(self, model, settings)
        parts = self.writer.with_defaults_of_parts
        self.failures: list[ChecklistError | GenerationError] = []
        """Why requests got no usable reply. They propose nothing."""
        self.paraphraser = Paraphraser(parts)
        self.prompt = prompt_with("refiners/split", ("item",))
        self.proposer: Proposer = FromGenerator(
            ContrastiveGenerator(
                parts.replaced(max_attempts=2),
                prompt="generators/openrubrics_listwise",
                shape=CategorizedQuestions,
                max_items=20,
            )
        )

    def validate(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        self.paraphraser.validate()

    def changes(self, checklist: Checklist, findings: Sequence[Finding], groups: Sequence[Group]) -> list[Change]:
        """The proposals for a checklist; a request without a usable reply proposes nothing, see `failures`."""
        faults = {one.item.id: one for one in findings}
        known = {item.question.casefold() for item in checklist.items}

        def usable(item: ChecklistItem, question: str) -> bool:
            fault = None if item.options is not None else question_fault(question)
            return fault is None and question.casefold() not in known

        double = [item for item in checklist.items if "two questions" in (question_fault(item.question) or "")]
        weak = [item for item in checklist.items if item.id in faults and item not in double and item.check is None]
        found = []
        for item, wordings in zip(weak, self.paraphraser.reword(weak) if weak else [], strict=True):
            other = dict.fromkeys(one for one in wordings if usable(item, one.question))
            found += [Change("reword", (item,), (one,), faults[item.id].detail) for one in other]
        self.failures += self.paraphraser.failures if weak else []
        prompts = [self.prompt.messages(item=item.question) for item in double]
        replies = self.writer.ask(prompts, _Halves) if prompts else []
        for item, reply in zip(double, replies, strict=True):
            if isinstance(reply, GenerationError):
                self.failures.append(reply)
            else:
                questions = list(dict.fromkeys(map(tidy, reply.questions)))
                if len(questions) > 1 and all(usable(item, one) for one in questions):
                    parts = tuple(_worded(item, one, len(questions)) for one in questions)
                    found.append(Change("split", (item,), parts, "it asks two questions"))
        weight = fmean(abs(item.weight) for item in checklist.items)
        new: dict[str, Change] = {}
        for proposal in self.proposer(groups) if groups else []:
            try:
                items = new_items(proposal, checklist.items)
            except (ChecklistError, GenerationError) as error:
                self.failures.append(error)
                continue
            for item in items:
                added = ChecklistItem(question=item.question, weight=math.copysign(weight, item.weight))
                reason = "texts that the labels and the scores order differently"
                new.setdefault(item.question.casefold(), Change("new", (), (added,), reason))
        return found + list(new.values())[:_MOST_NEW]


def _worded(item: ChecklistItem, question: str, parts: int) -> ChecklistItem:
    """A part of an item: its weight is divided by the number of parts."""
    fields = item.model_dump(exclude={"id", "question", "evidence"}) | {"weight": item.weight / parts}
    return ChecklistItem(**fields, question=question)
