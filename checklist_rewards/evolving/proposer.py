"""Who proposes items: a callable from groups of responses to new questions.

[`GroupProposer`] asks a model, with the prompt `evolving/propose`, one call per group. [`FromGenerator`] uses a
generator, such as [`ContrastiveGenerator`], which sees the responses as its candidates. Any other callable works too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Unpack

from pydantic import BaseModel

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators.base import Generator, Request
from checklist_rewards.generators.shapes import tidy
from checklist_rewards.judges.faults import question_fault
from checklist_rewards.prompts import PromptTemplate, fence
from checklist_rewards.validation import whole_number
from checklist_rewards.writer import Writer, WriterKwargs, prompt_with, writer_of

DEFAULT_PROMPT = "evolving/propose"
_NEEDS = ("conversation", "instruction", "reference", "responses", "questions", "most")


@dataclass(frozen=True, slots=True)
class Group:
    """The completions of one prompt, as a proposer sees them."""

    input: str | None
    history: str | None
    reference: str | None
    responses: tuple[str, ...]
    """The judged texts, on all ranks, with "[image]" in place of an image."""
    scores: tuple[float | None, ...]
    """Their scores, in [0, 1]."""
    persistent: tuple[ChecklistItem, ...]
    active: tuple[ChecklistItem, ...]


Proposal = Checklist | GenerationError | Sequence[Any] | None
"""New items: anything that [`Checklist.parse`] accepts. None or an empty list: no new item."""
Proposer = Callable[[Sequence[Group]], Sequence[Proposal]]
"""Proposes items for groups: one proposal per group, in order."""


def new_items(proposal: Proposal, known: Iterable[ChecklistItem]) -> list[ChecklistItem]:
    """The items of a proposal that have a weight and ask none of the known questions, each question once.

    Raises:
        GenerationError, ChecklistError: If the proposal is an error, or no checklist.
    """
    if isinstance(proposal, GenerationError):
        raise proposal
    if proposal is None or (not isinstance(proposal, Checklist) and not len(proposal)):
        return []
    seen = {name for item in known for name in (item.id, item.question.casefold())}
    items = []
    for item in Checklist.parse(proposal, "the proposal").items:
        if item.weight and not seen & {item.id, item.question.casefold()}:
            seen.add(item.question.casefold())
            items.append(item)
    return items


class Questions(BaseModel):
    """The reply to the prompt."""

    positive: list[str]
    negative: list[str]


class GroupProposer:
    """Asks a model for questions that tell the responses of a group apart.

    The weight of a proposed item is the mean absolute weight of the persistent items, negative for "negative"
    questions.

    Args:
        model (`str`, [`Engine`] or [`Writer`]): the model that proposes.
        max_items, prompt (*optional*): as in [`ProposerConfig`].
        **settings: the other fields of [`Writer`]. By default `temperature` is 0, `max_tokens` 1024 and `max_attempts`
            2.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    writing: ClassVar[WriterKwargs] = {"temperature": 0.0, "max_tokens": 1024, "max_attempts": 2}

    def __init__(
        self,
        model: str | Engine | Writer,
        *,
        max_items: int = 5,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        **settings: Unpack[WriterKwargs],
    ):
        whole_number("max_items", max_items)
        self.max_items = max_items
        self.writer = writer_of(self, model, settings)
        self.prompt = prompt_with(prompt, _NEEDS)

    @property
    def engine(self) -> Engine:
        """The model that proposes."""
        return self.writer.engine

    def validate(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        self.writer.validate()

    def __call__(self, groups: Sequence[Group]) -> list[Proposal]:
        """Propose items for groups, all in one call of the engine."""
        prompts = [self.prompt.messages(**self._fields(group)) for group in groups]
        replies = self.writer.ask(prompts, Questions, self._complaint)
        return [
            reply if isinstance(reply, GenerationError) else _items(reply, group)
            for group, reply in zip(groups, replies, strict=True)
        ]

    def _fields(self, group: Group) -> dict[str, Any]:
        responses = list(dict.fromkeys(group.responses))
        blocks = [f"Response {number}:\n{fence('response', text)}" for number, text in enumerate(responses, start=1)]
        return {
            "conversation": group.history,
            "instruction": group.input or "",
            "reference": group.reference,
            "responses": "\n\n".join(blocks),
            "questions": "\n".join(f"- {item.question}" for item in (*group.persistent, *group.active)),
            "most": self.max_items,
        }

    def _complaint(self, index: int, reply: Questions) -> str | None:
        questions = [tidy(question) for question in (*reply.positive, *reply.negative)]
        if len(questions) > self.max_items:
            return f"the reply has {len(questions)} questions; at most {self.max_items} are allowed."
        for question in questions:
            if (fault := question_fault(question)) is not None:
                return f"{question!r:.80} is not a yes/no question; it {fault}."
        return None


class FromGenerator:
    """Uses a [`Generator`] as a proposer, such as a [`ContrastiveGenerator`], or a `DirectGenerator` whose prompt has
    `{candidates}`. The responses that have a score are its candidates, best first. A group with fewer than two
    different ones gets no proposal. The weights of a proposal are scaled to the mean absolute weight of the
    persistent items."""

    def __init__(self, generator: Generator):
        self.generator = generator

    @property
    def engine(self) -> Engine | None:
        """The model of the generator, if it has one."""
        return getattr(self.generator, "engine", None)

    def validate(self) -> None:
        """Check the generator."""
        self.generator.validate()

    def __call__(self, groups: Sequence[Group]) -> Sequence[Proposal]:
        """Write a checklist for every group."""
        requests = [_request(group) for group in groups]
        written = iter(self.generator.generate_batch([request for request in requests if request is not None]))
        return [
            None if request is None else _on_scale_of(group, next(written))
            for group, request in zip(groups, requests, strict=True)
        ]


def _request(group: Group) -> Request | None:
    """The request of a group; None if fewer than two different responses have a score and so a rank."""
    scored = [(score, text) for score, text in zip(group.scores, group.responses, strict=True) if score is not None]
    ranked = sorted(scored, key=lambda pair: -pair[0])
    responses = tuple(dict.fromkeys(text for _, text in ranked))
    if len(responses) < 2:
        return None
    return Request(group.input or "", group.reference, group.history, candidates=responses)


def _on_scale_of(group: Group, proposal: Checklist | GenerationError) -> Checklist | GenerationError:
    if isinstance(proposal, GenerationError):
        return proposal
    mean, own = _mean_weight(group.persistent), _mean_weight(proposal.items)
    items = tuple(item.model_copy(update={"weight": item.weight / own * mean}) for item in proposal.items)
    return proposal.model_copy(update={"items": items})


def _mean_weight(items: Sequence[ChecklistItem]) -> float:
    return fmean(abs(item.weight) for item in items)


def _items(reply: Questions, group: Group) -> list[ChecklistItem]:
    weight = _mean_weight(group.persistent)
    signed = [*((text, weight) for text in reply.positive), *((text, -weight) for text in reply.negative)]
    return [ChecklistItem(question=tidy(text), weight=signed_weight) for text, signed_weight in signed]
