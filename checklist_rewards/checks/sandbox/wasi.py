"""The system functions (WASI) available to a guest in WebAssembly: those of wasmtime, without any directory,
environment variable or socket, and those defined here, which replace the functions that would wait, print or exit.

So a guest cannot open a file or a socket, nor start, signal or wait for a process. Each call of a function here costs
fuel and takes a bounded time.
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
"""The file descriptor of messages, in both directions. The file system in the binary supports only the standard
descriptors."""
CALL_FUEL = 200_000
"""The fuel that a call costs: about the number of instructions that run in the same time, so that calls do not extend
the time limit."""
_DONE, _BAD_FILE, _INVALID = 0, 8, 28
_CLOCK = 0


class Exit(Exception):
    """Ends a guest from inside a system function."""


class System:
    """The system functions of one guest, called by name in its thread. `inbox` and `outbox` connect it with the host's
    thread.

    Args:
        store: The guest's `wasmtime.Store`.
    """

    FUNCTIONS = ("fd_read", "fd_write", "clock_time_get", "poll_oneoff", "random_get", "proc_exit")

    memory: Any
    """The guest's `wasmtime.Memory`; set after instantiation."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.outbox: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()
        self.output = bytearray()
        self.ending: str | None = None
        self.error: Exception | None = None
        self._input, self._started, self._slept = memoryview(b""), False, 0
        self._random = random.Random(0)

    def call(self, name: str, arguments: tuple[int, ...]) -> int:
        """Call one of `FUNCTIONS`. Returns a WASI error number."""
        self.store.set_fuel(max(0, self.store.get_fuel() - CALL_FUEL))
        try:
            return getattr(self, f"_{name}")(*(argument & 0xFFFFFFFF for argument in arguments))
        except (Exit, IndexError, struct.error):
            raise  # the guest has ended, or used addresses outside its memory
        except Exception as error:
            self.error = error
            raise

    def _fd_write(self, file: int, parts: int, count: int, written: int) -> int:
        """Collect a message to the host. Printed output is discarded."""
        if file not in (1, 2, CHANNEL):
            return _BAD_FILE
        total = 0
        for at, size in self._parts(parts, count):
            total += size
            if file == CHANNEL:
                if len(self.output) + size > MESSAGE_BYTES:
                    self.output.clear()
                    self._end("said too much")
                self.output += self.memory.read(self.store, at, at + size)
        return self._put(written, struct.pack("<I", total & 0xFFFFFFFF))

    def _fd_read(self, file: int, parts: int, count: int, read: int) -> int:
        """Read from the host's message."""
        if file != CHANNEL:
            return _BAD_FILE
        if not self._input:
            self._wait_for_host()
        total = 0
        for at, size in self._parts(parts, count):
            part, self._input = self._input[:size], self._input[size:]
            self._put(at, part)
            total += len(part)
        return self._put(read, struct.pack("<I", total))

    def _wait_for_host(self) -> None:
        """Send the collected output to the host and wait for its next message."""
        if self._started:
            self.outbox.put(bytes(self.output))
            self.output.clear()
        self._started = True
        message = self.inbox.get()
        if message is None:
            self._end("closed")
        self._input = memoryview(message)

    def _clock_time_get(self, clock: int, precision: int, at: int) -> int:
        return self._put(at, struct.pack("<Q", time.time_ns() + self._slept))

    def _poll_oneoff(self, events: int, happened: int, count: int, number: int) -> int:
        """Sleep by advancing the guest's clock, which takes no time."""
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
