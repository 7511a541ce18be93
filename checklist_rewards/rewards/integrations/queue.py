"""A queue that batches concurrent calls for single scores.

Many trainers request the reward of one sample at a time, from many threads or coroutines. Every call puts its samples
into one queue. A thread takes the waiting samples, waits at most `max_wait` seconds for more, and scores them with one
`scorer.score_batch`. Samples that arrive while the engine works are in the next batch, so a busy engine never waits.

    >>> queue = MicroBatcher(scorer)  # doctest: +SKIP
    >>> queue.score(Sample(["Is it short?"], "Yes."))  # from any thread  # doctest: +SKIP
    >>> await queue.score_async([Sample(["Is it short?"], "Yes.")])  # from a coroutine  # doctest: +SKIP

A sample that cannot be scored fails alone: the batch is halved until the sample is on its own, and its error goes to
its caller. Invalid samples are rejected before the judge is called. If one fails later, its halves are read again
unless they are stored, which costs less than three times the reads of the batch. An error of the model or the engine
goes to all callers of the batch.

A server may name the client of each call, an estimate of its tokens and a deadline. Clients then take turns
([`FairQueue`]), `max_tokens` limits the waiting work, and samples whose deadline has passed are not scored.

Turns are taken by deficit round robin (Shreedhar and Varghese 1996). In a turn, a client gets samples of about
[`QUANTUM`] tokens. So a client with thousands of waiting samples delays another one by its turns, not by its backlog,
and the samples of one request, which often share a prefix, mostly stay in one batch. With one client, samples keep
their order.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from checklist_rewards.errors import (
    ChecklistError,
    ChecklistRewardsError,
    ConfigError,
    ModelError,
    PromptError,
    SampleError,
)
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score
from checklist_rewards.validation import finite, whole_number

logger = logging.getLogger(__name__)

DEFAULT_MAX_WAIT = 0.005
DEFAULT_MAX_BATCH = 256
QUANTUM = 16_384
"""Tokens per turn: the completions of a few prompts."""
SAMPLE_ERRORS = (ChecklistError, PromptError, SampleError, UnicodeError)
"""Errors passed to the caller of an invalid sample. UnicodeError: half a surrogate pair, which tokenizers reject."""
_BATCH_ERRORS = (ModelError, ConfigError)
"""Errors that concern the whole batch, although they are ValueErrors."""
_SAMPLE_DATA_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that the data of one sample may cause."""
_MEMORY = 0.9
"""Weight of the batches so far in the measured rate, against the newest batch."""
_UNKNOWN_WAIT = 1.0
"""Seconds to wait while no batch has been measured."""
_LONGEST_WAIT = 60.0


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
    """A queue per client, and turns between them. Not thread-safe."""

    def __init__(self) -> None:
        self._lines: OrderedDict[Hashable, _Line] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(line.samples) for line in self._lines.values())

    @property
    def tokens(self) -> int:
        """Tokens of all waiting samples."""
        return sum(line.tokens for line in self._lines.values())

    def add(self, client: Hashable, samples: Iterable[Waiting]) -> None:
        """Put samples at the end of the client's queue."""
        line = self._lines.setdefault(client, _Line())
        for waiting in samples:
            line.samples.append(waiting)
            line.tokens += waiting.tokens

    def drop_cancelled(self, client: Hashable) -> None:
        """Remove the cancelled samples of a client."""
        if (line := self._lines.get(client)) is not None:
            line.samples = deque(waiting for waiting in line.samples if not waiting.future.cancelled())
            line.tokens = sum(waiting.tokens for waiting in line.samples)
            if not line.samples:
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
        """Remove at most `most` samples to score, and the samples before them whose deadline has passed. Cancelled
        ones are dropped."""
        batch: list[Waiting] = []
        late: list[Waiting] = []
        while self._lines and len(batch) < most:
            client, line = next(iter(self._lines.items()))
            if line.balance <= 0:
                line.balance += QUANTUM
                self._lines.move_to_end(client)
                continue
            waiting = line.samples.popleft()
            line.tokens -= waiting.tokens
            if waiting.deadline <= now:
                late.append(waiting)
            elif not waiting.future.cancelled():
                line.balance -= waiting.tokens
                batch.append(waiting)
            if not line.samples:
                del self._lines[client]
        return batch, late


class QueueFull(ChecklistRewardsError, RuntimeError):
    """The queue is full; try again later. None of the samples of the call were accepted. The queue is expected to have
    room for them after `wait` seconds."""

    def __init__(self, message: str, wait: float = _UNKNOWN_WAIT):
        super().__init__(message)
        self.wait = wait


class QueueClosed(ChecklistRewardsError, RuntimeError):
    """The queue was closed and accepts no more samples."""


class DeadlinePassed(ChecklistRewardsError, TimeoutError):
    """The deadline of a sample passed, or will pass, before it is scored."""


class MicroBatcher:
    """Batches the calls of many callers for one scorer.

    The scorer is only called from one thread, so its engine need not be thread-safe. Only the settings are pickled: a
    copy in another process has its own queue and thread.

    Args:
        scorer ([`ChecklistScorer`]): Scorer for the batches.
        max_wait (`float`, *optional*, defaults to `0.005`): Longest time in seconds that the first sample of a batch
            waits for others.
        max_batch (`int`, *optional*, defaults to `256`): Maximum number of samples per batch.
        max_queue, max_tokens (`int`, *optional*): Maximum number of waiting samples, and of their tokens. By default
            there is no limit.
        on_batch (callable, *optional*): Called after each call of the scorer, before its callers get their scores,
            with the seconds that each sample waited, and the scores, or None if the call failed. If it raises, the
            error is logged. Not pickled.

    Raises:
        SampleError: For a setting outside its range.
    """

    def __init__(
        self,
        scorer: ChecklistScorer,
        *,
        max_wait: float = DEFAULT_MAX_WAIT,
        max_batch: int = DEFAULT_MAX_BATCH,
        max_queue: int | None = None,
        max_tokens: int | None = None,
        on_batch: Callable[[list[float], list[Score] | None], None] | None = None,
    ):
        finite("max_wait", max_wait, at_least=0)
        whole_number("max_batch", max_batch)
        for name, value in (("max_queue", max_queue), ("max_tokens", max_tokens)):
            if value is not None:
                whole_number(name, value)
        self.scorer = scorer
        self.max_wait, self.max_batch, self.max_queue, self.max_tokens = max_wait, max_batch, max_queue, max_tokens
        self.batches = 0
        self._on_batch = on_batch
        self._waiting = FairQueue()
        self._tokens_done, self._seconds_busy, self._turn = 0.0, 0.0, 0.0
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("max_wait", "max_batch", "max_queue", "max_tokens")
        return partial(type(self), self.scorer, **{name: getattr(self, name) for name in names}), ()

    def __len__(self) -> int:
        """Number of waiting samples, without those being scored."""
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        """Number of tokens of the waiting samples."""
        return self._waiting.tokens

    @property
    def rate(self) -> float | None:
        """Tokens scored per second of recent batches; None before the first batch."""
        return self._tokens_done / self._seconds_busy if self._seconds_busy else None

    def submit(
        self,
        samples: Sequence[Sample],
        *,
        client: Hashable = None,
        tokens: Sequence[int] | None = None,
        deadline: float | None = None,
    ) -> list[Future[Score]]:
        """Put samples into the queue, all of them or none.

        Args:
            samples (sequence of [`Sample`]): Samples to score.
            client (hashable, *optional*): Who sends the samples. Clients take turns.
            tokens (sequence of `int`, *optional*): Estimated tokens of each sample; 1 by default.
            deadline (`float`, *optional*): Time of `time.monotonic` after which no score is needed. Samples that
                cannot be started before it raise [`DeadlinePassed`] in their futures.

        Returns:
            `list[Future[Score]]`: One future per sample, in order. Cancel a future to drop a sample that still waits.

        Raises:
            QueueFull: If `max_queue` or `max_tokens` would be exceeded.
            QueueClosed: After [`close`].
        """
        if not samples:
            return []
        futures: list[Future[Score]] = [Future() for _ in samples]
        costs = [1] * len(samples) if tokens is None else list(tokens)
        with self._changed:
            if self._closed:
                raise QueueClosed("the queue is closed and accepts no more samples.")
            self._require_room(len(samples), sum(costs))
            arrived = time.monotonic()
            if deadline is not None and (reason := self._is_hopeless(client, deadline - arrived)):
                for future in futures:
                    future.set_exception(DeadlinePassed(reason))
                return futures
            # A thread does not survive a fork of its process, so start a new one.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="checklist-microbatch", daemon=True)
                self._thread.start()
            limit = float("inf") if deadline is None else deadline
            rows = zip(samples, futures, costs, strict=True)
            self._waiting.add(client, (Waiting(row, future, arrived, cost, limit) for row, future, cost in rows))
            self._changed.notify()
        return futures

    def drop_cancelled(self, client: Hashable = None) -> None:
        """Remove the cancelled samples of a client from the queue, where they would count as waiting."""
        with self._changed:
            self._waiting.drop_cancelled(client)

    def score(self, sample: Sample) -> Score:
        """Score one sample, blocking until its batch is done. Raises the error of this sample."""
        return self.submit([sample])[0].result()

    async def score_async(self, samples: Sequence[Sample]) -> list[Score]:
        """Score samples without blocking the event loop. Raises the first error."""
        return list(await asyncio.gather(*map(asyncio.wrap_future, self.submit(samples))))

    def close(self) -> None:
        """Stop accepting samples, and wait until all accepted ones are scored."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()

    def _require_room(self, samples: int, tokens: int) -> None:
        for waiting, more, most, what in (
            (len(self._waiting), samples, self.max_queue, "samples"),
            (self._waiting.tokens, tokens, self.max_tokens, "tokens"),
        ):
            if most is not None and waiting + more > most:
                raise QueueFull(
                    f"the queue has {'about ' * (what == 'tokens')}{waiting} waiting {what} and cannot accept {more} "
                    f"more (at most {most}); try again later or send fewer at once.",
                    self._wait_for(tokens),
                )

    def _wait_for(self, tokens: int) -> float:
        """Seconds until the queue has room. Refused calls get consecutive times, so that they do not return at once
        together."""
        if self.rate is None:
            return _UNKNOWN_WAIT
        now = time.monotonic()
        over = 0 if self.max_tokens is None else max(0, self._waiting.tokens + tokens - self.max_tokens)
        self._turn = min(max(self._turn, now + over / self.rate) + tokens / self.rate, now + _LONGEST_WAIT)
        return self._turn - now

    def _is_hopeless(self, client: Hashable, left: float) -> str | None:
        """Why samples of this client cannot be started within `left` seconds; None if they can. With nothing of the
        client waiting, they are tried."""
        if left <= 0:
            return "the deadline passed before the samples were queued"
        wait = self._waiting.ahead(client) / self.rate if self.rate is not None else 0.0
        return (
            f"about {wait:.0f} s of work wait before it, but its deadline is in {left:.0f} s" if wait > left else None
        )

    def _work(self) -> None:
        while (taken := self._next_batch()) is not None:
            batch, late = taken
            for waiting in late:
                if waiting.future.set_running_or_notify_cancel():
                    waiting.future.set_exception(DeadlinePassed("the deadline passed in the queue"))
            self._score([waiting for waiting in batch if waiting.future.set_running_or_notify_cancel()])

    def _next_batch(self) -> tuple[list[Waiting], list[Waiting]] | None:
        """Wait for a batch, and for samples whose deadline has passed. None if the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) or self._closed)
            if not len(self._waiting):
                return None
            left = self._waiting.oldest() + self.max_wait - time.monotonic()
            self._changed.wait_for(lambda: len(self._waiting) >= self.max_batch or self._closed, max(left, 0))
            return self._waiting.take(self.max_batch, time.monotonic())

    def _score(self, batch: list[Waiting]) -> None:
        if not batch:
            return
        started = time.monotonic()
        waits = [started - waiting.arrived for waiting in batch]
        try:
            scores = self.scorer.score_batch([waiting.sample for waiting in batch])
        # Errors of any kind go to the callers, because in this thread they would be lost.
        except BaseException as error:
            if isinstance(error, _BATCH_ERRORS) or not isinstance(error, _SAMPLE_DATA_ERRORS):
                self._report(waits, None)
                for waiting in batch:
                    waiting.future.set_exception(error)
            elif len(batch) == 1:
                batch[0].future.set_exception(_sample_error(error))
            else:
                middle = len(batch) // 2
                self._score(batch[:middle])
                self._score(batch[middle:])
        else:
            self.batches += 1
            seconds = max(time.monotonic() - started, 1e-6)
            self._tokens_done = _MEMORY * self._tokens_done + sum(waiting.tokens for waiting in batch)
            self._seconds_busy = _MEMORY * self._seconds_busy + seconds
            self._report(waits, scores)
            for waiting, score in zip(batch, scores, strict=True):
                waiting.future.set_result(score)

    def _report(self, waits: list[float], scores: list[Score] | None) -> None:
        if self._on_batch is None:
            return
        try:
            self._on_batch(waits, scores)
        except Exception:  # the callers of the batch and of all later ones wait for this thread
            logger.exception("on_batch failed; the scores of its batch are not affected.")


def _sample_error(error: Exception) -> Exception:
    if isinstance(error, SAMPLE_ERRORS):
        return error
    wrapped = SampleError(f"the sample cannot be scored ({type(error).__name__}: {error}).")
    wrapped.__cause__ = error
    return wrapped
