"""What a generator is: one that writes a checklist per request, or one for a whole corpus.

*Instance level*: an error takes the place of its own checklist and of nothing else, so one unusable reply never costs
its neighbours. Only what no reply can mend (a model that is not there, a request that is no text) is raised, before
anything is sampled.

*Corpus level*: one checklist out of several stages (`stages.py`). A stage that breaks is raised as a [`StageError`];
what the stages before it were given stays in the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError, SampleError


@dataclass(frozen=True, slots=True)
class Request:
    """What a checklist is wanted for. A generator's prompt shows what it has a place for.

    Args:
        input (`str`): what is asked of the response; must not be blank.
        reference (`str`, *optional*): a known good answer.
        history (`str`, *optional*): earlier turns.
        context (`str`, *optional*): what else belongs to the task, such as a document to work from.
        candidates (sequence of `str`, *optional*): responses to compare; where a prompt wants them ranked, best first.
        chosen, rejected (`str`, *optional*): a better and a worse response; both or neither.
    """

    input: str
    reference: str | None = None
    history: str | None = None
    context: str | None = None
    candidates: Sequence[str] = ()
    chosen: str | None = None
    rejected: str | None = None


class Generator(Protocol):
    """Writes a checklist for every request."""

    def check(self) -> None:
        """Refuse what can be refused without an engine: raises a [`ChecklistRewardsError`]."""
        ...

    def generate_batch(
        self, requests: Sequence[str | Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """A checklist per request, in order, or in its place the error that says why there is none."""
        ...


class CorpusGenerator(Protocol):
    """Writes one checklist for a whole corpus, from what its source says ([`Feedback`], [`Dimensions`], ...)."""

    stages: Sequence[Stage]
    """What the last call of `generate` did, stage by stage."""

    def check(self) -> None:
        """Refuse what can be refused without an engine: raises a [`ChecklistRewardsError`]."""
        ...

    def generate(self, source: Any, *, progress: Callable[[Stage], None] | None = None) -> Checklist:
        """The checklist; `progress` is told of every stage that is done. Raises [`StageError`]."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a corpus-level generator that is done."""

    name: str
    asked: int
    """What it had to work on: prompts put to the model, or items handed to a refiner."""
    kept: int
    """What it passed on to the next stage."""
    seconds: float


def check_request(request: str | Request, where: str) -> Request:
    """The request with its fields checked. Raises [`SampleError`] that begins with `where`."""
    request = Request(request) if isinstance(request, str) else request
    for name in ("input", "reference", "history", "context", "chosen", "rejected"):
        text = getattr(request, name)
        if not isinstance(text, str) and (text is not None or name == "input"):
            raise SampleError(f"{where}: {name} must be a string, got {type(text).__name__} {text!r:.60}.")
    if not request.input.strip():
        raise SampleError(f"{where}: the input is blank; a checklist needs something that was asked.")
    candidates = request.candidates
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        kind = type(candidates).__name__
        raise SampleError(f"{where}: candidates must be a list of strings, got {kind} {candidates!r:.60}.")
    for number, text in enumerate(candidates, start=1):
        if not isinstance(text, str):
            raise SampleError(f"{where}: candidate {number} must be a string, got {type(text).__name__} {text!r:.60}.")
    for given, absent in (("chosen", "rejected"), ("rejected", "chosen")):
        if getattr(request, given) is not None and getattr(request, absent) is None:
            raise SampleError(f"{where}: there is a {given} response but no {absent} one; give both or neither.")
    return request


def check_numbers(temperature: float, **counts: int) -> None:
    """Raises [`SampleError`] for a temperature below 0 or a count below 1, naming it."""
    for name, value in counts.items():
        if value < 1:
            raise SampleError(f"{name}={value!r} is not allowed; it is a whole number from 1 up.")
    if not 0 <= temperature < math.inf:
        raise SampleError(f"temperature={temperature!r} is not allowed; it is a number from 0 up.")
