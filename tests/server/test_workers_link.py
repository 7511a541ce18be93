"""Messages between a worker and the process of the judge, both ends in this process."""

import multiprocessing
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")

from checklist_rewards import Sample
from checklist_rewards.checklists import Checklist
from checklist_rewards.server.rows import Refused
from checklist_rewards.server.scoring import LocalQueue, Status, Work
from checklist_rewards.server.workers import RemoteQueue, Served
from tests.conftest import HANG
from tests.rewards.integrations.test_queue import QUESTIONS, Held, scorer_on


def work(*targets: str) -> Work:
    return Work([Sample(Checklist.parse(QUESTIONS), target, "Say.") for target in targets], "samples")


def linked(queue):
    """The worker's queue, the other end, the worker's connection and whether it was told to drain."""
    ours, theirs = multiprocessing.Pipe()
    draining = threading.Event()
    return RemoteQueue(theirs, draining.set), Served(ours, queue, lambda: None), theirs, draining


def test_scores_and_refusals_are_those_of_the_queue():
    local = LocalQueue(scorer_on(), max_tokens=500)
    remote, served, _, draining = linked(local)
    rows = work("red", "blue", "half a \ud800 pair")
    assert remote.submit(rows).result(HANG) == local.submit(rows).result(HANG)
    with pytest.raises(Refused) as refused:
        remote.submit(work("x" * 4000)).result(HANG)
    assert (refused.value.status, refused.value.field) == (413, "samples")
    assert refused.value.errors[0]["message"].endswith("send at most 500.")
    remote.count("/score", 200, 0.5)
    assert remote.status().result(HANG) == Status(0)
    assert 'requests_total{path="/score",status="200"} 1.0' in remote.metrics().result(HANG)
    served.drain()
    assert draining.wait(HANG)


def test_a_client_that_is_gone_takes_its_rows_along():
    scorer = Held()
    local = LocalQueue(scorer, max_wait=0)
    remote, _, _, _ = linked(local)
    first = remote.submit(work("red"))
    assert scorer.started.acquire(timeout=HANG)
    gone, stays = remote.submit(work("blue", "blue")), remote.submit(work("red"))
    assert gone.cancel()
    remote.status().result(HANG)  # messages are read in order
    scorer.go.set()
    assert first.result(HANG) == stays.result(HANG)
    assert scorer.sizes == [1, 1]


def test_what_cannot_be_pickled_is_refused_and_the_connection_works_on():
    remote, _, _, _ = linked(LocalQueue(scorer_on()))
    broken = Work([Sample(Checklist.parse(QUESTIONS), "red", input=threading.Lock())], "samples")
    with pytest.raises(Refused, match="the rows cannot be passed to the judge"):
        remote.submit(broken).result(HANG)
    assert remote.submit(work("red")).result(HANG)[0].primary_score == pytest.approx(0.5)


def test_without_the_process_of_the_judge_requests_are_refused_and_the_worker_ends():
    ours, theirs = multiprocessing.Pipe()
    draining = threading.Event()
    remote = RemoteQueue(theirs, draining.set)
    waiting = remote.submit(work("red"))
    ours.close()
    for answer in (waiting, remote.submit(work("red"))):
        with pytest.raises(Refused, match="the process of the judge is gone") as refused:
            answer.result(HANG)
        assert refused.value.status == 503
    assert draining.wait(HANG)


class Unreadable:
    """Can be pickled and not unpickled."""

    def __reduce__(self):
        return int, ("x",)


def test_an_unreadable_message_is_an_error_of_its_request_only():
    remote, served, _, draining = linked(LocalQueue(scorer_on()))
    broken = Work([Sample(Checklist.parse(QUESTIONS), "red", input=Unreadable())], "samples")
    with pytest.raises(Refused, match="the judge's process cannot read the rows") as refused:
        remote.submit(broken).result(HANG)
    assert refused.value.status == 500
    served._queue = SimpleNamespace(status=lambda: done_with(Unreadable()), submit=served._queue.submit)
    with pytest.raises(Refused, match="the answer of the judge's process cannot be read"):
        remote.status().result(HANG)
    assert remote.submit(work("red")).result(HANG)[0].primary_score == pytest.approx(0.5)
    assert not draining.is_set()


def test_after_a_message_that_cannot_be_handled_nobody_waits():
    ours, theirs = multiprocessing.Pipe()
    draining = threading.Event()
    remote = RemoteQueue(theirs, draining.set)
    waiting = remote.submit(work("red"))
    ours.send_bytes(b"no header")
    with pytest.raises(Refused, match="the process of the judge is gone"):
        waiting.result(HANG)
    assert draining.wait(HANG)


def done_with(value) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future
