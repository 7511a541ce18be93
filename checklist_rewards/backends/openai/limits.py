"""When a request may be sent: a rate per minute, a circuit breaker, and a throttle.

A [`RateLimit`] spaces requests evenly. With a [`Breaker`], a server that is down is detected once, not once per read:

    closed   Requests are sent. After `failures` consecutive requests without a valid response, the breaker opens.
    open     Requests wait. One at a time is sent as a probe, as its [`Outage`] says. A response closes the breaker,
             and all waiting requests continue.
    gone     No probe was answered for `patience` seconds. All waiting requests fail, and so do all new requests within
             the next `patience` seconds. Then one probe is sent again.

A dead server therefore delays a run only once. Then the run ends and lists all missing reads.

A [`Throttle`] slows down all requests to a server together when it limits their rate. A server that responds with
status 429 and `Retry-After` means all requests of this process, not only the one that it refused. So all of them wait.
After the pause one request is sent, and only its success lets others follow: the number of concurrent requests doubles
per round up to half of what the server refused, then grows by one per round. This is the congestion control of TCP
Tahoe (Jacobson 1988).

So however many clients and reads wait, a server that refuses everything gets one request per pause.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from checklist_rewards.backends.openai.replicas import Outage
from checklist_rewards.backends.openai.wire import RATE_LIMITED, Failure


class RateLimit:
    """Spaces spending evenly, so that no minute exceeds the limit and a run does not start with a burst.

    Args:
        per_minute (`float`, *optional*): Maximum amount to spend per minute. No limit by default.
    """

    def __init__(self, per_minute: float | None = None):
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._free = 0.0

    async def spend(self, amount: float = 1) -> None:
        """Wait until `amount` may be spent, then spend it."""
        if not self._seconds:
            return
        now = asyncio.get_running_loop().time()
        start = max(now, self._free)
        self._free = start + amount * self._seconds
        if start > now:
            try:
                await asyncio.sleep(start - now)
            except BaseException:  # cancelled, so nothing was spent
                self._free -= amount * self._seconds
                raise


class ServerGone(Exception):
    """The breaker considers the server gone. The message contains the time without a response and the last failure."""


class Breaker:
    """The circuit breaker of one server.

    Args:
        failures (`int`): Number of consecutive failures after which the breaker opens.
        patience (`float`): Seconds without a response after which the server counts as gone.
        pause (`float`): Seconds before the first probe.
    """

    def __init__(self, failures: int, patience: float, pause: float):
        self.failures, self.patience = failures, patience
        self._outage = Outage(pause)
        self._gone_until = 0.0
        self.last = ""
        """The last failure."""
        self._changed = asyncio.Event()

    async def admit(self) -> bool:
        """Wait until a request may be sent.

        Returns:
            `bool`: Whether the request is a probe. The failure of a probe does not count as a failure of the request.

        Raises:
            ServerGone: If the server counts as gone.
        """
        clock, outage = asyncio.get_running_loop().time, self._outage
        while not outage.is_up:
            now = clock()
            if now < self._gone_until:
                raise ServerGone(f"no response for {self.patience:g} s; last failure: {self.last}")
            if outage.is_due(now):
                outage.probing = True
                return True
            changed = self._changed
            try:
                # In Python 3.11, `wait_for` loses a cancellation that arrives together with the event.
                async with asyncio.timeout(None if outage.probing else max(0.001, outage.until - now)):
                    await changed.wait()
            except TimeoutError:
                continue
        return False

    def passed(self, probe: bool) -> None:
        """Record a request that the server answered."""
        was_up = self._outage.is_up
        self._outage.ended(probe)
        self._outage.answered()
        if not was_up:
            self._gone_until = 0.0
            self._wake()

    def down_for(self, now: float) -> float:
        """Seconds since the breaker opened; 0 if it is closed."""
        return 0.0 if self._outage.since is None else now - self._outage.since

    def failed(self, probe: bool, reason: str) -> bool:
        """Record a request without a valid response. Returns whether the breaker opened, or a probe of it failed."""
        now = asyncio.get_running_loop().time()
        self.last = reason
        self._outage.ended(probe)
        if not self._outage.failed(now, probe, tolerated=self.failures - 1):
            return False
        if self.down_for(now) >= self.patience:
            self._gone_until = self._outage.until = now + self.patience
        self._wake()
        return True

    def released(self, probe: bool) -> None:
        """Record a request that does not indicate whether the server works: it was cancelled or rate-limited."""
        if probe:
            self._outage.ended(probe)
            self._outage.until = asyncio.get_running_loop().time() + self._outage.pause
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


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
