"""A base for backends that wrap an engine, for example to limit or to count its calls."""

from __future__ import annotations

from collections.abc import Sequence

from checklist_rewards.backends.base import Arrived, Messages, ReadGroup, ReadResult, Reply, Sampling
from checklist_rewards.backends.engine import Engine


class Wrapper:
    """A [`Backend`] that passes every call to an engine. Subclasses override what differs.

    Creating one loads nothing and does not look up the model.

    Args:
        engine ([`Engine`]):
            Engine to wrap. It is loaded at the first call.
    """

    chunk_reads = 4096

    def __init__(self, engine: Engine):
        self.engine = engine

    @property
    def identity(self) -> str:
        """The identity of the engine. Raises [`ModelError`] if its model does not exist."""
        return self.engine.identity

    @property
    def wrapped(self) -> Engine:
        """This backend as an engine, under the model name of the engine that it wraps."""
        return Engine(self.engine.model, self, self.engine.base_url)

    @property
    def continues(self) -> bool:
        """Whether the engine reads labels after a text that the assistant has written."""
        return getattr(self.engine.load(), "continues", False)

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """Read with the engine."""
        return self.engine.load().read(groups, labels)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Generate with the engine."""
        return self.engine.load().generate(prompts, sampling, arrived)
