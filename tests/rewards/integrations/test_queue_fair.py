"""Clients take turns, deadlines pass, and a full queue says when to come back."""

import time
from concurrent.futures import Future

import pytest

from checklist_rewards import Sample
from checklist_rewards.rewards.integrations.queue import QUANTUM, DeadlinePassed, FairQueue, QueueFull, Waiting
from tests.conftest import HANG
from tests.rewards.integrations.test_queue import QUESTIONS, SAMPLES, Held, batcher, working

__all__ = ["batcher", "working"]


def waiting(*names: str, tokens: int = QUANTUM, deadline: float = float("inf")) -> list[Waiting]:
    return [Waiting(Sample(QUESTIONS, name), Future(), 0.0, tokens, deadline) for name in names]


def names(samples: list[Waiting]) -> str:
    return " ".join(each.sample.target for each in samples)


@pytest.mark.parametrize(
    ("requests", "most", "order"),
    [
        (
            [("flood", waiting(*(f"f{n}" for n in range(9)))), ("small", waiting("s0", "s1"))],
            5,
            "f0 s0 f1 s1 f2 f3 f4 f5 f6 f7 f8",
        ),
        (
            [
                ("long", waiting("l0", "l1", "l2", tokens=2 * QUANTUM)),
                ("short", waiting(*(f"s{n}" for n in range(6)), tokens=QUANTUM // 2)),
            ],
            9,
            "l0 s0 s1 s2 s3 l1 s4 s5 l2",
        ),
        (
            [(name[0], waiting(*name.split(), tokens=100)) for name in ("a0 a1", "b0 b1", "a2")],
            9,
            "a0 a1 a2 b0 b1",
        ),
        ([(None, waiting(*map(str, range(30))))], 7, " ".join(map(str, range(30)))),
    ],
    ids=["clients take turns", "a turn is measured in tokens", "a request stays together", "one client is in order"],
)
def test_which_samples_are_taken_next(requests, most, order):
    queue, taken = FairQueue(), []
    for client, samples in requests:
        queue.add(client, samples)
    while len(queue):
        taken.append(names(queue.take(most, 0.0)[0]))
    assert " ".join(taken) == order and queue.tokens == 0


def test_cancelled_samples_of_a_client_no_longer_count():
    queue = FairQueue()
    gone, stays = waiting("g0", "g1"), waiting("s0")
    queue.add("gone", gone)
    queue.add("mixed", [*stays, *gone[:1]])
    for each in gone:
        each.future.cancel()
    for client in ("gone", "mixed", "unknown"):
        queue.drop_cancelled(client)
    assert len(queue) == 1 and queue.tokens == QUANTUM and queue.ahead("gone") == 0
    assert names(queue.take(9, 0.0)[0]) == "s0" and queue.tokens == 0


def test_what_was_cancelled_or_is_late_takes_no_place_in_a_batch():
    queue = FairQueue()
    gone, here, late = waiting("gone", "here"), waiting("also here"), waiting("late", deadline=5.0)
    queue.add("a", [*gone, *late])
    queue.add("b", here)
    gone[0].future.cancel()
    batch, passed = queue.take(2, 6.0)
    assert {each.sample.target for each in batch} == {"here", "also here"}
    assert len(queue) == 1 and passed == []  # the late sample is behind a full batch
    assert names(queue.take(2, 6.0)[1]) == "late" and len(queue) == 0


@pytest.fixture
def measured(batcher):
    """`measured(tokens, ...)` is a queue that knows its rate and works on a sample of so many tokens."""

    def make(tokens=None, **settings):
        scorer = Held()
        queue = batcher(scorer, max_wait=0, **settings)
        scorer.go.set()
        queue.submit(SAMPLES[:1], tokens=[100])[0].result(HANG)
        assert scorer.started.acquire(timeout=HANG)
        scorer.go.clear()
        running = queue.submit(SAMPLES[:1], tokens=tokens)
        assert scorer.started.acquire(timeout=HANG)
        return queue, scorer, running

    return make


def test_what_cannot_be_started_in_time_is_not_queued(measured):
    queue, scorer, running = measured()
    backlog = queue.submit(SAMPLES[:1], tokens=[round(3600 * queue.rate)])  # an hour of work
    [hopeless] = queue.submit(SAMPLES[:1], deadline=time.monotonic() + 60)
    [other] = queue.submit(SAMPLES[:1], client="other", deadline=time.monotonic() + HANG)
    with pytest.raises(DeadlinePassed, match="about 3600 s of work wait before it, but its deadline is in 60 s"):
        hopeless.result(0)
    scorer.go.set()
    assert all(future.result(HANG) for future in (*running, *backlog, other))


def test_a_queue_full_of_tokens_refuses_and_spreads_the_returns(measured):
    queue, scorer, running = measured([1000], max_tokens=1000)
    queued, waits = queue.submit(SAMPLES[:1], tokens=[800]), []
    for _ in range(3):
        with pytest.raises(
            QueueFull, match="about 800 waiting tokens and cannot accept 400 more .at most 1000"
        ) as full:
            queue.submit(SAMPLES[:1], tokens=[400])
        waits.append(full.value.wait)
    assert waits[0] < waits[1] < waits[2] or waits[2] == 60.0
    queued += queue.submit(SAMPLES[:1], tokens=[200])
    scorer.go.set()
    assert all(future.result(HANG) for future in running + queued)


def test_without_a_measured_rate_a_full_queue_asks_for_a_second(batcher):
    queue = batcher(max_tokens=5)
    with pytest.raises(QueueFull) as full:
        queue.submit(SAMPLES[:1], tokens=[6])
    assert full.value.wait == 1.0 and queue.rate is None
