"""The time that is left for the reads of a call.

    >>> with deadline(30):
    ...     seconds = time_left()
    >>> 0 < seconds <= 30 and time_left() is None
    True

A deadline belongs to the context of a call ([`contextvars`]): threads that `asyncio.to_thread` starts, and requests in
the background loop of a served judge, have that of their caller. When it has passed, requests to servers are cancelled
and their connections closed, and nothing more is sent. An engine in the process cannot be interrupted; it finishes its
chunk or batch and gets no further one. Reads without an answer are unanswered with the reason "deadline" and are not
stored, so a later call repeats them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from checklist_rewards.scores.reasons import Reason, Unanswered

MISSED = Unanswered(Reason.DEADLINE)
"""Why a read is missing whose call has no time left."""
_END: ContextVar[float | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Context manager that gives the reads in it this many seconds, or less if an outer deadline ends before. None
    sets no deadline."""
    left = time_left()
    if seconds is None or (left is not None and left <= seconds):
        yield
        return
    token = _END.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _END.reset(token)


def time_left() -> float | None:
    """Seconds until the deadline, at least 0. None without a deadline."""
    end = _END.get()
    return None if end is None else max(0.0, end - time.monotonic())


def is_over() -> bool:
    """Whether the deadline has passed."""
    return time_left() == 0
