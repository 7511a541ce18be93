"""One event loop per process, in a background thread, for synchronous callers.

A trainer may already run an event loop, score from several threads, and fork. All calls run in the background loop. A
forked child starts its own loop, because threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")

_THREAD = "checklist-rewards-http"
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in the background loop and wait for its result. If the wait is interrupted, the work is cancelled."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:  # Ctrl-C included: the requests must not go on without a caller
        future.cancel()
        raise


def run_streaming(
    work: Callable[[Callable[[int, Item], None]], Coroutine[Any, Any, T]], receive: Callable[[int, Item], None]
) -> T:
    """Like [`run`], for work that returns items while it runs: `work(emit)` runs in the background loop, and each
    emitted item is passed to `receive` in this thread."""
    items: SimpleQueue[tuple[int, Item] | None] = SimpleQueue()
    future = asyncio.run_coroutine_threadsafe(work(lambda place, item: items.put((place, item))), _loop())
    future.add_done_callback(lambda _: items.put(None))
    try:
        while (entry := items.get()) is not None:
            receive(*entry)
        return future.result()
    except BaseException:  # Ctrl-C included: the requests must not go on without a caller
        future.cancel()
        raise


def close(work: Callable[[], Coroutine[Any, Any, None]], pid: int) -> None:
    """Run `work` in the background loop of process `pid`, to close a resource when it is garbage-collected or Python
    exits."""
    loop = _loops.get(pid)
    if loop is None or pid != os.getpid():
        return
    future = asyncio.run_coroutine_threadsafe(work(), loop)
    if threading.current_thread().name != _THREAD:  # the loop's thread must not wait for itself
        with contextlib.suppress(Exception):
            future.result(1)


def keep_forever(resource: object) -> None:
    """In a forked child, never free a resource of the parent's loop, not even when Python exits. Parent and child
    share the kernel's event notification for sockets: if the child closed its copies, the parent would get no more
    events."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if os.getpid() not in _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
            _loops[os.getpid()] = loop
        return _loops[os.getpid()]


def _after_fork() -> None:
    # Another thread of the parent may have held the lock during the fork.
    global _lock
    _lock = threading.Lock()
    _loops.clear()


os.register_at_fork(after_in_child=_after_fork)
