"""The queue between the endpoints and the judge.

Endpoints give [`Work`] to the [`ScoringQueue`] and get a score or a [`Failed`] per row.

Tokens are estimated: 4 bytes of text are a token, a row's texts count once (its reads share them as a prefix), its
messages too if items are asked about them, each of its images counts [`IMAGE_TOKENS`], and each read its question and
[`READ_TOKENS`] more. The judge's own prompt is not counted.

Code checks (regular expressions, programs) come from clients and may take long. They run in threads before their row
is queued ([`_Checking`]), so a row that waits for its checks delays no row of another client.

An error that the data of a row may cause, such as a TypeError, goes to the client of the row. If the judge is broken,
every row fails with it, so after such an error [`BlamingScorer`] asks the judge a question that it can answer. If that
fails in the same way, the error is the judge's.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import dataclass, replace
from typing import cast

from checklist_rewards.backends.tokens import IMAGE_TOKENS
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import BackendError, ChecklistRewardsError, ConfigError, ModelError, StoreError
from checklist_rewards.judges import Receipt
from checklist_rewards.rewards.integrations.queue import (
    DEFAULT_MAX_BATCH,
    DEFAULT_MAX_WAIT,
    SAMPLE_ERRORS,
    DeadlinePassed,
    MicroBatcher,
    QueueClosed,
    QueueFull,
)
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import Score, Verdict, score_checklist
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.server.metrics import ServerMetrics
from checklist_rewards.server.rows import Refused

logger = logging.getLogger(__name__)

DEFAULT_MAX_TOKENS = 8_000_000
"""Waiting tokens: several minutes of work for a judge on one GPU."""
READ_TOKENS = 16
FAILING_SECONDS = 10.0
"""How long the server is not ready after a batch in which the judge answered nothing. Then it is tried again."""
CHECK_SECONDS = 30.0
"""Time for all code checks of a row. Checks that have not started by then leave their items unanswered."""
_BYTES_PER_TOKEN = 4
_SILENT = (Reason.BACKEND_ERROR, Reason.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Work:
    """The valid rows of a request.

    Args:
        samples (`list[Sample]`):
            The rows.
        field (`str`):
            The field of the request that has them, for errors.
        client (`str`):
            Who sent the request. Clients take turns.
        seconds (`float`, *optional*):
            How long the client waits for the answer from now on.
    """

    samples: list[Sample]
    field: str
    client: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a row has no score. `by_judge`: the judge or the machine failed, rather than this row."""

    message: str
    by_judge: bool


Outcome = Score | Failed


class ScoringQueue:
    """The queue of one judge.

    Args:
        scorer ([`ChecklistScorer`]):
            Scorer for all requests.
        max_wait, max_batch, max_queue, max_tokens:
            As in [`MicroBatcher`].
    """

    def __init__(
        self,
        scorer: ChecklistScorer,
        *,
        max_wait: float = DEFAULT_MAX_WAIT,
        max_batch: int = DEFAULT_MAX_BATCH,
        max_queue: int | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
    ):
        self.scorer = scorer
        self.batcher = MicroBatcher(
            cast(ChecklistScorer, BlamingScorer(scorer)),
            max_wait=max_wait,
            max_batch=max_batch,
            max_queue=max_queue,
            max_tokens=max_tokens,
            on_batch=self._measure,
        )
        self.counts = ServerMetrics(lambda: self.batcher)
        self._checking = _Checking(scorer)
        self._paid: Receipt = scorer.receipt
        self._failing_until = 0.0
        self._failure = ""

    def submit(self, work: Work) -> Future[list[Outcome]]:
        """Queue the rows of a request. The future gets an outcome per row, or raises [`Refused`]. Cancel it to drop
        the rows that still wait."""
        answer: Future[list[Outcome]] = Future()
        tokens = [estimated_tokens(sample) for sample in work.samples]
        self.counts.request_reads.observe(sum(len(sample.checklist.items) for sample in work.samples))
        self.counts.request_tokens.observe(sum(tokens))
        deadline = None if work.seconds is None else time.monotonic() + work.seconds
        try:
            self._require_possible(len(tokens), sum(tokens), work.field)
        except Refused as error:
            answer.set_exception(error)
            self.counts.refused.labels("too_large").inc(len(tokens))
            return answer
        if not any(item.check is not None for sample in work.samples for item in sample.checklist.items):
            self._queue(work, tokens, deadline, answer)
        elif self._checking.tokens + sum(tokens) > (self.batcher.max_tokens or float("inf")):
            answer.set_exception(Refused(429, "the queue of code checks is full; try again later.", work.field))
            self.counts.refused.labels("queue_full").inc(len(tokens))
        else:
            self._checking.submit(work, sum(tokens), answer, lambda done: self._queue(done, tokens, deadline, answer))
        return answer

    def _queue(self, work: Work, tokens: list[int], deadline: float | None, answer: Future[list[Outcome]]) -> None:
        """Give rows whose checks have run to the batches."""
        try:
            rows = self.batcher.submit(work.samples, client=work.client, tokens=tokens, deadline=deadline)
        except QueueFull as error:
            answer.set_exception(Refused(429, str(error), work.field, retry_after=error.wait))
            self.counts.refused.labels("queue_full").inc(len(tokens))
        except QueueClosed as error:
            answer.set_exception(Refused(503, str(error), work.field))
            self.counts.refused.labels("closed").inc(len(tokens))
        else:
            _Gathering(self, work, rows, answer)

    @property
    def waiting(self) -> int:
        """Rows that wait for a batch, or for their code checks."""
        return len(self.batcher) + len(self._checking)

    def problem(self) -> str | None:
        """Why the queue should get no requests now."""
        if time.monotonic() < self._failing_until:
            return self._failure
        for count, limit in (
            (len(self.batcher), self.batcher.max_queue),
            (self.batcher.waiting_tokens, self.batcher.max_tokens),
        ):
            if limit is not None and count >= limit:
                return "the queue is full"
        return None

    def close(self) -> None:
        """Accept no more work and wait until what is queued is scored."""
        self._checking.close()
        self.batcher.close()

    def outcome(self, sample: Sample, row: Future[Score]) -> Outcome:
        """The score of a row that is done, or why it has none. A row whose deadline passed has a score in which
        everything is unanswered."""
        try:
            return row.result(0)
        except DeadlinePassed as late:
            self.counts.refused.labels("deadline").inc()
            verdict = Verdict(unanswered=Unanswered(Reason.TIMEOUT, str(late)), judge=self.scorer.judge.name)
            items = sample.checklist.items
            verdicts, state = [verdict] * len(items), sample.target_state
            score = score_checklist(sample.checklist, verdicts, self.scorer.aggregation, state=state)
            self.counts.scored([score])
            return score
        except CancelledError:  # its neighbours were cancelled too: the client is gone
            return Failed("the row was cancelled.", False)
        except BaseException as error:  # noqa: BLE001 - every error of the scorer becomes the row's
            return Failed(_reason(error), _is_judge_failure(error))

    def _require_possible(self, rows: int, tokens: int, field: str) -> None:
        for what, count, limit in (
            ("rows", rows, self.batcher.max_queue),
            ("estimated tokens", tokens, self.batcher.max_tokens),
        ):
            if limit is not None and count > limit:
                raise Refused(413, f"{count} {what} in one request are too many; send at most {limit}.", field)

    def _measure(self, waits: Sequence[float], scores: Sequence[Score] | None) -> None:
        before, self._paid = self._paid, self.scorer.receipt
        self.counts.batch(waits, scores, self._paid - before)
        items = [item for score in scores or () if not score.no_answer for item in score.items]
        if scores is not None and not items:
            return  # the judge was not asked
        self._failure = f"the judge {'failed' if scores is None else 'answered nothing'} in the last batch"
        is_silent = all(item.unanswered is not None and item.unanswered.reason in _SILENT for item in items)
        self._failing_until = time.monotonic() + FAILING_SECONDS if is_silent else 0.0


class _Checking:
    """Runs the code checks of rows before the rows are queued. Clients take turns row by row, and one thread is always
    left for other clients.

    Args:
        scorer ([`ChecklistScorer`]):
            Runs the checks.
    """

    def __init__(self, scorer: ChecklistScorer):
        self.scorer, self.tokens = scorer, 0
        """`tokens`: estimated tokens of the requests that wait for their checks."""
        self._most = os.cpu_count() or 1  # rows of one client at once
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._running: Counter[str] = Counter()
        self._threads, self._rows = 0, 0
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return self._rows

    def submit(self, work: Work, tokens: int, answer: Future[list[Outcome]], then: Callable[[Work], None]) -> None:
        """Run the checks of all rows, then call `then` with the rows that have their verdicts, unless `answer` was
        cancelled or this is closed."""
        samples = list(work.samples)
        left = len(samples)

        def check(place: int) -> None:
            nonlocal left
            try:
                if not answer.cancelled():
                    samples[place] = self.scorer.checked(samples[place], CHECK_SECONDS)
            except Exception:  # the row is scored without, and its error is then its own
                logger.exception("the code checks of a row could not be run ahead.")
            with self._changed:
                left -= 1
                self._rows -= 1
                self.tokens -= 0 if left else tokens
                ready = not left
            if ready and not answer.cancelled():
                then(replace(work, samples=samples))

        with self._changed:
            if self._closed:
                answer.set_exception(Refused(503, "the server is shutting down.", work.field))
                return
            self.tokens += tokens
            self._rows += left
            rows = self._waiting.setdefault(work.client, deque())
            rows.extend(lambda place=place: check(place) for place in range(len(samples)))  # type: ignore[misc]
            for _ in range(min(len(samples), self._most + 1 - self._threads)):
                self._threads += 1
                threading.Thread(target=self._run, name="code-checks", daemon=True).start()

    def close(self) -> None:
        """Accept no more work and wait until all checks have run."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._threads)

    def _run(self) -> None:
        while (turn := self._next()) is not None:
            client, row = turn
            try:
                row()
            finally:
                with self._changed:
                    self._running[client] -= 1

    def _next(self) -> tuple[str, Callable[[], None]] | None:
        """The next row of the client whose turn it is; None if no row waits; this thread then ends."""
        with self._changed:
            for client in self._waiting:
                if self._running[client] < self._most:
                    rows = self._waiting.pop(client)
                    row = rows.popleft()
                    if rows:
                        self._waiting[client] = rows  # at the end: the others come first
                    self._running[client] += 1
                    return client, row
            self._threads -= 1
            self._running += Counter()  # without those at 0
            self._changed.notify_all()
            return None


class _Gathering:
    """Completes the future of a request when the last of its rows is done."""

    def __init__(self, queue: ScoringQueue, work: Work, rows: list[Future[Score]], answer: Future[list[Outcome]]):
        self.queue, self.work, self.rows, self.answer = queue, work, rows, answer
        self.left, self.lock = len(rows), threading.Lock()
        answer.add_done_callback(self._drop)
        for row in rows:
            row.add_done_callback(self._row_done)

    def _row_done(self, _: Future[Score]) -> None:
        with self.lock:
            self.left -= 1
            if self.left:
                return
        if self.answer.cancelled():
            return
        outcomes = [self.queue.outcome(*pair) for pair in zip(self.work.samples, self.rows, strict=True)]
        try:
            self.answer.set_result(outcomes)
        except InvalidStateError:  # cancelled since
            return

    def _drop(self, answer: Future[list[Outcome]]) -> None:
        if answer.cancelled():
            for row in self.rows:
                row.cancel()
            self.queue.batcher.drop_cancelled(self.work.client)


def estimated_tokens(sample: Sample) -> int:
    """Tokens that the judge computes for a row, estimated as described in this module."""
    texts = (sample.target, sample.input, sample.reference, sample.history)
    size = sum(_bytes(text) for text in texts if text is not None)
    items = sample.checklist.items
    if any(item.scope is not None for item in items):
        size += sum(_bytes(message.shown) for message in sample.messages)
    size += sum(_bytes(item.question) for item in items)
    images = len({*sample.images, *sample.target_images})
    return size // _BYTES_PER_TOKEN + READ_TOKENS * len(items) + IMAGE_TOKENS * images


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _is_judge_failure(error: BaseException) -> bool:
    """Whether the judge or the machine failed, rather than a single sample."""
    if isinstance(error, ChecklistRewardsError | RecursionError):
        return isinstance(error, ModelError | BackendError | ConfigError | StoreError)
    return isinstance(error, RuntimeError | OSError | MemoryError) or not isinstance(error, Exception)


def _reason(error: BaseException) -> str:
    known = isinstance(error, ChecklistRewardsError | UnicodeError)
    if known or _is_judge_failure(error):
        return str(error)
    return f"the sample cannot be scored ({type(error).__name__}: {error})."


_KNOWN = Checklist.parse(["Is the response in English?"])
_DATA_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_TRUSTED_SECONDS = 1.0
"""How long the judge counts as working after it has scored a row. The rows of one batch fail within this time."""


class BlamingScorer:
    """A scorer that raises [`BackendError`] if the judge is to blame for an error.

    Args:
        scorer ([`ChecklistScorer`]):
            Scores the rows.
    """

    def __init__(self, scorer: ChecklistScorer):
        self.scorer = scorer
        self._worked = float("-inf")
        self._is_broken = False

    def score_batch(self, samples: Sequence[Sample]) -> list[Score]:
        """As [`ChecklistScorer.score_batch`]."""
        try:
            scores = self.scorer.score_batch(samples)
        except (*SAMPLE_ERRORS, ChecklistRewardsError):
            raise
        except _DATA_ERRORS as error:
            if self._is_judges(error):
                reason = f"it fails for every row ({type(error).__name__}: {error})."
                if not self._is_broken:
                    logger.exception("the judge of the reward server is broken: %s", reason)
                self._is_broken = True
                raise BackendError(reason) from error
            raise
        self._has_worked()
        return scores

    def _is_judges(self, error: Exception) -> bool:
        if time.monotonic() < self._worked + _TRUSTED_SECONDS:
            return False
        try:
            self.scorer.score_batch([Sample(_KNOWN, "The sky is blue.")])
        except Exception as other:  # noqa: BLE001 - errors of any kind are compared
            return _place(other) == _place(error)
        self._has_worked()
        return False

    def _has_worked(self) -> None:
        self._worked = time.monotonic()
        self._is_broken = False


def _place(error: Exception) -> tuple[object, ...]:
    """The type of an error and the line of code that raised it. Its message may name data of the row."""
    frames = traceback.extract_tb(error.__traceback__)
    return type(error), *((frames[-1].filename, frames[-1].lineno) if frames else ())
