"""The encoder judge: a cross-encoder answers every item with P(yes).

The model is written by `checklist-rewards distill`, or is any cross-encoder with one output. It has no prompt: it sees
the target and the question, and the input and the reference if it was trained with them, but not the history.
Otherwise it works like the one-token judge: equal reads are computed once, stored reads are reused, the items of a
target go to the engine together, and a failed read is unanswered.

A local encoder folder is recognized by its `config.json`, so `ChecklistScorer("runs/judge")` is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

from checklist_rewards.backends import Backend, Engine
from checklist_rewards.backends.encoder_rows import context_of, context_texts
from checklist_rewards.backends.models import config_of
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import ChecklistError
from checklist_rewards.files.store import Key, Store, key_of
from checklist_rewards.judges.answers import check_askable
from checklist_rewards.judges.base import Read
from checklist_rewards.judges.logprob import Labels, LogprobJudge
from checklist_rewards.judges.plan import RenderedRead

_FORMAT = "encoder-read-1"
_LABELS = {YES: YES, NO: NO}


class EncoderJudge(LogprobJudge):
    """Answers yes/no items with a cross-encoder.

    Args:
        model (`str` or [`Engine`]):
            Local folder or Hub id. The sentence-transformers package is not required.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`):
            Engine. Set to `"encoder"` for a Hub id, which is not recognized as an encoder by its name.
        store ([`Store`], *optional*):
            Store for the answers.
    """

    def __init__(self, model: str | Engine, *, backend: str | Backend = "auto", store: Store | None = None):
        super().__init__(model, backend=backend, store=store)

    @cached_property
    def context(self) -> tuple[str, ...]:
        """What the model reads besides target and question: "input", "reference", both or nothing. The model is not
        loaded."""
        return _context_of(self.engine)

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`], starting with `where`, for an item that is not answered by yes or no."""
        check_askable(item, where)
        if item.options is not None:
            raise ChecklistError(
                f"{where}, item {item.id} ({item.question!r}): it has options, but an encoder only answers yes or no."
            )

    def _render(self, reads: Sequence[Read]) -> tuple[list[RenderedRead], dict[Key, Labels]]:
        bases: dict[tuple[str, tuple[tuple[str, str], ...]], Key] = {}
        rendered = []
        for read in reads:
            context = context_texts(read, self.context)
            about = read.target, context
            if about not in bases:
                bases[about] = key_of(_FORMAT, self.identity, read.target, *chain.from_iterable(context))
            question = read.item.question
            rendered.append(RenderedRead(key_of(bases[about], question), None, read.target, question, context))
        return rendered, dict.fromkeys((read.key for read in rendered), _LABELS)


def _context_of(engine: Engine) -> tuple[str, ...]:
    engine = engine.unwrapped
    if isinstance(engine.backend, str):
        return context_of(config_of(engine.model, engine.settings.get("revision")))
    return getattr(engine.backend, "context", ())
