"""An event loop whose clock stands still while anything runs, and jumps to the next timer when nothing does.

A test of pauses and deadlines takes no time on it and gives the same numbers on every machine. There is no input or
output on it.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Jumps(selectors.SelectSelector):
    """Waits for nothing: the time it would have waited has passed at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing is left to wait for: a deadlock"
        self.now += max(0.0, timeout)
        return super().select(0)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """`asyncio.run` on such a loop; its time begins at 0."""
    selector = _Jumps()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
