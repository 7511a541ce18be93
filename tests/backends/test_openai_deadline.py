"""When no time is left for the reads of a call: what is cancelled, what is not sent, and what is kept."""

import asyncio
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from checklist_rewards.backends import Sampling
from checklist_rewards.backends import base as module
from checklist_rewards.backends.base import deadline, is_over, time_left
from checklist_rewards.backends.openai import client as loop
from checklist_rewards.backends.openai.client import Connection
from checklist_rewards.backends.openai.wire import Failure
from checklist_rewards.backends.servers import Settings
from checklist_rewards.backends.transformers import TransformersBackend
from tests import clock
from tests.backends.answers import user
from tests.backends.answerserver import raw_server, request_in
from tests.conftest import HANG


@pytest.fixture
def now(monkeypatch):
    """A clock that a test sets."""
    now = SimpleNamespace(seconds=0.0, monotonic=lambda: now.seconds)
    monkeypatch.setattr(module, "time", now)
    return now


def test_the_deadline_that_ends_first_counts(now):
    assert time_left() is None and not is_over()
    with deadline(10):
        with deadline(99):
            assert time_left() == 10
        with deadline(None):
            assert time_left() == 10
        with deadline(3):
            now.seconds = 2
            assert time_left() == 1
        now.seconds = 11
        assert time_left() == 0 and is_over()
    assert time_left() is None


def test_threads_of_asyncio_have_the_deadline_of_their_caller(now):
    with deadline(10):
        assert asyncio.run(asyncio.to_thread(time_left)) == 10
        assert loop.run(asyncio.to_thread(time_left)) == 10


def test_requests_in_flight_are_cancelled_and_those_that_wait_are_not_sent(now, monkeypatch):
    sent, cancelled = [], []

    async def once(self, place, request, seconds):
        sent.append(request.content)
        try:
            await asyncio.sleep(HANG)
        except asyncio.CancelledError:
            cancelled.append(request.content)
            raise

    async def three():
        connection = Connection("http://127.0.0.1:9/v1", "EMPTY", Settings(concurrency=2))
        with deadline(30):
            outcomes = await asyncio.gather(*(connection.post("/completions", {"n": n}) for n in range(3)))
            ended = asyncio.get_running_loop().time()
            now.seconds = 31
            outcomes.append(await connection.post("/completions", {"n": 3}))
        return outcomes, ended, connection._session.limiter.under_way

    monkeypatch.setattr(Connection, "_once", once)
    outcomes, ended, under_way = clock.run(three())
    assert [outcome.unanswered for outcome in outcomes] == ["deadline"] * 4 and ended == pytest.approx(30)
    assert sent == cancelled == [b'{"n":0}', b'{"n":1}'] and under_way == 0


@contextmanager
def silent_server():
    """The address of a server that reads requests and never answers; what it received, and whether the client hung
    up."""
    received, closed = [], threading.Event()

    async def handle(reader, writer):
        received.append(await request_in(reader))
        while await reader.read(4096):
            pass
        closed.set()
        writer.close()

    with raw_server(handle) as address:
        yield f"{address}/v1", received, closed


def test_the_connection_of_a_cancelled_request_is_closed_so_the_server_can_stop():
    with silent_server() as (address, received, closed):
        connection, seconds = Connection(address, "EMPTY", Settings()), 0.2
        while not received:
            with deadline(seconds):
                outcome = loop.run(connection.post("/completions", {}))
            assert isinstance(outcome, Failure) and outcome.unanswered == "deadline"
            seconds *= 2
            assert seconds < HANG
        assert closed.wait(HANG)


def test_an_engine_in_the_process_finishes_its_batch_of_replies_and_gets_no_further_one(now):
    backend = TransformersBackend("pocket", max_batch_tokens=1)  # one prompt per batch
    prompts = [user("a " * length) for length in (1, 2, 3)]
    with deadline(10):
        replies = backend.generate(prompts, Sampling(max_tokens=2), lambda place, reply: setattr(now, "seconds", 11))
    assert [reply.unanswered for (reply,) in replies] == [None, "deadline", "deadline"]
