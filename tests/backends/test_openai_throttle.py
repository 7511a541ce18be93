"""A server that limits its rate, and requests that wait for it together, on a clock that jumps."""

import asyncio

import pytest

from checklist_rewards.backends.openai.limits import Throttle
from checklist_rewards.backends.openai.wire import Failure
from checklist_rewards.scores.reasons import Reason, Unanswered
from tests.clock import run

LIMITED = Failure(Unanswered(Reason.BACKEND_ERROR, "status 429"), retry=True, wait=2.0, status=429)


class Judge:
    """Refuses everything until `opens`, then answers at most `most` requests at once. Each takes 0.1 s."""

    def __init__(self, opens: float, most: int = 10**6):
        self.opens, self.most = opens, most
        self.requests, self.at_once = [], 0

    async def ask(self) -> dict | Failure:
        now = asyncio.get_running_loop().time()
        self.requests.append(now)
        is_refused = now < self.opens or self.at_once >= self.most
        self.at_once += not is_refused
        await asyncio.sleep(0.1)
        self.at_once -= not is_refused
        return LIMITED if is_refused else {}


async def ask(throttle: Throttle, judge: Judge, seconds: float = 1000.0) -> dict | Failure:
    """As a connection does: the same request again until it is answered or its time is over."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        permit = await throttle.admit(end - asyncio.get_running_loop().time())
        if isinstance(permit, Failure):
            return permit
        outcome = await judge.ask()
        throttle.done(permit, outcome)
        if not isinstance(outcome, Failure):
            return outcome


def together(throttle: Throttle, judge: Judge, requests: int) -> list[dict | Failure]:
    async def all_of_them():
        return await asyncio.gather(*(ask(throttle, judge) for _ in range(requests)))

    return run(all_of_them())


def test_a_server_that_refuses_everything_gets_one_request_per_pause():
    judge = Judge(opens=19)
    assert together(Throttle(8), judge, 64) == [{}] * 64
    refused = [time for time in judge.requests if time < judge.opens]
    assert refused == pytest.approx([0.0] * 8 + [2.1 * n for n in range(1, 10)])
    assert len(judge.requests) == 64 + len(refused)


def test_after_a_pause_requests_return_slowly():
    judge = Judge(opens=1)
    together(Throttle(16), judge, 64)
    after = [round(time, 3) for time in judge.requests if time >= 2]
    assert [after.count(time) for time in sorted(set(after))][:5] == [1, 2, 4, 8, 8]


def test_a_server_with_room_for_few_is_not_asked_by_all_each_time():
    judge = Judge(opens=0, most=4)
    assert together(Throttle(64), judge, 256) == [{}] * 256
    refused = len(judge.requests) - 256
    assert refused < 60 + 256 / 4  # the first burst, and then less than one for each round of four


def test_without_a_limit_nothing_waits():
    judge = Judge(opens=0)
    together(Throttle(8), judge, 8)
    assert judge.requests == [0.0] * 8


def test_a_request_that_cannot_be_sent_in_time_is_not_sent():
    async def late():
        throttle, judge = Throttle(1), Judge(opens=100)
        throttle.done(await throttle.admit(10.0), LIMITED)
        return await ask(throttle, judge, seconds=1.5), judge.requests

    refusal, sent = run(late())
    assert refusal.status == 429 and refusal.wait == pytest.approx(2.0) and sent == []


def test_a_request_that_is_cancelled_gives_its_place_back():
    async def cancelled():
        throttle = Throttle(1)
        throttle.done(await throttle.admit(1.0), None)
        return await throttle.admit(1.0)

    assert run(cancelled()) == 0
