"""Slows down all requests to a server together when it limits their rate.

A server that responds with status 429 and `Retry-After` means all requests of this process, not only the one that it
refused. So all of them wait. After the pause one request is sent, and only its success lets others follow: the number
of concurrent requests doubles per round up to half of what the server refused, then grows by one per round. This is
the congestion control of TCP Tahoe (Jacobson 1988).

So however many clients and reads wait, a server that refuses everything gets one request per pause.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from checklist_rewards.backends.openai.failures import RATE_LIMITED, Failure


class Throttle:
    """The number of concurrent requests that a server accepts.

    Args:
        most (`int`): Maximum number of concurrent requests.
    """

    def __init__(self, most: int):
        self.most = most
        self._window = self._threshold = float(most)
        self._under_way = 0
        self._pauses = 0
        self._until = 0.0
        self._refusal: Failure | None = None
        self._changed = asyncio.Event()

    async def admit(self, seconds: float) -> int | Failure:
        """Wait until a request may be sent.

        Args:
            seconds (`float`): How long to wait at most.

        Returns:
            `int` or [`Failure`]: A number for [`done`]; or the failure by which the server asked for a longer pause
            than that. Its `wait` is what remains of the pause.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while True:
            now = clock()
            pause = self._until - now
            if pause <= 0 and self._under_way < int(self._window):
                self._under_way += 1
                return self._pauses
            if self._refusal is not None and now + max(0.0, pause) >= end:
                return replace(self._refusal, wait=max(0.0, pause))
            changed = self._changed
            try:
                # In Python 3.11, `wait_for` loses a cancellation that arrives together with the event.
                async with asyncio.timeout(pause if pause > 0 else max(0.001, end - now)):
                    await changed.wait()
            except TimeoutError:
                continue

    def done(self, permit: int, outcome: object) -> None:
        """Record the outcome of a request: its response, its [`Failure`], or None if it was cancelled."""
        self._under_way -= 1
        if isinstance(outcome, Failure) and outcome.status == RATE_LIMITED and outcome.wait is not None:
            if permit == self._pauses:  # later refusals are of requests that were sent before this pause
                self._pauses += 1
                self._threshold, self._window = max(1.0, self._window / 2), 1.0
            self._until = max(self._until, asyncio.get_running_loop().time() + outcome.wait)
            self._refusal = outcome
        elif _is_response(outcome) and permit == self._pauses and self._window < self.most:
            self._window += 1.0 if self._window < self._threshold else 1 / self._window
            self._window = min(self._window, float(self.most))
        self._changed.set()
        self._changed = asyncio.Event()


def _is_response(outcome: object) -> bool:
    return not outcome.down if isinstance(outcome, Failure) else outcome is not None
