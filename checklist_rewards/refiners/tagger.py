"""The tagger: keeps the items that have all given qualities.

A quality is a name with a one-sentence definition. One model call per item asks about all qualities, with the reason
first. An item is kept if it has all of them. If a reply cannot be parsed, the item is kept and listed as unclear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

from pydantic import BaseModel, ConfigDict, Field, create_model

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.refiners.base import Note, Report, ReportingRefiner, transient_failure
from checklist_rewards.scorer import Sample
from checklist_rewards.writer import Writer, WriterKwargs, prompt_with, writer_of

DEFAULT_PROMPT = "refiners/tag"
QUALITIES: Mapping[str, str] = {
    "general": "the question can be put to any text of the kind that the checklist is for, not only to one with a "
    "particular subject, author or occasion",
    "specific": "the question looks at one definite property of the text, so that two careful readers would give the "
    "same answer",
}
"""The qualities of arXiv:2507.17717, which filters questions written from feedback."""


class Tagger(ReportingRefiner):
    """Keeps items with all given qualities.

    Args:
        model (`str`, [`Engine`] or [`Writer`]): the model that assesses the qualities.
        qualities (mapping of `str` to `str`, *optional*): name to definition of each required quality. Defaults to
            `general` and `specific`.
        prompt (`str` or `Path`, *optional*): a prompt with `{item}` and `{qualities}` (one per line).
        **settings: the other fields of [`Writer`]. By default `temperature` is 0, `max_tokens` 512 and `max_attempts`
            3.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    name = "tagger"
    writer: Writer
    writing: ClassVar[WriterKwargs] = {"temperature": 0.0, "max_tokens": 512, "max_attempts": 3}

    def __init__(
        self,
        model: str | Engine | Writer,
        *,
        qualities: Mapping[str, str] = QUALITIES,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        **settings: Unpack[WriterKwargs],
    ):
        self.qualities = _checked(qualities)
        self.writer = writer_of(self, model, settings)
        self.model = self.writer.engine.model
        self.shape = _shape(self.qualities)
        self.prompt = prompt_with(prompt, ("item", "qualities"))

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Report]:
        listed = "\n".join(f"- {name}: {definition}" for name, definition in self.qualities.items())
        prompts = [self.prompt.messages(item=i.question, qualities=listed) for c in checklists for i in c.items]
        replies = iter(self.writer.ask(prompts, self.shape))
        return [self._refinement(checklist, [next(replies) for _ in checklist.items]) for checklist in checklists]

    def _refinement(self, checklist: Checklist, replies: Sequence[BaseModel | GenerationError]) -> Report:
        kept: list[ChecklistItem] = []
        dropped: list[Note] = []
        unclear: list[Note] = []
        for item, reply in zip(checklist.items, replies, strict=True):
            if isinstance(reply, GenerationError):
                kept.append(item)
                unclear.append(Note(item, str(reply)))
                continue
            tags = reply.model_dump(by_alias=True)
            lacking = [name for name in self.qualities if not tags[name]]
            if lacking:
                because = f": {reason}" if (reason := tags["reason"].strip()) else ""
                dropped.append(Note(item, f"it is not {' or '.join(lacking)}{because}"))
            else:
                kept.append(item)
        return Report(kept, dropped, unclear, self.model, transient_failure(replies))


def _checked(qualities: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(qualities, Mapping) or not qualities:
        raise SampleError(f"qualities must map at least one name to its definition, got {qualities!r:.80}.")
    for name, definition in qualities.items():
        if not isinstance(name, str) or not name.strip() or name == "reason" or "\n" in name:
            raise SampleError(
                f"qualities: {name!r:.80} is not a valid name; use one line of text other than 'reason'."
            )
        if not isinstance(definition, str) or not definition.strip():
            raise SampleError(f"qualities: {name!r} needs a definition as text, got {definition!r:.80}.")
    return {name: " ".join(definition.split()) for name, definition in qualities.items()}


def _shape(qualities: Mapping[str, str]) -> type[BaseModel]:
    """A reason, then true or false per quality. Names are aliases, because not every name is a valid field name."""
    fields: dict[str, Any] = {
        f"quality_{number}": (bool, Field(alias=name, description=definition))
        for number, (name, definition) in enumerate(qualities.items(), start=1)
    }
    return create_model("Tags", __config__=ConfigDict(populate_by_name=False), reason=(str, ...), **fields)
