"""The rate limit spaces requests, and what is cancelled is not spent."""

import asyncio

import pytest

from checklist_rewards.backends.openai.limits import RateLimit


def test_cancelled_requests_leave_the_rate_to_later_ones():
    async def run() -> tuple[float, float]:
        limit = RateLimit(per_minute=60)
        waiting = [asyncio.ensure_future(limit.spend()) for _ in range(100)]
        await asyncio.sleep(0)
        reserved = limit._free - asyncio.get_running_loop().time()
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return reserved, limit._free - asyncio.get_running_loop().time()

    reserved, left = asyncio.run(run())
    assert reserved == pytest.approx(100, abs=5)
    assert left <= 1  # one was spent at once
