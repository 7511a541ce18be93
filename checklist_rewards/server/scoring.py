"""The queue between the endpoints and the judge.

Tokens are estimated: 4 bytes of text are a token, a row's texts count once (its reads share them as a prefix), its
messages too if items are asked about them, each of its images counts [`IMAGE_TOKENS`], and each read its question and
[`READ_TOKENS`] more. The judge's own prompt is not counted.

Code checks (regular expressions, programs) come from clients and may take long. They run in threads before their row
is queued, so a row that waits for its checks delays no row of another client.

An error that the data of a row may cause, such as a TypeError, goes to the client of the row, unless the judge fails
for a question that it can answer too ([`BlamingScorer`]).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast
from weakref import WeakValueDictionary

from checklist_rewards.backends.tokens import IMAGE_TOKENS
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import BackendError, ChecklistRewardsError, ConfigError, ModelError, StoreError
from checklist_rewards.judges import Receipt
from checklist_rewards.rewards.integrations.queue import (
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
CHECKED_AT_ONCE = os.cpu_count() or 1
"""Rows of one client whose code checks run at the same time. One more thread is left for other clients."""
_BYTES_PER_TOKEN = 4
_SILENT = (Reason.BACKEND_ERROR, Reason.TIMEOUT)


Outcome = Score | Refused
"""The score of a row, or why it has none: status 500 if the judge or the machine failed, 422 if the row did."""


class ScoringQueue:
    """The queue of one judge, with the limits of [`MicroBatcher`]."""

    def __init__(self, scorer: ChecklistScorer, **limits: Any):
        self.scorer = scorer
        judge = cast(ChecklistScorer, BlamingScorer(scorer))
        self.batcher = MicroBatcher(judge, on_batch=self._measure, **limits)
        self.counts = ServerMetrics(self.batcher)
        self._threads = ThreadPoolExecutor(CHECKED_AT_ONCE + 1, "code-checks")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Per client: its rows take turns, so that those of other clients come between them."""
        self._checking_rows = self._checking_tokens = 0
        self._paid: Receipt = scorer.receipt
        self._failing_until = 0.0
        self._failure = ""

    async def score(
        self, samples: Sequence[Sample], field: str, *, client: str = "", seconds: float | None = None
    ) -> list[Outcome]:
        """Score the rows of a request, which are in its field `field`. If this is cancelled, rows that still wait are
        dropped. Clients take turns. Raises [`Refused`] if the queue is full or closed, or if it can never hold these
        rows.

        Args:
            seconds (`float`, *optional*): How long the client waits for the answer from now on.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        tokens = [estimated_tokens(sample) for sample in samples]
        self.counts.request_reads.observe(sum(len(sample.checklist.items) for sample in samples))
        self.counts.request_tokens.observe(sum(tokens))
        for what, count, limit in (
            ("rows", len(tokens), self.batcher.max_queue),
            ("estimated tokens", sum(tokens), self.batcher.max_tokens),
        ):
            if limit is not None and count > limit:
                self.counts.refused.labels("too_large").inc(len(tokens))
                raise Refused(413, f"{count} {what} in one request are too many; send at most {limit}.", field)
        try:
            if any(item.check is not None for sample in samples for item in sample.checklist.items):
                samples = await self._checked(samples, sum(tokens), client)
            rows = self.batcher.submit(samples, client=client, tokens=tokens, deadline=deadline)
        except QueueFull as error:
            self.counts.refused.labels("queue_full").inc(len(tokens))
            raise Refused(429, str(error), field, retry_after=error.wait) from None
        except QueueClosed as error:
            self.counts.refused.labels("closed").inc(len(tokens))
            raise Refused(503, str(error), field) from None
        try:
            await asyncio.gather(*map(asyncio.wrap_future, rows), return_exceptions=True)
        except asyncio.CancelledError:
            self.batcher.drop_cancelled(client)
            raise
        return [self._outcome(*pair) for pair in zip(samples, rows, strict=True)]

    @property
    def waiting(self) -> int:
        """Rows that wait for a batch, or for their code checks."""
        return len(self.batcher) + self._checking_rows

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
        """Accept no more rows and wait until what is queued is scored."""
        self.batcher.close()

    async def _checked(self, samples: Sequence[Sample], tokens: int, client: str) -> list[Sample]:
        """The rows with the verdicts of their code checks. Raises [`QueueFull`] if too many rows wait for theirs."""
        if self._checking_tokens + tokens > (self.batcher.max_tokens or float("inf")):
            raise QueueFull("the queue of code checks is full; try again later.")
        turns = self._turns.setdefault(client, asyncio.Semaphore(CHECKED_AT_ONCE))
        loop = asyncio.get_running_loop()

        async def check(sample: Sample) -> Sample:
            await turns.acquire()
            run = self._threads.submit(self._check, sample)
            # A turn lasts until its checks have run, even if its client is gone by then.
            run.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(turns.release))
            return await asyncio.wrap_future(run)

        self._checking_rows += len(samples)
        self._checking_tokens += tokens
        try:
            return await asyncio.gather(*map(check, samples))
        finally:
            self._checking_rows -= len(samples)
            self._checking_tokens -= tokens

    def _check(self, sample: Sample) -> Sample:
        try:
            return self.scorer.checked(sample, CHECK_SECONDS)
        except Exception:  # the row is scored without, and its error is then its own
            logger.exception("the code checks of a row could not be run ahead.")
            return sample

    def _outcome(self, sample: Sample, row: Future[Score]) -> Outcome:
        """The score of a row that is done, or why it has none. A row whose deadline passed has a score in which
        everything is unanswered."""
        try:
            return row.result(0)
        except DeadlinePassed as late:
            self.counts.refused.labels("deadline").inc()
            verdict = Verdict(unanswered=Unanswered(Reason.TIMEOUT, str(late)), judge=self.scorer.judge.name)
            verdicts = [verdict] * len(sample.checklist.items)
            score = score_checklist(sample.checklist, verdicts, self.scorer.aggregation, state=sample.target_state)
            self.counts.scored([score])
            return score
        except BaseException as error:  # noqa: BLE001 - every error of the scorer becomes the row's
            if isinstance(error, _OF_JUDGE) or not isinstance(error, (ChecklistRewardsError, *_DATA_ERRORS)):
                return Refused(500, f"the judge failed: {error}")
            is_known = isinstance(error, ChecklistRewardsError | UnicodeError)
            unknown = f"the sample cannot be scored ({type(error).__name__}: {error})."
            return Refused(422, str(error) if is_known else unknown)

    def _measure(self, waits: Sequence[float], scores: Sequence[Score] | None) -> None:
        before, self._paid = self._paid, self.scorer.receipt
        self.counts.batch(waits, scores, self._paid - before)
        items = [item for score in scores or () if not score.no_answer for item in score.items]
        if scores is not None and not items:
            return  # the judge was not asked
        self._failure = f"the judge {'failed' if scores is None else 'answered nothing'} in the last batch"
        is_silent = all(item.unanswered is not None and item.unanswered.reason in _SILENT for item in items)
        self._failing_until = time.monotonic() + FAILING_SECONDS if is_silent else 0.0


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


_OF_JUDGE = (ModelError, BackendError, ConfigError, StoreError)
_KNOWN = Sample(Checklist.parse(["Is the response in English?"]), "The sky is blue.")
_DATA_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_TRUSTED_SECONDS = 1.0
"""How long the judge counts as working after it has scored a row. The rows of one batch fail within this time."""


class BlamingScorer:
    """A scorer that raises [`BackendError`] for an error that the data of a row may cause if the judge fails for
    [`_KNOWN`] too."""

    def __init__(self, scorer: ChecklistScorer):
        self.scorer = scorer
        self._worked = float("-inf")
        self._is_broken = False

    def score_batch(self, samples: Sequence[Sample]) -> list[Score]:
        """As [`ChecklistScorer.score_batch`]."""
        try:
            scores = self.scorer.score_batch(samples)
        except (ChecklistRewardsError, UnicodeError):
            raise
        except _DATA_ERRORS as error:
            if time.monotonic() < self._worked + _TRUSTED_SECONDS:
                raise
            try:
                self.scorer.score_batch([_KNOWN])
            except Exception:
                reason = f"it fails for every row ({type(error).__name__}: {error})."
                if not self._is_broken:
                    logger.exception("the judge of the reward server is broken: %s", reason)
                self._is_broken = True
                raise BackendError(reason) from error
            self._has_worked()
            raise
        self._has_worked()
        return scores

    def _has_worked(self) -> None:
        self._worked = time.monotonic()
        self._is_broken = False
