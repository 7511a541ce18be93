"""The circuit breaker: a server that is gone is noticed once, not once per read.

    closed   requests pass. After `failures` in a row that no server answered properly: open.
    open     requests wait; one at a time goes out as a probe, after pauses that double up to 15 s. An answer closes
             it, and everything that waited goes on.
    gone     no probe was answered for `patience` seconds: everything that waits is given up, and so is everything
             asked within the next `patience` seconds. Then one probe goes out again.

A dead server so costs a run one wait, and then ends it with every read that is missing listed.
"""

from __future__ import annotations

import asyncio

_LONGEST_PAUSE = 15.0


class ServerGone(Exception):
    """The breaker gave up; the message says for how long it tried and what the last failure was."""


class Breaker:
    """Watches the requests to one server.

    Args:
        failures (`int`): consecutive failures that open it.
        patience (`float`): seconds without an answer after which it gives up.
        pause (`float`): seconds before the first probe.
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
        """Wait until a request may go out; True if it is a probe, whose failure is the server's and not its own.

        Raises:
            ServerGone: if there is no hope.
        """
        clock = asyncio.get_running_loop().time
        while self._opened is not None:
            now = clock()
            if now < self._gone_until:
                raise ServerGone(f"it gave no answer for {self.patience:g} s; last: {self._last}")
            if not self._probing and now >= self._next_probe:
                self._probing = True
                return True
            changed = self._changed
            try:
                await asyncio.wait_for(changed.wait(), None if self._probing else max(0.001, self._next_probe - now))
            except TimeoutError:
                continue
        return False

    def passed(self, probe: bool) -> None:
        """The server answered."""
        self._failed = 0
        self._probing = self._probing and not probe
        if self._opened is not None:
            self._opened, self._pause, self._gone_until = None, self.pause, 0.0
            self._wake()

    def failed(self, probe: bool, reason: str) -> None:
        """A request got no proper answer."""
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
        """A request ended without saying anything about the server: it was cancelled, or told to come later."""
        if probe:
            self._probing = False
            self._next_probe = asyncio.get_running_loop().time() + self._pause
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
