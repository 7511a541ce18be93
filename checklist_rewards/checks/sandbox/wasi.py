"""What a guest in WebAssembly can reach: the system functions (WASI) of wasmtime, which is given no directory, no
variable and no socket for it, and the functions here, which replace those that would wait, print or exit.

So nothing in the guest can open a file or a socket, or start, signal or wait for a process. A call of a function here
costs fuel and takes a bounded time.
"""

from __future__ import annotations

import queue
import random
import struct
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from checklist_rewards.checks.sandbox.guest import MESSAGE_BYTES

CHANNEL = 0
"""The file descriptor of messages, in both directions. The file system in the binary passes only the standard
descriptors on."""
CALL_FUEL = 200_000
"""What a call costs: about as many instructions as it takes time, so that a guest gains no time by calls."""
_DONE, _BAD_FILE, _INVALID = 0, 8, 28
_CLOCK = 0


class Exit(Exception):
    """Ends a guest from within one of the functions."""


class System:
    """The functions for one guest, called by name in its thread. `inbox` and `outbox` lead to the host's thread.

    Args:
        store: the guest's `wasmtime.Store`.
    """

    FUNCTIONS = ("fd_read", "fd_write", "clock_time_get", "poll_oneoff", "random_get", "proc_exit")

    memory: Any
    """The guest's `wasmtime.Memory`, known once there is an instance."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.outbox: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()
        self.said = bytearray()
        self.ending: str | None = None
        self.broken: Exception | None = None
        self._heard, self._asked, self._slept = memoryview(b""), False, 0
        self._random = random.Random(0)

    def call(self, name: str, arguments: tuple[int, ...]) -> int:
        """Call one of `FUNCTIONS`. Returns an error number of WASI."""
        self.store.set_fuel(max(0, self.store.get_fuel() - CALL_FUEL))
        try:
            return getattr(self, f"_{name}")(*(argument & 0xFFFFFFFF for argument in arguments))
        except (Exit, IndexError, struct.error):
            raise  # the guest has ended, or named addresses outside its memory
        except Exception as error:
            self.broken = error
            raise

    def _fd_write(self, file: int, parts: int, count: int, written: int) -> int:
        """Messages go to the host. What is printed is thrown away."""
        if file not in (1, 2, CHANNEL):
            return _BAD_FILE
        total = 0
        for at, size in self._parts(parts, count):
            total += size
            if file == CHANNEL:
                if len(self.said) + size > MESSAGE_BYTES:
                    self.said.clear()
                    self._end("said too much")
                self.said += self.memory.read(self.store, at, at + size)
        return self._put(written, struct.pack("<I", total & 0xFFFFFFFF))

    def _fd_read(self, file: int, parts: int, count: int, read: int) -> int:
        """Messages come from the host."""
        if file != CHANNEL:
            return _BAD_FILE
        if not self._heard:
            self._listen()
        total = 0
        for at, size in self._parts(parts, count):
            part, self._heard = self._heard[:size], self._heard[size:]
            self._put(at, part)
            total += len(part)
        return self._put(read, struct.pack("<I", total))

    def _listen(self) -> None:
        """Wait for the host, which gets what has been said since the last time."""
        if self._asked:
            self.outbox.put(bytes(self.said))
            self.said.clear()
        self._asked = True
        message = self.inbox.get()
        if message is None:
            self._end("closed")
        self._heard = memoryview(message)

    def _clock_time_get(self, clock: int, precision: int, at: int) -> int:
        return self._put(at, struct.pack("<Q", time.time_ns() + self._slept))

    def _poll_oneoff(self, events: int, happened: int, count: int, number: int) -> int:
        """Sleeping moves the clock, so it takes no time and is over when the clock says so."""
        if count > 64:
            return _INVALID
        for index in range(count):
            event = self._get(events + 48 * index, 48)
            user, kind, timeout, absolute = struct.unpack("<QB15xQ8xH6x", event)
            if kind == _CLOCK:
                now = time.time_ns() + self._slept
                self._slept = min(self._slept + max(0, timeout - now * (absolute & 1)), 2**62)
            self._put(happened + 32 * index, struct.pack("<QHB21x", user, 0, kind))
        return self._put(number, struct.pack("<I", count))

    def _random_get(self, at: int, size: int) -> int:
        return self._put(at, self._random.randbytes(size)) if size <= 4096 else _INVALID

    def _proc_exit(self, status: int) -> NoReturn:
        self._end("left early")

    def _end(self, reason: str) -> NoReturn:
        self.ending = reason
        raise Exit(reason)

    def _parts(self, at: int, count: int) -> Iterator[tuple[int, int]]:
        if count > 1024:
            self._end("crashed")
        return struct.iter_unpack("<II", self._get(at, 8 * count))

    def _get(self, at: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, at, at + size))

    def _put(self, at: int, data: bytes | memoryview) -> int:
        self.memory.write(self.store, bytes(data), at)
        return _DONE
