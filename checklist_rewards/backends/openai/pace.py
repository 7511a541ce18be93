"""A limit per minute, kept by spacing out what spends it."""

from __future__ import annotations

import asyncio


class Pace:
    """Evenly spaced spending, so that no minute ever holds more than allowed and a run starts without a burst.

    Args:
        per_minute (`float`, *optional*): how much may be spent in a minute; None for no limit.
    """

    def __init__(self, per_minute: float | None = None):
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._free = 0.0

    async def spend(self, amount: float = 1) -> None:
        """Wait until `amount` may be spent, and spend it."""
        if not self._seconds:
            return
        now = asyncio.get_running_loop().time()
        start = max(now, self._free)
        self._free = start + amount * self._seconds
        if start > now:
            await asyncio.sleep(start - now)
