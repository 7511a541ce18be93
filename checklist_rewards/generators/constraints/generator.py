"""The constraints generator: the requirements of each input that code can check, without a model.

It is also the first stage of a writer with a model: [`DirectGenerator`] with `constraints=True` takes the items of
the rules, tells the model which parts of the input they cover, and adds its questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from checklist_rewards.backends import Messages, Progress
from checklist_rewards.checklists import Checklist, ChecklistItem, Evidence
from checklist_rewards.errors import GenerationError
from checklist_rewards.generators.base import Request, check_request
from checklist_rewards.generators.constraints.requirements import find_requirements
from checklist_rewards.version import __version__

SOURCE = f"constraints/{__version__}"


class ConstraintsGenerator:
    """Writes the checks that rules find in each input. No model is used.

    Each item has the part of the input that states it in `evidence`. An input without a requirement that a check can
    express gets a [`GenerationError`]; for such inputs, a writer with a model is needed.
    """

    constraints: ClassVar[bool] = True

    def check(self) -> None:
        """Nothing to check: there are no settings and no model."""

    def check_request(self, request: str | Request, where: str) -> Request:
        """Check one request. Raises a [`SampleError`] that begins with `where` if it is not valid."""
        return check_request(request, where)

    def generate(self, input: str) -> Checklist:
        """The checklist of one input. Raises [`GenerationError`] if no requirement of it can be checked by code."""
        [checklist] = self.generate_batch([input])
        if isinstance(checklist, GenerationError):
            raise checklist
        return checklist

    def generate_batch(
        self, requests: Sequence[str | Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """One checklist per request, in order, or the error that replaces it.

        Raises:
            SampleError: If a request is not valid. The message names its number, from 1.
        """
        checked = [self.check_request(request, f"request {n}") for n, request in enumerate(requests, start=1)]
        results = [_checklist(request.input) for request in checked]
        if progress is not None:
            progress(len(results))
        return results


def constraint_items(input: str) -> list[ChecklistItem]:
    """The items of the requirements of an input that code can check, with their evidence."""
    return [
        ChecklistItem(
            question=found.question,
            check=found.check,  # type: ignore[arg-type]  # a mapping is stored as JSON
            evidence=Evidence(start=found.start, end=found.end, text=input[found.start : found.end]),
        )
        for found in find_requirements(input)
        if found.check is not None
    ]


def _checklist(input: str) -> Checklist | GenerationError:
    items = constraint_items(input)
    if items:
        return Checklist(items=tuple(items), source=SOURCE)
    others = [f"{input[found.start : found.end]!r}: {found.reason}" for found in find_requirements(input)]
    without = f" Without a check: {'; '.join(others)}." if others else ""
    return GenerationError(f"no requirement of the input can be checked by code.{without}")


def covering(messages: Messages, items: Sequence[ChecklistItem]) -> Messages:
    """The messages with a last section that lists the parts of the input for which items exist already."""
    if not items:
        return messages
    *before, last = messages
    parts = "\n".join(f"- {item.evidence.text}" for item in items if item.evidence is not None)
    section = (
        "## Already covered\n\nCode checks these requirements of the input. Write no questions about them, only about "
        f"everything else that the input asks for:\n\n{parts}"
    )
    return [*before, {**last, "content": f"{last['content']}\n\n{section}"}]


def with_constraints(checklist: Checklist, items: Sequence[ChecklistItem]) -> Checklist:
    """The items of the rules followed by those of a written checklist, without its repetitions of them."""
    known = {item.question.casefold() for item in items}
    written = [item for item in checklist.items if item.question.casefold() not in known]
    return checklist.model_copy(update={"items": (*items, *written)})
