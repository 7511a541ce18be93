"""What generators share. They write one checklist per request ([`Generator`]), or one for a corpus (`stages.py`).

A failed request gives an error in place of its own checklist and does not affect the other requests. Errors that no
reply can fix, such as a missing model or a request that is not text, are raised before anything is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError, SampleError
from checklist_rewards.rows import Request
from checklist_rewards.validation import string, whole_number


class Generator(Protocol):
    """Writes one checklist per request."""

    def validate(self) -> None:
        """Check settings and models without loading an engine. Raises a [`ChecklistRewardsError`]."""
        ...

    def generate_batch(
        self, requests: Sequence[str | Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """One checklist per request, in order, or the error that replaces it."""
        ...


@dataclass(slots=True)
class Stage:
    """A stage of a corpus-level generator."""

    name: str
    asked: int = 0
    """Number of prompts sent to the model, or of items passed to a refiner."""
    kept: int = 0
    """Number of items or values passed to the next stage."""
    seconds: float = 0.0


def check_request(request: str | Request, where: str) -> Request:
    """Check the fields of a request; a string becomes a request with only an input.

    Raises:
        SampleError: If a field is not valid. The message begins with `where`.
    """
    request = Request(request) if isinstance(request, str) else request
    for name in ("input", "reference", "history", "context", "chosen", "rejected"):
        text = getattr(request, name)
        if text is not None or name == "input":
            string(f"{where}: {name}", text)
    if not request.input.strip():
        raise SampleError(f"{where}: the input is blank; a checklist needs an instruction.")
    candidates = request.candidates
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        kind = type(candidates).__name__
        raise SampleError(f"{where}: candidates must be a list of strings, got {kind} {candidates!r:.60}.")
    for number, text in enumerate(candidates, start=1):
        string(f"{where}: candidate {number}", text)
    for given, absent in (("chosen", "rejected"), ("rejected", "chosen")):
        if getattr(request, given) is not None and getattr(request, absent) is None:
            raise SampleError(f"{where}: got a {given} response without a {absent} one; give both or neither.")
    return request


def check_counts(min_items: int, max_items: int) -> None:
    """Check that both counts are at least 1, and `max_items` at least `min_items`. Raises [`SampleError`]."""
    whole_number("min_items", min_items)
    whole_number("max_items", max_items)
    if max_items < min_items:
        raise SampleError(f"max_items={max_items} is not allowed; it must be at least min_items={min_items}.")
