"""What a refiner is: checklists in, better ones out, and a report of what became of every item.

Refiners work on many checklists at once (`refine_batch`): what is asked about all of them goes to the engine in one
call per stage, and their questions are embedded together. `refine` is a batch of one.

A refiner never changes a checklist on the strength of a reply that it could not read: the items concerned stay as they
were and are listed as *unclear*. It never returns an empty checklist either: where nothing would be left, that is a
[`ChecklistError`], and the report still says why each item went.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel

from checklist_rewards.backends import Backend, Engine, Sampling
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import ChecklistError, GenerationError, PromptError, SampleError
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.prompts import PromptTemplate, load_prompt
from checklist_rewards.replies import ask
from checklist_rewards.scorer import Sample
from checklist_rewards.version import __version__

logger = logging.getLogger(__name__)

Value = TypeVar("Value", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Note:
    """An item, and why it is where it is."""

    item: ChecklistItem
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the items of one checklist."""

    refiner: str
    kept: tuple[ChecklistItem, ...]
    """The items of the refined checklist, in its order."""
    dropped: tuple[Note, ...] = ()
    """Items that it no longer has: left out, or merged into another."""
    unclear: tuple[Note, ...] = ()
    """Items that were kept because nothing could be found out about them."""

    def __str__(self) -> str:
        return f"{self.refiner}: {len(self.kept)} kept ({len(self.unclear)} unclear), {len(self.dropped)} dropped"


@dataclass(slots=True)
class Outcome:
    """What a refiner finds out about the items of one checklist."""

    kept: Sequence[ChecklistItem]
    dropped: Sequence[Note] = ()
    unclear: Sequence[Note] = ()
    model: str | None = None
    """The model that was asked."""


class Refiner(Protocol):
    """Improves checklists."""

    def check(self) -> None:
        """Refuse what can be refused before any call: raises a [`ChecklistRewardsError`]."""
        ...

    def refine(self, checklist: Checklist, samples: Sequence[Sample] = ()) -> Checklist:
        """A better checklist. `samples` are targets to try it on, for refiners that do; the checklists that they carry
        are not looked at. Raises [`ChecklistError`] if no item is left."""
        ...


Refined = Checklist | ChecklistError
"""A refined checklist, or why no item of it is left."""


def refine_all(
    refiner: Refiner, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]
) -> list[Refined]:
    """Refine many checklists: at once, or one after the other with a refiner that has no `refine_batch`."""
    batch = getattr(refiner, "refine_batch", None)
    if batch is not None:
        return batch(checklists, samples)
    found: list[Refined] = []
    for checklist, of_checklist in zip(checklists, samples, strict=True):
        try:
            found.append(refiner.refine(checklist, of_checklist))
        except ChecklistError as error:
            found.append(error)
    return found


class ReportingRefiner:
    """What the package's refiners share: a name, and the reports of the checklists they refined last."""

    name: ClassVar[str]
    reports: Sequence[Report] = ()
    """Of the last call, one per checklist."""

    @property
    def report(self) -> Report | None:
        """Of the last checklist refined; None before the first."""
        return self.reports[-1] if self.reports else None

    def refine(self, checklist: Checklist, samples: Sequence[Sample] = ()) -> Checklist:
        """[`refine_batch`] of one checklist. Raises [`ChecklistError`] if no item is left."""
        [found] = self.refine_batch([checklist], [samples])
        if isinstance(found, ChecklistError):
            raise found
        return found

    def refine_batch(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]] = ()) -> list[Refined]:
        """Refine checklists together. In place of one of which no item is left stands the [`ChecklistError`] that says
        so.

        Args:
            checklists (sequence of [`Checklist`]).
            samples (sequence of sequences of [`Sample`], *optional*): per checklist, targets to try it on.

        Raises:
            SampleError: for samples that are missing or cannot be used.
            ModelError: if a model or the embedder cannot be used.
        """
        self.reports = ()
        parsed = [Checklist.parse(checklist) for checklist in checklists]
        self.check()
        outcomes = self._refine(parsed, samples or [()] * len(parsed))
        self.reports = [
            Report(self.name, tuple(outcome.kept), tuple(outcome.dropped), tuple(outcome.unclear))
            for outcome in outcomes
        ]
        unclear = [note for report in self.reports for note in report.unclear]
        if unclear:
            logger.warning(
                "%s: %d of %d items stay because nothing could be found out about them; the first: %s",
                *(self.name, len(unclear), sum(map(len, parsed)), unclear[0].reason),
            )
        return [self._made(checklist, outcome) for checklist, outcome in zip(parsed, outcomes, strict=True)]

    def check(self) -> None:
        """Refuse what can be refused before any call. Raises a [`ChecklistRewardsError`]."""
        raise NotImplementedError

    def _refine(self, checklists: Sequence[Checklist], samples: Sequence[Sequence[Sample]]) -> list[Outcome]:
        raise NotImplementedError

    def _made(self, checklist: Checklist, outcome: Outcome) -> Refined:
        if not outcome.kept:
            first = outcome.dropped[0].reason
            return ChecklistError(f"{self.name}: no item is left of {len(checklist)}; the first went because {first}.")
        made = {
            "items": list(outcome.kept),
            "source": _joined(checklist.source, f"{self.name}/{__version__}"),
            "model": _joined(checklist.model, outcome.model),
        }
        return Checklist.parse(made, f"{self.name}: what is left")


class Asker:
    """One way of asking a model: engine, prompt and sampling, greedy and through the store.

    Args: as in the refiners; `needs` are the placeholders that the prompt must have, and all that it may have.
    """

    def __init__(
        self,
        model: str | Engine,
        backend: str | Backend,
        base_url: str | None,
        prompt: str | Path | PromptTemplate,
        needs: Sequence[str],
        max_tokens: int,
        max_attempts: int,
        store: bool | str | Path | Store,
    ):
        for name, value in (("max_tokens", max_tokens), ("max_attempts", max_attempts)):
            whole_number(name, value)
        self.engine = Engine.of(model, backend, base_url)
        self.model = self.engine.model
        self.prompt = load_prompt(prompt, "stage")
        if self.prompt.placeholders != set(needs):
            got, want = (
                ", ".join(f"{{{name}}}" for name in names) for names in (sorted(self.prompt.placeholders), needs)
            )
            raise PromptError(f"{self.prompt.name}: the placeholders must be {want}; got {got or 'none'}.")
        self.max_tokens, self.max_attempts = max_tokens, max_attempts
        self.store = open_store(store)

    def check(self) -> None:
        """Refuse a model that is not there. Raises [`ModelError`]."""
        _ = self.engine.identity

    def ask(
        self,
        fields: Sequence[Mapping[str, str]],
        shape: type[Value],
        check: Callable[[int, Any], str | None] | None = None,
    ) -> list[Value | GenerationError]:
        """Fill the prompt for every entry of `fields` and ask for values of `shape`; see [`replies.ask`]."""
        prompts = [self.prompt.messages(**entry) for entry in fields]
        sampling = Sampling(self.max_tokens, temperature=0.0)
        return ask(self.engine, prompts, shape, sampling, store=self.store, attempts=self.max_attempts, check=check)


def share(name: str, value: object, *, least: float = 0.0) -> None:
    """Refuse what is no number from `least` to 1. Raises [`SampleError`]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
        raise SampleError(f"{name}={value!r} is not allowed; it is a number from {least:g} to 1.")


def whole_number(name: str, value: object) -> None:
    """Refuse what is no whole number from 1 up. Raises [`SampleError`]."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SampleError(f"{name}={value!r} is not allowed; it is a whole number from 1 up.")


def check_samples(refiner: str, samples: Sequence[Sample], checklist: Checklist) -> list[Sample]:
    """The samples with `checklist` for their own. Raises [`SampleError`] if there are none, or one is no sample."""
    if not samples:
        raise SampleError(
            f"{refiner}: it needs samples, texts of which some pass the checklist, and got none; "
            "give samples or leave this refiner out."
        )
    for number, sample in enumerate(samples, start=1):
        if not isinstance(sample, Sample):
            got = f"{type(sample).__name__} {sample!r:.60}"
            raise SampleError(f"{refiner}: sample {number} must be a Sample with a target, got {got}.")
    return [replace(sample, checklist=checklist) for sample in samples]


def _joined(*parts: str | None) -> str | None:
    """The parts that are there, each once, with a plus between them."""
    return "+".join(dict.fromkeys(part for part in parts if part)) or None
