"""What a judge's replies cost: an engine with a counter in front of it.

Replies come through the store, so how many were asked for says nothing about how many were paid. A [`Meter`] stands
where the engine stands and counts what really reaches it; what the store answers never does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from checklist_rewards.backends import Arrived, Engine, Messages, ReadGroup, ReadResult, Reply, Sampling
from checklist_rewards.files.store import Key, key_of
from checklist_rewards.judges.base import Receipt


class Meter:
    """A backend that hands everything on to an engine, which is built at the first prompt, and counts.

    Args:
        engine ([`Engine`]): who replies.
    """

    chunk_reads = 64

    def __init__(self, engine: Engine):
        self.engine = engine
        self.identity = engine.identity
        self.spent = Receipt()
        self._asked: set[Key] = set()

    def asked(self, messages: Messages) -> bool:
        """Whether this prompt reached the engine."""
        return prompt_key(messages) in self._asked

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """See [`Backend`]."""
        self._asked.update(map(prompt_key, prompts))
        backend = self.engine.load()  # loading is no part of the time
        started = time.perf_counter()
        came: dict[int, list[Reply]] = {}

        def note(place: int, replies: list[Reply]) -> None:
            came[place] = replies
            if arrived is not None:
                arrived(place, replies)

        try:
            found = backend.generate(prompts, sampling, note)
            came.update(enumerate(found))
            return found
        finally:  # an engine that broke was paid for what came
            every = [reply for replies in came.values() for reply in replies]
            self.spent += Receipt.of(
                self.engine.model,
                calls=len(prompts),
                prompt_tokens=sum(reply.prompt_tokens for reply in every),
                completion_tokens=sum(reply.completion_tokens for reply in every),
                engine_seconds=time.perf_counter() - started,
            )

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]."""
        return self.engine.load().read(groups, labels)


def prompt_key(messages: Messages) -> Key:
    """Hash of a prompt: equal prompts are asked once."""
    return key_of(*(part for message in messages for part in (message["role"], message["content"])))
