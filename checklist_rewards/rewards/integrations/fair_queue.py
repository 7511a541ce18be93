"""Waiting samples, shared fairly between clients.

Clients take turns (deficit round robin, Shreedhar and Varghese 1996). In a turn, a client gets samples of about
[`QUANTUM`] tokens. So a client with thousands of waiting samples delays another one by its turns, not by its backlog,
and the samples of one request, which often share a prefix, mostly stay in one batch. With one client, samples keep
their order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from checklist_rewards.scorer import Sample
from checklist_rewards.scores import Score

QUANTUM = 16_384
"""Tokens per turn: the completions of a few prompts."""


@dataclass(slots=True)
class Waiting:
    """A sample that waits to be scored. Times are those of `time.monotonic`."""

    sample: Sample
    future: Future[Score]
    arrived: float
    tokens: int = 1
    deadline: float = float("inf")


@dataclass(slots=True)
class _Line:
    """The samples of one client, and the tokens that are left of its turn."""

    samples: deque[Waiting] = field(default_factory=deque)
    tokens: int = 0
    balance: int = QUANTUM


class FairQueue:
    """A queue per client, and turns between them. Not thread-safe.

    >>> queue = FairQueue()
    >>> len(queue), queue.tokens
    (0, 0)
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[Hashable, _Line] = OrderedDict()
        self._count = 0
        self.tokens = 0
        """Tokens of all waiting samples."""

    def __len__(self) -> int:
        return self._count

    def add(self, client: Hashable, samples: Iterable[Waiting]) -> None:
        """Put samples at the end of the client's queue."""
        line = self._lines.setdefault(client, _Line())
        for waiting in samples:
            line.samples.append(waiting)
            line.tokens += waiting.tokens
            self.tokens += waiting.tokens
            self._count += 1
        if not line.samples:
            del self._lines[client]

    def drop_cancelled(self, client: Hashable) -> None:
        """Remove the cancelled samples of a client."""
        line = self._lines.get(client)
        if line is None:
            return
        kept = deque(waiting for waiting in line.samples if not waiting.future.cancelled())
        tokens = sum(waiting.tokens for waiting in kept)
        self._count -= len(line.samples) - len(kept)
        self.tokens -= line.tokens - tokens
        line.samples, line.tokens = kept, tokens
        if not kept:
            del self._lines[client]

    def ahead(self, client: Hashable) -> int:
        """Estimated tokens that are scored before the next sample of this client: its own backlog and as much of every
        other client, at most everything that waits."""
        line = self._lines.get(client)
        return 0 if line is None else min(self.tokens, line.tokens * len(self._lines))

    def oldest(self) -> float:
        """Arrival of the sample that waits longest."""
        return min(line.samples[0].arrived for line in self._lines.values())

    def take(self, most: int, now: float) -> tuple[list[Waiting], list[Waiting]]:
        """Remove the next samples. Cancelled ones are dropped.

        Args:
            most (`int`):
                Maximum number of samples to score.
            now (`float`):
                The time.

        Returns:
            `tuple[list[Waiting], list[Waiting]]`: Samples to score, and samples whose deadline has passed.
        """
        batch: list[Waiting] = []
        late: list[Waiting] = []
        while self._lines and len(batch) < most:
            client, line = next(iter(self._lines.items()))
            if line.balance <= 0:
                line.balance += QUANTUM
                self._lines.move_to_end(client)
                continue
            waiting = line.samples.popleft()
            self._count -= 1
            self.tokens -= waiting.tokens
            line.tokens -= waiting.tokens
            if waiting.deadline <= now:
                late.append(waiting)
            elif not waiting.future.cancelled():
                line.balance -= waiting.tokens
                batch.append(waiting)
            if not line.samples:
                del self._lines[client]
        return batch, late
