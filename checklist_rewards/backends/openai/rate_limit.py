"""Limits a rate per minute by spacing requests evenly."""

from __future__ import annotations

import asyncio


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
