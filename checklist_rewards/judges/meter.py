"""A backend wrapper that measures the calls and tokens of an engine.

Replies may come from the store, so the number of requested replies is not the number of paid ones. A [`Meter`] wraps
the engine and counts the prompts that reach it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from typing_extensions import override

from checklist_rewards.backends import Arrived, Engine, Messages, Reply, Sampling
from checklist_rewards.backends.wrapper import Wrapper
from checklist_rewards.files.store import Key, key_of
from checklist_rewards.judges.base import Receipt


class Meter(Wrapper):
    """A backend that counts the prompts that its engine replies to. Label reads are not counted here.

    Args:
        engine ([`Engine`]):
            Engine to wrap. It is loaded at the first prompt.
    """

    def __init__(self, engine: Engine):
        super().__init__(engine)
        self.spent = Receipt()
        self._asked: set[Key] = set()

    def asked(self, messages: Messages) -> bool:
        """Whether this prompt reached the engine."""
        return prompt_key(messages) in self._asked

    @override
    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        self._asked.update(map(prompt_key, prompts))
        backend = self.engine.load()  # before the timer starts, so that loading does not count
        started = time.perf_counter()
        received: dict[int, list[Reply]] = {}

        def note(place: int, replies: list[Reply]) -> None:
            received[place] = replies
            if arrived is not None:
                arrived(place, replies)

        try:
            replies = backend.generate(prompts, sampling, note)
            received.update(enumerate(replies))
            return replies
        finally:  # replies received before an engine failure are counted too
            counted = [reply for replies in received.values() for reply in replies]
            self.spent += Receipt.of(
                self.engine.model,
                calls=len(prompts),
                prompt_tokens=sum(reply.prompt_tokens for reply in counted),
                completion_tokens=sum(reply.completion_tokens for reply in counted),
                engine_seconds=time.perf_counter() - started,
            )


def prompt_key(messages: Messages) -> Key:
    """Hash of a prompt, equal for equal prompts."""
    return key_of(*(part for message in messages for part in (message["role"], message["content"])))
