"""The tagger: keeps the items that have all given qualities.

A quality is a name with a one-sentence definition. One model call per item asks about all qualities, with the reason
first. An item is kept if it has all of them. If a reply cannot be parsed, the item is kept and listed as unclear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.refiners.base import Asker, Note, Outcome, ReportingRefiner, transient_failure
from checklist_rewards.scorer import Sample

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
        model (`str`): the model that assesses the qualities.
        qualities (mapping of `str` to `str`, *optional*): name to definition of each required quality. Defaults to
            `general` and `specific`.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`): `"auto"`, `"transformers"`, `"vllm"`,
            `"openai"`, or a [`Backend`] object.
        base_url (`str`, *optional*): URL of an OpenAI-compatible server.
        prompt (`str` or `Path`, *optional*): a prompt with `{item}` and `{qualities}` (one per line).
        max_tokens, max_attempts (`int`, *optional*, default to `512` and `3`): tokens per reply, and replies per
            item.
        store (`bool`, path or [`Store`], *optional*, defaults to `True`): where replies are stored; False disables it.

    Raises:
        ChecklistRewardsError: If an argument is not valid.
    """

    name = "tagger"

    def __init__(
        self,
        model: str | Engine,
        *,
        qualities: Mapping[str, str] = QUALITIES,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        max_tokens: int = 512,
        max_attempts: int = 3,
        store: bool | str | Path | Store = True,
    ):
        self.qualities = _checked(qualities)
        self.model = Engine.of(model).model
        self.shape = _shape(self.qualities)
        needs = ("item", "qualities")
        self.asker = Asker(model, backend, base_url, prompt, needs, max_tokens, max_attempts, store)

    def validate(self) -> None:
        """Check that the model exists, without loading it. Raises [`ModelError`]."""
        self.asker.validate()

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Outcome]:
        listed = "\n".join(f"- {name}: {definition}" for name, definition in self.qualities.items())
        fields = [{"item": item.question, "qualities": listed} for c in checklists for item in c.items]
        replies = iter(self.asker.ask(fields, self.shape))
        return [self._refinement(checklist, [next(replies) for _ in checklist.items]) for checklist in checklists]

    def _refinement(self, checklist: Checklist, replies: Sequence[BaseModel | GenerationError]) -> Outcome:
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
        return Outcome(kept, dropped, unclear, self.model, transient_failure(replies))


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
