"""A queue that turns calls for one score each back into batches of an engine.

Many trainers ask for the reward of one sample at a time, from many threads or coroutines at once. Here every call
puts its samples into one queue; a thread takes what has come in, waits at most `max_wait` seconds for company, and
scores it all with one `scorer.score_batch`. Whoever arrives while the engine works is in the next batch, so a busy
engine never waits.

    >>> queue = MicroBatcher(scorer)  # doctest: +SKIP
    >>> queue.score(Sample(["Is it short?"], "Yes."))  # from any thread  # doctest: +SKIP
    >>> await queue.score_async([Sample(["Is it short?"], "Yes.")])  # from a coroutine  # doctest: +SKIP

A sample that cannot be scored fails alone: the batch is halved until the sample is by itself, and its error goes to
its own caller. Samples that are refused (no text, a broken checklist) are refused before the judge is asked, so
nothing is read twice. If a sample breaks the arithmetic after that, the halves are read again, unless the store has
them: for one such sample in a batch, less than three times the reads of the batch. An error of the model or its engine
goes to all callers of the batch. A read that the judge does not answer is not an error here: it is unanswered in the
score.
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
"""What the caller of a sample that cannot be scored gets. UnicodeError: half a surrogate pair, which no tokenizer
takes."""
_EVERYBODYS = (ModelError, ConfigError)
_CAUSED_BY_DATA = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What data of one sample may raise. The two above are ValueErrors too, and are not among them."""


class QueueFull(ChecklistRewardsError, RuntimeError):
    """More samples are waiting than the queue may hold; try again later. None of the call's samples was taken."""


class QueueClosed(ChecklistRewardsError, RuntimeError):
    """The queue takes no more samples, because it was closed."""


class MicroBatcher:
    """Groups the calls of many callers into batches for one scorer.

    It is the only caller of its scorer, from one thread, so engines that bear one call at a time are safe behind it.
    Pickles as its settings: a copy in another process has a queue and a thread of its own.

    Args:
        scorer ([`ChecklistScorer`]).
        max_wait (`float`, *optional*, defaults to `0.005`): seconds that the first sample of a batch waits for others.
        max_batch (`int`, *optional*, defaults to `256`): samples in one `score_batch` at most.
        max_queue (`int`, *optional*): samples that may wait at most; None for any number.

    Raises:
        SampleError: for a setting out of its range.
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
            raise SampleError(f"max_wait={max_wait!r} is not allowed; it is a number of seconds from 0 up.")
        for name, value in (("max_batch", max_batch), ("max_queue", max_queue)):
            if value is None and name == "max_queue":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SampleError(f"{name}={value!r} is not allowed; it is a whole number from 1 up.")
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
        """How many samples are waiting, those in the engine not among them."""
        return len(self._waiting)

    def submit(self, samples: Sequence[Sample]) -> list[Future[Score]]:
        """Put samples into the queue, all of them or none.

        Returns:
            list of futures, one per sample, in order. A cancelled one that still waits is not scored.

        Raises:
            QueueFull: if `max_queue` would be exceeded.
            QueueClosed: after [`close`].
        """
        futures: list[Future[Score]] = [Future() for _ in samples]
        with self._changed:
            if self._closed:
                raise QueueClosed("the queue is closed and takes no more samples.")
            if self.max_queue is not None and len(self._waiting) + len(samples) > self.max_queue:
                raise QueueFull(
                    f"{len(self._waiting)} samples are waiting and {len(samples)} came; at most {self.max_queue} may "
                    "wait, so try again later or send fewer at once."
                )
            # Not alive: this process was forked from the one that started it.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="checklist-microbatch", daemon=True)
                self._thread.start()
            arrived = time.monotonic()
            self._waiting.extend((sample, future, arrived) for sample, future in zip(samples, futures, strict=True))
            self._changed.notify()
        return futures

    def score(self, sample: Sample) -> Score:
        """Score one sample; blocks until its batch is done. Raises what the sample's own scoring raises."""
        return self.submit([sample])[0].result()

    async def score_async(self, samples: Sequence[Sample]) -> list[Score]:
        """Score samples without blocking the event loop. Raises the first error among them."""
        return list(await asyncio.gather(*map(asyncio.wrap_future, self.submit(samples))))

    def close(self) -> None:
        """Take no more samples, finish those that were taken, and wait for it."""
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
        """Wait for a batch; an empty one once the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._waiting:
                left = self._waiting[0][2] + self.max_wait - time.monotonic()
                self._changed.wait_for(lambda: len(self._waiting) >= self.max_batch or self._closed, max(left, 0))
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self.max_batch))]
            return [(sample, future) for sample, future, _ in taken]

    def _score(self, batch: list[tuple[Sample, Future[Score]]]) -> None:
        if not batch:
            return
        try:
            scores = self.scorer.score_batch([sample for sample, _ in batch])
        # Whatever breaks is handed to the callers: this thread has nobody to raise it to.
        except BaseException as error:
            if isinstance(error, _EVERYBODYS) or not isinstance(error, _CAUSED_BY_DATA):
                for _, future in batch:
                    future.set_exception(error)
            elif len(batch) == 1:
                batch[0][1].set_exception(_of_the_sample(error))
            else:
                middle = len(batch) // 2
                self._score(batch[:middle])
                self._score(batch[middle:])
        else:
            self.batches += 1
            self.scored += len(batch)
            for (_, future), score in zip(batch, scores, strict=True):
                future.set_result(score)


def _of_the_sample(error: Exception) -> Exception:
    if isinstance(error, SAMPLE_ERRORS):
        return error
    wrapped = SampleError(f"the sample cannot be scored ({type(error).__name__}: {error}).")
    wrapped.__cause__ = error
    return wrapped
