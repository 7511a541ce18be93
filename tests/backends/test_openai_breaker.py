"""When a server is given up, on a clock that jumps."""

import asyncio

import pytest

from checklist_rewards.backends.openai.limits import Breaker, ServerGone
from tests.clock import run


def now() -> float:
    return round(asyncio.get_running_loop().time(), 6)


async def fail(breaker: Breaker) -> None:
    breaker.failed(await breaker.admit(), "backend_error: status 500")


def test_a_server_that_is_gone_is_probed_with_longer_and_longer_pauses_then_given_up_then_probed_again():
    async def outage():
        breaker = Breaker(failures=2, patience=10, pause=1)
        await fail(breaker)
        assert await breaker.admit() is False  # one failure is not enough
        await fail(breaker)
        probes = []
        with pytest.raises(ServerGone, match="no response for 10 s; last failure: backend_error: status 500"):
            while True:
                assert await breaker.admit() is True
                probes.append(now())
                breaker.failed(True, "backend_error: status 500")
        assert probes == [1, 3, 7, 15] and now() == 15
        await asyncio.sleep(9.9)
        with pytest.raises(ServerGone):  # at once, without a request
            await breaker.admit()
        assert now() == 24.9
        await asyncio.sleep(0.1)
        assert await breaker.admit() is True and now() == 25
        breaker.passed(True)
        assert await breaker.admit() is False

    run(outage())


def test_what_waits_for_a_probe_goes_on_when_it_was_answered():
    async def outage():
        breaker = Breaker(failures=1, patience=10, pause=1)
        await fail(breaker)
        assert await breaker.admit() is True
        waiting = [asyncio.ensure_future(breaker.admit()) for _ in range(3)]
        await asyncio.sleep(5)
        assert not any(task.done() for task in waiting)
        breaker.passed(True)
        assert await asyncio.gather(*waiting) == [False] * 3 and now() == 6

    run(outage())


def test_a_rate_limited_request_is_neither_a_failure_nor_a_response():
    async def outage():
        breaker = Breaker(failures=2, patience=10, pause=1)
        await fail(breaker)
        breaker.released(await breaker.admit())
        await fail(breaker)  # the second failure in a row
        assert await breaker.admit() is True and now() == 1
        breaker.released(True)
        assert await breaker.admit() is True and now() == 2, "another probe after the same pause"
        breaker.released(True)
        assert await breaker.admit() is True and now() == 3

    run(outage())
