"""The encoder judge: a cross-encoder answers every item with P(yes).

Made by `checklist-rewards distill` from labels of people or of a larger judge, or any cross-encoder with one output
from elsewhere. It is a one-token judge without a prompt: what it sees is the target and the question, as they are, no
input, no reference and no history. Everything else is the one-token judge's: equal reads are made once, stored reads
are not made again, the items of a target go to the engine together, and a read that failed is unanswered.

A folder is known for an encoder by its `config.json`, so `ChecklistScorer("runs/judge")` is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

from checklist_rewards.backends import Backend, Engine
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
        model (`str` or [`Engine`]): a folder or a Hub id; "sentence-transformers" is not needed to read with it.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`): "encoder" for a Hub id, which is not
            known for an encoder by its name; or the engine.
        store ([`Store`], *optional*): where answers are kept.
    """

    def __init__(self, model: str | Engine, *, backend: str | Backend = "auto", store: Store | None = None):
        super().__init__(model, backend=backend, store=store)

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that is not answered by yes or no. Raises [`ChecklistError`] that begins with `where`."""
        check_askable(item, where)
        if item.options is not None:
            raise ChecklistError(
                f"{where}, item {item.id} ({item.question!r}): it has options; an encoder answers yes or no."
            )

    def _render(self, reads: Sequence[Read]) -> tuple[list[RenderedRead], dict[Key, Labels]]:
        bases = {target: key_of(_FORMAT, self.identity, target) for target in {read.target for read in reads}}
        rendered = [
            RenderedRead(key_of(bases[read.target], read.item.question), None, read.target, read.item.question)
            for read in reads
        ]
        return rendered, dict.fromkeys((read.key for read in rendered), _LABELS)
