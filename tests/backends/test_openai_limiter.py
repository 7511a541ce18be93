"""How many requests are sent, how fast, and what a server that limits its rate gets, on a clock that jumps."""

import asyncio
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from checklist_rewards.backends.openai.client import Connection
from checklist_rewards.backends.openai.limits import Limiter, Permit, estimated_tokens
from checklist_rewards.backends.openai.wire import Failure, no_connection
from checklist_rewards.backends.servers import Settings
from checklist_rewards.images import image_of
from checklist_rewards.scores.reasons import Reason, Unanswered
from tests.backends.test_openai_replicas import detector
from tests.clock import run

WAIT = 2.0
LIMITED = Failure(Unanswered(Reason.BACKEND_ERROR, "status 429"), retry=True, wait=WAIT, status=429)
DOWN = Failure(Unanswered(Reason.TIMEOUT), retry=True, down=True, status=0)


def now() -> float:
    return asyncio.get_running_loop().time()


class Judge:
    """Refuses everything until `opens`, then answers at most `most` requests at once. Each takes 0.1 s."""

    def __init__(self, opens: float, most: int = 10**6, wait: float = WAIT):
        self.opens, self.most, self.wait = opens, most, wait
        self.requests, self.refused, self.at_once, self.busiest = [], [], 0, 0

    async def ask(self) -> tuple[dict | Failure, float | None]:
        self.requests.append(now())
        is_refused = now() < self.opens or self.at_once >= self.most
        self.at_once += not is_refused
        self.busiest = max(self.busiest, self.at_once)
        try:
            await asyncio.sleep(0.1)
        finally:
            self.at_once -= not is_refused
            if is_refused:
                self.refused.append(now())
        return (LIMITED, now() + self.wait) if is_refused else ({}, None)


async def ask(limiter: Limiter, judge: Judge, seconds: float = 1000.0, tokens: int = 0) -> dict | Failure:
    """As a connection does: the same request again until it is answered or its time is over."""
    while True:
        permit = await limiter.admit(seconds)
        if isinstance(permit, Failure):
            return permit
        seconds, outcome, resumes = permit.left, None, None
        try:
            await limiter.spend(tokens)
            outcome, resumes = await judge.ask()
        finally:
            limiter.done(permit, outcome, resumes)
        if not isinstance(outcome, Failure):
            return outcome


# ----- pauses -----


def test_a_failure_after_a_pause_does_not_let_more_requests_follow():
    async def most(outcome) -> int:
        limiter = Limiter(8)
        limiter.done(await limiter.admit(10.0), LIMITED, now() + WAIT)
        limiter.done(await limiter.admit(10.0), outcome)
        waiting = [asyncio.ensure_future(limiter.admit(10.0)) for _ in range(8)]
        await asyncio.sleep(1)
        admitted = limiter.under_way
        for one in waiting:
            one.cancel()
        return admitted

    assert [run(most(outcome)) for outcome in ({}, DOWN, LIMITED, None)] == [2, 1, 1, 1]


@pytest.mark.parametrize("waited", [0, 5])
def test_a_request_whose_deadline_ends_in_a_pause_fails_at_once_and_its_wait_for_a_slot_does_not_count(waited):
    async def late():
        limiter = Limiter(1)
        first = await limiter.admit(10.0)
        waiting = asyncio.ensure_future(limiter.admit(1.5))
        await asyncio.sleep(waited)
        limiter.done(first, LIMITED, now() + WAIT)
        return await waiting, await limiter.admit(1.5), now()

    assert run(late()) == (LIMITED, LIMITED, waited)


def test_a_pause_that_is_extended_counts_once():
    async def left() -> float:
        limiter = Limiter(2)
        first, second = [await limiter.admit(10.0) for _ in range(2)]
        waiting = asyncio.ensure_future(limiter.admit(10.0))
        await asyncio.sleep(3)
        limiter.done(first, LIMITED, now() + 2)
        await asyncio.sleep(1)
        limiter.done(second, LIMITED, now() + 4)
        permit = await waiting
        assert now() == 8
        return permit.left

    assert run(left()) == 5


# ----- slots -----


def test_requests_are_admitted_in_the_order_in_which_they_ask():
    async def order() -> list[int]:
        limiter, admitted = Limiter(2), []

        async def one(number: int) -> None:
            permit = await limiter.admit(1.0)
            admitted.append(number)
            await asyncio.sleep(0.1)
            limiter.done(permit, {})

        await asyncio.gather(*(one(number) for number in range(20)))
        return admitted

    assert run(order()) == list(range(20))


@pytest.mark.parametrize("just_admitted", [False, True])
def test_a_request_that_is_cancelled_gives_its_place_back(just_admitted):
    async def cancelled():
        limiter = Limiter(1)
        permit = await limiter.admit(1.0)
        waiting = [asyncio.ensure_future(limiter.admit(1.0)) for _ in range(2)]
        await asyncio.sleep(0)
        if just_admitted:  # and not resumed yet
            limiter.done(permit, {})
        waiting[0].cancel()
        if not just_admitted:
            limiter.done(permit, {})
        return await waiting[1], limiter.under_way

    permit, under_way = run(cancelled())
    assert isinstance(permit, Permit) and under_way == 1


# ----- rates -----


def spent(limiter: Limiter, tokens: list[int], cancelled: range = range(0)) -> list[float]:
    """When each request is sent; those in `cancelled` are given up once the first one has been sent."""

    async def spend(amount: int) -> float:
        await limiter.spend(amount)
        return now()

    async def all_of_them():
        tasks = [asyncio.ensure_future(spend(amount)) for amount in tokens]
        await asyncio.sleep(0)
        for place in cancelled:
            tasks[place].cancel()
        return await asyncio.gather(*(task for place, task in enumerate(tasks) if place not in cancelled))

    return run(all_of_them())


@pytest.mark.parametrize(
    ("requests", "per_token", "tokens", "cancelled", "times"),
    [
        (1200, None, [7] * 5, range(0), [0, 0.05, 0.1, 0.15, 0.2]),
        (None, 60, [3, 1, 5, 1], range(0), [0, 3, 4, 9]),
        (60, 60, [3, 0, 0, 1, 1], range(0), [0, 3, 4, 5, 6]),
        (None, None, [10**6] * 3, range(0), [0, 0, 0]),
        (60, 60, [1] * 101, range(100), [1]),  # one was spent at once
        (60, 60, [0, 600, 0, 0], range(1, 2), [0, 1, 2]),
    ],
)
def test_requests_and_tokens_are_spaced_out_and_cancelled_ones_cost_nothing(
    requests, per_token, tokens, cancelled, times
):
    assert spent(Limiter(9, requests, per_token), tokens, cancelled) == pytest.approx(times)


requests = st.lists(
    st.tuples(
        st.floats(0, 5),  # when it asks
        st.sampled_from([0.5, 3.0, 30.0, 1000.0]),  # its deadline
        st.none() | st.floats(0, 5),  # after how many seconds its caller cancels it
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(requests, st.integers(1, 6), st.floats(0, 8), st.integers(1, 8), st.sampled_from([0.0, 0.05, 1.0, 4.0]))
def test_every_request_ends_and_no_limit_is_exceeded(requests, slots, opens, most, wait):
    """Whatever a server refuses, and whatever is cancelled: at most `slots` requests run, none is sent in a pause, a
    request is answered unless pauses, and waits while the server refuses, outlast its deadline, and every place is
    given back."""
    judge, pauses = Judge(opens, most, wait), []

    class Watched(Limiter):
        def done(self, permit, outcome, resumes=None):
            if resumes is not None:
                pauses.append((now(), resumes))
            super().done(permit, outcome, resumes)

    limiter = Watched(slots)

    async def one(asks: float, seconds: float, cancelled: float | None):
        await asyncio.sleep(asks)
        task = asyncio.ensure_future(ask(limiter, judge, seconds))
        if cancelled is not None:
            asyncio.get_running_loop().call_later(cancelled, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return None

    async def all_of_them():
        outcomes = await asyncio.gather(*(one(*request) for request in requests))
        await asyncio.sleep(10)
        # As many as there are slots are admitted again, and no more.
        limiter._window = float(slots)
        again = [asyncio.ensure_future(limiter.admit(1.0)) for _ in range(slots + 1)]
        await asyncio.sleep(0.5)
        admitted = sum(each.done() for each in again)
        for each in again:
            each.cancel()
        await asyncio.gather(*again, return_exceptions=True)
        return outcomes, admitted

    outcomes, admitted = run(all_of_them())
    assert admitted == slots
    assert judge.busiest <= min(slots, most)
    assert not [time for time in judge.requests for begins, ends in pauses if begins + 1e-6 < time < ends - 1e-6]
    for outcome, (_, seconds, cancelled) in zip(outcomes, requests, strict=True):
        assert outcome == {} or (outcome is None and cancelled is not None) or outcome == LIMITED
        if outcome == LIMITED:
            waited = max(judge.refused) - min(judge.requests)
            assert sum(ends - begins for begins, ends in pauses) + waited >= seconds - 1e-6


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.none() | st.integers(1, 600),
    st.none() | st.integers(1, 600),
)
def test_no_minute_exceeds_the_rates_and_no_time_is_wasted(tokens, per_request, per_token):
    times = spent(Limiter(99, per_request, per_token), tokens)
    assert times == sorted(times)
    for place, begins in enumerate(times):
        minute = [amount for time, amount in zip(times[place:], tokens[place:], strict=True) if time < begins + 60]
        # The last one may start just before the minute ends.
        assert per_request is None or len(minute) <= per_request + 1
        assert per_token is None or sum(minute[:-1]) <= per_token + 1e-6
    least = max(
        (len(tokens) - 1) * 60 / per_request if per_request else 0,
        sum(tokens[:-1]) * 60 / per_token if per_token else 0,
    )
    assert times[-1] >= least - 1e-6
    if per_request is None or per_token is None:
        assert times[-1] == pytest.approx(least)


# ----- all requests of a connection -----

FAULTS = {
    "429": Failure(Unanswered(Reason.BACKEND_ERROR, "status 429"), retry=True, status=429),
    "429 now": replace(LIMITED, wait=0.0),
    "429 wait": LIMITED,
    "503": Failure(Unanswered(Reason.BACKEND_ERROR, "status 503"), retry=True, down=True, status=503),
    "503 wait": Failure(Unanswered(Reason.BACKEND_ERROR, "status 503"), retry=True, down=True, wait=WAIT, status=503),
    "500": Failure(Unanswered(Reason.BACKEND_ERROR, "status 500"), retry=True, down=True, status=500),
    "500 wait": Failure(Unanswered(Reason.BACKEND_ERROR, "status 500"), retry=True, down=True, wait=WAIT, status=500),
    "half a body": no_connection(OSError("payload is not complete")),
    "slow": DOWN,
}


def connected(once, use, replicas: int = 1, **settings):
    """What `use(connection)` returns if each attempt at a replica has the outcome of `once(replica)`."""

    class Scripted(Connection):
        async def _once(self, place, request, seconds):
            return await once(place)

    async def used():
        addresses = [f"http://replica{place}/v1" for place in range(replicas)]
        connection = Scripted(addresses, "EMPTY", Settings(**settings))
        outcome = await use(connection)
        await connection._session.http.close()
        return outcome

    return run(used())


def sent_by(
    faults, requests: int, *, to_each: bool = False, answer: float = 0.1, check=None, **settings
) -> tuple[list, list[tuple[float, int]]]:
    """The outcomes of concurrent requests, and the time and replica of each attempt. `faults`: for each replica, which
    fault it has until when; then it answers, in `answer` seconds. A fault takes 0.1 s, and of a slow replica 5 s.
    `to_each`: the requests are those of the first call, one to each replica."""
    attempts = []

    async def once(place):
        attempts.append((round(now(), 3), place))
        fault = next((fault for fault, until in faults[place] if now() < until), None)
        await asyncio.sleep({"slow": 5.0, None: answer}.get(fault, 0.1))
        return FAULTS.get(fault, {})

    async def all_of_them(connection):
        connection.check = check
        outcomes = await asyncio.gather(
            *(
                connection.get("/models", None, n) if to_each else connection.post("/chat", {}, prefix=str(n))
                for n in range(requests)
            )
        )
        session = connection._session
        assert session.limiter.under_way == 0
        assert not any(replica.reads or replica.probing for replica in session.replicas._replicas)
        return outcomes

    return connected(once, all_of_them, len(faults), **{"concurrency": 4, "pause": 0.5} | settings), attempts


def test_if_a_server_limits_its_rate_all_requests_wait_together():
    outcomes, attempts = sent_by([[("429 wait", 19)]], 64)
    assert outcomes == [{}] * 64
    refused = [time for time, _ in attempts if time < 19]
    assert refused == pytest.approx([0.0] * 4 + [2.1 * n for n in range(1, 10)])


def test_if_all_replicas_limit_their_rate_all_requests_wait_together():
    outcomes, attempts = sent_by([[("429 wait", 19)]] * 3, 64)
    assert outcomes == [{}] * 64
    assert len([time for time, _ in attempts if time < WAIT]) <= 3 * 4 * 3  # each in flight tries each replica
    assert len([time for time, _ in attempts if WAIT <= time < 19]) <= 3 * 19 / WAIT


def test_after_a_pause_requests_return_slowly():
    _, attempts = sent_by([[("429 wait", 1)]], 64, concurrency=16)
    after = [time for time, _ in attempts if time >= 2]
    assert [after.count(time) for time in sorted(set(after))][:5] == [1, 2, 4, 8, 8]


def test_a_server_with_room_for_few_is_not_asked_by_all_each_time():
    at_once, refused = 0, 0

    async def once(place):
        nonlocal at_once, refused
        if at_once >= 4:
            refused += 1
            await asyncio.sleep(0.1)
            return LIMITED
        at_once += 1
        await asyncio.sleep(0.1)
        at_once -= 1
        return {}

    async def all_of_them(connection):
        return await asyncio.gather(*(connection.post("/chat", {}) for _ in range(256)))

    assert connected(once, all_of_them, concurrency=64, deadline=1000.0) == [{}] * 256
    assert refused < 60 + 256 / 4  # the first burst, and then less than one for each round of four


@pytest.mark.parametrize(("fault", "replicas"), [("429", 1), ("429 now", 3), ("429 wait", 1), ("429 wait", 3)])
def test_a_server_that_always_limits_its_rate_is_waited_for_once(fault, replicas):
    outcomes, attempts = sent_by([[(fault, 10**6)]] * replicas, 60)
    assert all(isinstance(outcome, Failure) and outcome.status == 429 for outcome in outcomes)
    assert max(time for time, _ in attempts) < Settings().deadline + 1


@pytest.mark.parametrize("fault", ["429", "429 now", "429 wait"])
def test_a_server_that_always_limits_its_rate_is_waited_for_once_by_all_calls(fault):
    async def once(place):
        await asyncio.sleep(0.1)
        return {} if now() > 900 else FAULTS[fault]

    async def calls(connection):
        async def call():
            return await asyncio.gather(*(connection.post("/chat", {}) for _ in range(20)))

        for _ in range(6):
            assert all(isinstance(outcome, Failure) for outcome in await call())
        ended = now()
        await asyncio.sleep(1000 - ended)
        assert await call() == [{}] * 20
        return ended

    assert connected(once, calls, concurrency=4, pause=0.5) < Settings().deadline + 20


@pytest.mark.parametrize(
    ("replicas", "check"), [(1, None), (3, lambda models, address: None)], ids=["one", "replicas"]
)
def test_a_server_that_asks_for_no_pause_at_all_gets_one(replicas, check):
    """`Retry-After: 0`, also if the list of models is what a replica is probed with."""
    outcomes, attempts = sent_by([[("429 now", 60)]] * replicas, 16, check=check)
    assert outcomes == [{}] * 16
    assert len([time for time, _ in attempts if time < 5]) <= replicas * (4 * replicas * 3 + 5 / 0.25)
    for replica in range(replicas):
        times = [time for time, place in attempts if place == replica and 5 < time < 60]
        assert all(second - first >= 0.25 for first, second in pairwise(times))


@pytest.mark.parametrize("fault", ["429 wait", "500 wait"])
def test_if_one_of_several_replicas_asks_to_wait_the_others_get_its_requests(fault):
    outcomes, attempts = sent_by([[(fault, 19)], [], []], 600)
    assert outcomes == [{}] * 600
    limited = [time for time, place in attempts if place == 0 and time < 19]
    assert len([time for time in limited if time < WAIT]) <= 3 * 4, "those in flight when it first asked"
    assert len([time for time in limited if time >= WAIT]) <= 19 / WAIT
    assert max(time for time, _ in attempts) < 600 * 0.1 / 8 + 1, "eight at a time, without a pause"


def test_a_server_that_is_unavailable_delays_the_requests_that_it_refused_and_no_other():
    outcomes, attempts = sent_by([[("503 wait", 0.05)]], 64)
    assert outcomes == [{}] * 64
    assert len([time for time, _ in attempts if 0 < time < WAIT]) == 60, "the others are not paused"


def test_a_pause_beyond_the_deadline_fails_at_once():
    outcomes, attempts = sent_by([[("429 wait", 100)]], 16, deadline=1.0)
    assert [outcome.status for outcome in outcomes] == [429] * 16 and len(attempts) == 4


schedules = st.lists(
    st.lists(st.tuples(st.sampled_from(sorted(FAULTS)), st.floats(0, 20)), max_size=4), min_size=1, max_size=3
)


@settings(max_examples=60)
@given(schedules, st.integers(1, 24), st.integers(1, 5), st.sampled_from([1, 3, 32]))
def test_whatever_a_server_has_had_its_requests_are_answered_once_it_works(schedules, requests, concurrency, failures):
    faults = [sorted(faults, key=lambda fault: fault[1]) for faults in schedules]
    patient = {"attempts": 10**4, "deadline": 1e4, "patience": 1e4}
    outcomes, attempts = sent_by(faults, requests, concurrency=concurrency, failures=failures, **patient)
    assert outcomes == [{}] * requests
    last = max((until for faults in schedules for _, until in faults), default=0)
    assert attempts[-1][0] < last + 60


@settings(max_examples=30)
@given(st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=3), st.integers(1, 16))
def test_a_server_that_never_works_costs_each_request_its_reason(faults, requests):
    outcomes, _ = sent_by([[(fault, 1e6)] for fault in faults], requests, deadline=60.0, patience=60.0)
    assert all(isinstance(outcome, Failure) and outcome.unanswered for outcome in outcomes)


# ----- a server that is down -----


def test_a_server_that_is_down_gets_probes_only_and_then_all_requests_go_on():
    outcomes, attempts = sent_by([[("500", 19)]], 64, failures=4)
    assert outcomes == [{}] * 64
    assert [time for time, _ in attempts if 0 < time < 19] == pytest.approx([1.1, 3.2, 7.3, 15.4])
    assert len(attempts) == 4 + 4 + 64 and attempts[-1][0] == pytest.approx(30.5 + 0.1 * 16, abs=0.3)


@pytest.mark.parametrize(("replicas", "patience"), [(1, 10.0), (3, 120.0)])
def test_a_server_that_does_not_return_is_given_up_once_for_all_requests_when_the_patience_ends(
    replicas, patience, caplog
):
    outcomes, attempts = sent_by([[("503", 10**6)]] * replicas, 64, failures=4, patience=patience)
    said = f"the server at .* is down \\(no response for {patience:g} s; last failure: backend_error: status 503\\)"
    gone = [outcome for outcome in outcomes if re.search(said, str(outcome.unanswered))]
    assert len(gone) == 64 and patience <= max(time for time, _ in attempts) < patience + 1
    silent = [int(seconds) for seconds in re.findall(r"is down .*: no response for (\d+) s", caplog.text)]
    assert [seconds for seconds in silent if seconds] == ([] if patience < 30 else [30, 61, 91])


@pytest.mark.parametrize("patience", [10.0, 120.0])
def test_a_replica_that_returns_within_the_patience_ends_the_wait_although_another_does_not(patience):
    """Both get their last probe when it ends, and that of the other replica fails first."""
    outcomes, _ = sent_by([[("503", 10**6)], [("503", patience - 1)]], 64, answer=2.0, failures=4, patience=patience)
    assert outcomes == [{}] * 64


@pytest.mark.parametrize("failures", [3, 32])
def test_before_the_first_read_each_replica_gets_a_few_requests_whether_or_not_all_are_down(failures):
    outcomes, attempts = sent_by([[("503", 10**6)]] * 2, 2, to_each=True, failures=failures)
    assert all(isinstance(outcome, Failure) for outcome in outcomes)
    assert len(attempts) == 5 * 2 and max(time for time, _ in attempts) < 10


def test_a_failed_probe_is_no_attempt_of_the_request_that_it_was():
    outcomes, attempts = sent_by([[("500", 19)]], 5, failures=4, attempts=2)
    assert outcomes == [{}] * 5 and attempts[-1][0] > 30


def test_if_a_probe_is_cancelled_another_request_probes_the_server():
    answers = iter([FAULTS["500"], None, {}])

    async def once(place):
        answer = next(answers)
        await asyncio.sleep(100 if answer is None else 0.1)
        return answer

    async def recovered(connection):
        await connection.post("/chat", {})
        probe, other = [asyncio.ensure_future(connection.post("/chat", {})) for _ in range(2)]
        await asyncio.sleep(5)
        probe.cancel()
        return await other, now()

    assert connected(once, recovered, failures=1, attempts=1) == ({}, pytest.approx(5.2, abs=0.3))


REJECTED = replace(FAULTS["500"], retry=False, down=False, status=404, fatal=True)


@pytest.mark.parametrize("late", [REJECTED, {}])
def test_a_late_answer_brings_a_replica_back_silently_and_a_late_rejection_does_not(caplog, late):
    received = []
    other = detector(["http://replica0/v1", "http://replica1/v1"]).home("text")

    async def once(place):
        received.append(place)
        is_late = received.count(other) > 1
        await asyncio.sleep(0.5 if place == other and is_late else 0.1)
        return {} if place != other else late if is_late else REJECTED

    async def asked(connection):
        outcomes = await asyncio.gather(*(connection.post("/chat", {}, prefix="text") for _ in range(2)))
        return outcomes, connection._session.replicas.up()

    assert connected(once, asked, replicas=2) == ([{}, {}], {1 - other} if late else {0, 1})
    assert received.count(other) == 2 and "answers again" not in caplog.text


def test_a_request_to_one_replica_waits_as_long_as_that_replica_asks():
    attempts = []

    async def once(place):
        attempts.append((now(), place))
        return {} if now() >= WAIT else FAULTS["503 wait"]

    outcome = connected(once, lambda c: c.get("/models", "data", place=1), replicas=2, attempts=2)
    assert outcome == {} and attempts == [(0.0, 1), (pytest.approx(WAIT), 1)]


def test_an_image_counts_by_its_pixels():
    image = image_of(Pillow.new("RGB", (750, 100), "red"))
    assert (estimated_tokens(f"What is {image.mark}?"), estimated_tokens("What is it?")) == (104, 2)
