"""What a generator is: requests in, one checklist or one error per request out.

An error takes the place of its own checklist and of nothing else: one unusable reply never costs its neighbours. Only
what no reply can mend (a model that is not there, a request that is no text) is raised, before anything is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError
from checklist_rewards.judges import Progress


@dataclass(frozen=True, slots=True)
class Request:
    """What a checklist is wanted for.

    Args:
        input (`str`): what is asked of the response; must not be blank.
        reference (`str`, *optional*): a known good answer.
        history (`str`, *optional*): earlier turns.
    """

    input: str
    reference: str | None = None
    history: str | None = None


class Generator(Protocol):
    """Writes checklists."""

    def check(self) -> None:
        """Refuse what can be refused without an engine: raises a [`ChecklistRewardsError`]."""
        ...

    def generate_batch(
        self, requests: Sequence[str | Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        """A checklist per request, in order, or in its place the error that says why there is none."""
        ...
