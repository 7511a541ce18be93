"""Clients take turns, deadlines pass, and a full queue says when to come back."""

import time
from concurrent.futures import Future

import pytest

from checklist_rewards import Sample
from checklist_rewards.rewards.integrations.queue import (
    QUANTUM,
    DeadlinePassed,
    FairQueue,
    MicroBatcher,
    QueueFull,
    Waiting,
)
from tests.conftest import HANG
from tests.rewards.integrations.test_queue import QUESTIONS, Held, scorer_on


def waiting(*names: str, tokens: int = QUANTUM, deadline: float = float("inf")) -> list[Waiting]:
    return [Waiting(Sample(QUESTIONS, name), Future(), 0.0, tokens, deadline) for name in names]


def names(samples: list[Waiting]) -> str:
    return " ".join(each.sample.target for each in samples)


def test_a_client_with_many_samples_does_not_delay_another():
    queue = FairQueue()
    queue.add("flood", waiting(*(f"f{n}" for n in range(100))))
    queue.add("small", waiting("s0", "s1"))
    assert names(queue.take(5, 0.0)[0]) == "f0 s0 f1 s1 f2"
    assert len(queue) == 97 and queue.tokens == 97 * QUANTUM


def test_cancelled_samples_of_a_client_no_longer_count():
    queue = FairQueue()
    gone, stays = waiting("g0", "g1"), waiting("s0")
    queue.add("gone", gone)
    queue.add("mixed", [*stays, *gone[:1]])
    for each in gone:
        each.future.cancel()
    queue.drop_cancelled("gone")
    queue.drop_cancelled("mixed")
    queue.drop_cancelled("unknown")
    assert len(queue) == 1 and queue.tokens == QUANTUM and queue.ahead("gone") == 0
    assert names(queue.take(9, 0.0)[0]) == "s0" and queue.tokens == 0


def test_a_turn_is_measured_in_tokens():
    queue = FairQueue()
    queue.add("long", waiting("l0", "l1", "l2", tokens=2 * QUANTUM))
    queue.add("short", waiting(*(f"s{n}" for n in range(6)), tokens=QUANTUM // 2))
    assert names(queue.take(9, 0.0)[0]) == "l0 s0 s1 s2 s3 l1 s4 s5 l2"


def test_the_samples_of_a_request_stay_together():
    queue = FairQueue()
    queue.add("a", waiting("a0", "a1", "a2", tokens=100))
    queue.add("b", waiting("b0", "b1", "b2", tokens=100))
    queue.add("a", waiting("a3", tokens=100))
    assert names(queue.take(9, 0.0)[0]) == "a0 a1 a2 a3 b0 b1 b2"


def test_one_client_is_served_in_order_over_many_batches():
    queue = FairQueue()
    queue.add(None, waiting(*map(str, range(30))))
    assert " ".join(names(queue.take(7, 0.0)[0]) for _ in range(5)) == " ".join(map(str, range(30)))
    assert len(queue) == queue.tokens == 0


def test_what_was_cancelled_or_is_late_takes_no_place_in_a_batch():
    queue = FairQueue()
    gone, here, late = waiting("gone", "here"), waiting("also here"), waiting("late", deadline=5.0)
    queue.add("a", [*gone, *late])
    queue.add("b", here)
    gone[0].future.cancel()
    batch, passed = queue.take(2, 6.0)
    assert names(batch) == "here also here" or names(batch) == "also here here"
    assert len(queue) == 1 and passed == []  # the late sample is behind a full batch
    assert names(queue.take(2, 6.0)[1]) == "late" and len(queue) == 0


def test_samples_whose_deadline_passes_in_the_queue_are_not_scored():
    scorer = Held()
    queue = MicroBatcher(scorer, max_wait=0)
    first = queue.submit([Sample(QUESTIONS, "red")])
    assert scorer.started.acquire(timeout=HANG)
    deadline = time.monotonic() + 0.01
    late, fine = (queue.submit([Sample(QUESTIONS, "red")], deadline=each)[0] for each in (deadline, None))
    while time.monotonic() <= deadline:
        time.sleep(0.005)
    scorer.go.set()
    assert first[0].result(HANG) == fine.result(HANG)
    with pytest.raises(DeadlinePassed, match="the deadline passed in the queue"):
        late.result(HANG)
    assert scorer.sizes == [1, 1]
    queue.close()


def test_what_cannot_be_started_in_time_is_not_queued():
    scorer = Held()
    scorer.go.set()
    queue = MicroBatcher(scorer, max_wait=0)
    queue.submit([Sample(QUESTIONS, "red")], tokens=[10])[0].result(HANG)
    assert scorer.started.acquire(timeout=HANG)
    scorer.go.clear()
    running = queue.submit([Sample(QUESTIONS, "red")])
    assert scorer.started.acquire(timeout=HANG)
    backlog = queue.submit([Sample(QUESTIONS, "red")], tokens=[round(3600 * queue.rate)])  # an hour of work
    [hopeless] = queue.submit([Sample(QUESTIONS, "red")], deadline=time.monotonic() + 60)
    [other] = queue.submit([Sample(QUESTIONS, "red")], client="other", deadline=time.monotonic() + HANG)
    with pytest.raises(DeadlinePassed, match="about 3600 s of work wait before it, but its deadline is in 60 s"):
        hopeless.result(0)
    scorer.go.set()
    assert all(future.result(HANG) for future in (*running, *backlog, other))
    queue.close()


def test_a_queue_full_of_tokens_refuses_and_spreads_the_returns():
    scorer = Held()
    scorer.go.set()
    queue = MicroBatcher(scorer, max_wait=0, max_tokens=1000)
    queue.submit([Sample(QUESTIONS, "red")], tokens=[100])[0].result(HANG)
    assert scorer.started.acquire(timeout=HANG)
    scorer.go.clear()
    running = queue.submit([Sample(QUESTIONS, "red")], tokens=[1000])
    assert scorer.started.acquire(timeout=HANG)
    queued = queue.submit([Sample(QUESTIONS, "red")], tokens=[800])
    waits = []
    for _ in range(3):
        with pytest.raises(
            QueueFull, match="about 800 waiting tokens and cannot accept 400 more .at most 1000"
        ) as full:
            queue.submit([Sample(QUESTIONS, "red")], tokens=[400])
        waits.append(full.value.wait)
    assert waits[0] < waits[1] < waits[2] or waits[2] == 60.0
    queued += queue.submit([Sample(QUESTIONS, "red")], tokens=[200])
    scorer.go.set()
    assert all(future.result(HANG) for future in running + queued)
    queue.close()


def test_without_a_measured_rate_a_full_queue_asks_for_a_second():
    queue = MicroBatcher(scorer_on(), max_tokens=5)
    with pytest.raises(QueueFull) as full:
        queue.submit([Sample(QUESTIONS, "red")], tokens=[6])
    assert full.value.wait == 1.0 and queue.rate is None
