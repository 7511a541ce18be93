"""A queue that batches concurrent calls for single scores.

Many trainers request the reward of one sample at a time, from many threads or coroutines. Every call puts its samples
into one queue. A thread takes the waiting samples, waits at most `max_wait` seconds for more, and scores them with one
`scorer.score_batch`. Samples that arrive while the engine works are in the next batch, so a busy engine never waits.

    >>> queue = MicroBatcher(scorer)  # doctest: +SKIP
    >>> queue.score(Sample(["Is it short?"], "Yes."))  # from any thread  # doctest: +SKIP
    >>> await queue.score_async([Sample(["Is it short?"], "Yes.")])  # from a coroutine  # doctest: +SKIP

A sample that cannot be scored fails alone: the batch is halved until the sample is on its own, and its error goes to
its caller. Invalid samples (no text, a broken checklist) are rejected before the judge is called, so nothing is read
twice. If a sample fails later, its halves are read again unless they are stored; one such sample costs less than three
times the reads of the batch. An error of the model or the engine goes to all callers of the batch. A read that the
judge does not answer is not an error here: it is unanswered in the score.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
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

DEFAULT_MAX_WAIT = 0.005
DEFAULT_MAX_BATCH = 256
DEFAULT_MAX_QUEUE = 4096
SAMPLE_ERRORS = (ChecklistError, PromptError, SampleError, UnicodeError)
"""Errors passed to the caller of an invalid sample. UnicodeError: half a surrogate pair, which tokenizers reject."""
_BATCH_ERRORS = (ModelError, ConfigError)
"""Errors that concern the whole batch, although they are ValueErrors."""
_SAMPLE_DATA_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that the data of one sample may cause."""


class QueueFull(ChecklistRewardsError, RuntimeError):
    """The queue is full; try again later. None of the samples of the call were accepted."""


class QueueClosed(ChecklistRewardsError, RuntimeError):
    """The queue was closed and accepts no more samples."""


class MicroBatcher:
    """Batches the calls of many callers for one scorer.

    The scorer is only called from one thread, so its engine need not be thread-safe. Only the settings are pickled: a
    copy in another process has its own queue and thread.

    Args:
        scorer ([`ChecklistScorer`]):
            Scorer for the batches.
        max_wait (`float`, *optional*, defaults to `0.005`):
            Longest time in seconds that the first sample of a batch waits for others.
        max_batch (`int`, *optional*, defaults to `256`):
            Maximum number of samples per batch.
        max_queue (`int`, *optional*):
            Maximum number of waiting samples; None for no limit.

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
    ):
        if isinstance(max_wait, bool) or not isinstance(max_wait, int | float) or not 0 <= max_wait < float("inf"):
            raise SampleError(f"max_wait={max_wait!r} is not allowed; it must be a finite number of seconds >= 0.")
        for name, value in (("max_batch", max_batch), ("max_queue", max_queue)):
            if value is None and name == "max_queue":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SampleError(f"{name}={value!r} is not allowed; it must be a whole number >= 1.")
        self.scorer = scorer
        self.max_wait, self.max_batch, self.max_queue = max_wait, max_batch, max_queue
        self.batches, self.scored = 0, 0
        self._waiting: deque[tuple[Sample, Future[Score], float]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("scorer", "max_wait", "max_batch", "max_queue")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state.pop("scorer"), **state)  # type: ignore[misc]

    def __len__(self) -> int:
        """Number of waiting samples, without those being scored."""
        return len(self._waiting)

    def submit(self, samples: Sequence[Sample]) -> list[Future[Score]]:
        """Put samples into the queue, all of them or none.

        Returns:
            `list[Future[Score]]`: One future per sample, in order. Cancel a future to drop a sample that still waits.

        Raises:
            QueueFull: If `max_queue` would be exceeded.
            QueueClosed: After [`close`].
        """
        futures: list[Future[Score]] = [Future() for _ in samples]
        with self._changed:
            if self._closed:
                raise QueueClosed("the queue is closed and accepts no more samples.")
            if self.max_queue is not None and len(self._waiting) + len(samples) > self.max_queue:
                raise QueueFull(
                    f"the queue has {len(self._waiting)} waiting samples and cannot accept {len(samples)} more (at "
                    f"most {self.max_queue}); try again later or send fewer at once."
                )
            # A thread does not survive a fork of its process, so start a new one.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="checklist-microbatch", daemon=True)
                self._thread.start()
            arrived = time.monotonic()
            self._waiting.extend((sample, future, arrived) for sample, future in zip(samples, futures, strict=True))
            self._changed.notify()
        return futures

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

    def _work(self) -> None:
        while batch := self._next_batch():
            self._score([(sample, future) for sample, future in batch if future.set_running_or_notify_cancel()])

    def _next_batch(self) -> list[tuple[Sample, Future[Score]]]:
        """Wait for a batch. It is empty if the queue is closed and has no samples left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._waiting:
                left = self._waiting[0][2] + self.max_wait - time.monotonic()
                self._changed.wait_for(lambda: len(self._waiting) >= self.max_batch or self._closed, max(left, 0))
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self.max_batch))]
            return [(sample, future) for sample, future, _ in batch]

    def _score(self, batch: list[tuple[Sample, Future[Score]]]) -> None:
        if not batch:
            return
        try:
            scores = self.scorer.score_batch([sample for sample, _ in batch])
        # Errors of any kind go to the callers, because in this thread they would be lost.
        except BaseException as error:
            if isinstance(error, _BATCH_ERRORS) or not isinstance(error, _SAMPLE_DATA_ERRORS):
                for _, future in batch:
                    future.set_exception(error)
            elif len(batch) == 1:
                batch[0][1].set_exception(_sample_error(error))
            else:
                middle = len(batch) // 2
                self._score(batch[:middle])
                self._score(batch[middle:])
        else:
            self.batches += 1
            self.scored += len(batch)
            for (_, future), score in zip(batch, scores, strict=True):
                future.set_result(score)


def _sample_error(error: Exception) -> Exception:
    if isinstance(error, SAMPLE_ERRORS):
        return error
    wrapped = SampleError(f"the sample cannot be scored ({type(error).__name__}: {error}).")
    wrapped.__cause__ = error
    return wrapped
