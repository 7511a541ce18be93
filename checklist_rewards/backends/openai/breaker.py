"""A circuit breaker: a server that is down is detected once, not once per read.

    closed   Requests are sent. After `failures` consecutive requests without a valid response, the breaker opens.
    open     Requests wait. One at a time is sent as a probe, after pauses that double up to 15 s. A response closes
             the breaker, and all waiting requests continue.
    gone     No probe was answered for `patience` seconds. All waiting requests fail, and so do all new requests within
             the next `patience` seconds. Then one probe is sent again.

A dead server therefore delays a run only once. Then the run ends and lists all missing reads.
"""

from __future__ import annotations

import asyncio

_LONGEST_PAUSE = 15.0


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
        self.failures, self.patience, self.pause = failures, patience, pause
        self._failed = 0
        self._opened: float | None = None
        self._gone_until = 0.0
        self._next_probe = 0.0
        self._pause = pause
        self._probing = False
        self._last = ""
        self._changed = asyncio.Event()

    async def admit(self) -> bool:
        """Wait until a request may be sent.

        Returns:
            `bool`: Whether the request is a probe. The failure of a probe does not count as a failure of the request.

        Raises:
            ServerGone: If the server counts as gone.
        """
        clock = asyncio.get_running_loop().time
        while self._opened is not None:
            now = clock()
            if now < self._gone_until:
                raise ServerGone(f"no response for {self.patience:g} s; last failure: {self._last}")
            if not self._probing and now >= self._next_probe:
                self._probing = True
                return True
            changed = self._changed
            try:
                # In Python 3.11, `wait_for` loses a cancellation that arrives together with the event.
                async with asyncio.timeout(None if self._probing else max(0.001, self._next_probe - now)):
                    await changed.wait()
            except TimeoutError:
                continue
        return False

    def passed(self, probe: bool) -> None:
        """Record a request that the server answered."""
        self._failed = 0
        self._probing = self._probing and not probe
        if self._opened is not None:
            self._opened, self._pause, self._gone_until = None, self.pause, 0.0
            self._wake()

    def failed(self, probe: bool, reason: str) -> None:
        """Record a request without a valid response."""
        now = asyncio.get_running_loop().time()
        self._last = reason
        self._failed += 1
        self._probing = self._probing and not probe
        if self._opened is None:
            if self._failed < self.failures:
                return
            self._opened = now
            self._next_probe = now + self._pause
        elif probe:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self._next_probe = now + self._pause
            if now - self._opened >= self.patience:
                self._gone_until = self._next_probe = now + self.patience
        else:
            return
        self._wake()

    def released(self, probe: bool) -> None:
        """Record a request that does not indicate whether the server works: it was cancelled or rate-limited."""
        if probe:
            self._probing = False
            self._next_probe = asyncio.get_running_loop().time() + self._pause
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
