"""One event loop per process, in a thread of its own, for callers that are not asynchronous.

A trainer may have a loop running, may score from several threads and may fork; a call made from any of them runs here.
A forked child starts a loop of its own: threads do not survive a fork.
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
    """Run `work` in the background loop and wait for what it returns; an interrupted wait cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def run_telling(
    work: Callable[[Callable[[int, Item], None]], Coroutine[Any, Any, T]], tell: Callable[[int, Item], None]
) -> T:
    """Like [`run`], for work that says on the way what is done: `work(put)` runs in the background loop, and what it
    puts is passed to `tell` in this thread."""
    waiting: SimpleQueue[tuple[int, Item] | None] = SimpleQueue()
    future = asyncio.run_coroutine_threadsafe(work(lambda place, item: waiting.put((place, item))), _loop())
    future.add_done_callback(lambda _: waiting.put(None))
    try:
        while (put := waiting.get()) is not None:
            tell(*put)
        return future.result()
    except BaseException:
        future.cancel()
        raise


def close(work: Callable[[], Coroutine[Any, Any, None]], pid: int) -> None:
    """Run what closes a thing of the background loop of process `pid`, when the thing is dropped or Python ends."""
    loop = _loops.get(pid)
    if loop is None or pid != os.getpid():
        return
    future = asyncio.run_coroutine_threadsafe(work(), loop)
    if threading.current_thread().name != _THREAD:  # which must not wait for itself
        with contextlib.suppress(Exception):
            future.result(1)


def keep(thing: object) -> None:
    """Never let go of a thing of the parent's loop in a forked child. The kernel watches the sockets of both in one
    place: a child that closed its copies, be it when Python ends, would deafen its parent to them."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if os.getpid() not in _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
            _loops[os.getpid()] = loop
        return _loops[os.getpid()]


def _after_fork() -> None:
    # Another thread of the parent may have held the lock when it forked.
    global _lock
    _lock = threading.Lock()
    _loops.clear()


os.register_at_fork(after_in_child=_after_fork)
