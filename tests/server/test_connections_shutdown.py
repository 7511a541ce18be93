"""What a server does between SIGTERM and its exit, in a process of its own."""

import json
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from checklist_rewards import ChecklistScorer
from tests.conftest import HANG, REPO
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import QUESTIONS, knows
from tests.server.bodies import rows
from tests.waiting import printed, until
from tests.zygote import Program

TARGETS = ["red 0", "blue 1", "green 2", "red 3"]


def expected(target: str) -> float:
    scorer = ChecklistScorer(backend=FakeBackend(knows), store=False)
    return scorer.score(QUESTIONS, target, "Say.").primary_score


@contextmanager
def server(gate):
    """Process and address."""
    with Program(["-m", "tests.server.gated", gate], cwd=REPO, output=subprocess.PIPE) as process:
        try:
            yield process, f"http://127.0.0.1:{printed(process, r'port (.*)')[1]}"
        finally:
            gate.touch()
            if process.poll() is None:
                process.kill()


def get(address, path, body=None):
    """Status and text of a response; every call is a connection of its own."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address + path, data), timeout=HANG) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def numbers(address):
    lines = get(address, "/metrics")[1].splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def queued(address, count):
    """Whether `count` requests were passed to the queue."""
    return numbers(address)["checklist_rewards_request_reads_count"] >= count


@pytest.mark.slow
def test_sigterm_ends_readiness_then_work_then_the_process(tmp_path):
    gate = tmp_path / "go"
    with server(gate) as (process, address), ThreadPoolExecutor(4) as threads:
        assert get(address, "/ready")[0] == 200
        under_way = [threads.submit(get, address, "/score", rows(target)) for target in TARGETS]
        until(lambda: queued(address, 4))
        half_open = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        half_open.sendall(b"POST /score HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{")
        process.send_signal(signal.SIGTERM)
        until(lambda: get(address, "/ready")[0] == 503)
        assert get(address, "/health")[0] == 200  # it lives
        status, text = get(address, "/score", rows("red"))
        assert status == 503 and "accepts no more rows" in text
        assert not any(answer.done() for answer in under_way)
        gate.touch()
        for answer, target in zip(under_way, TARGETS, strict=True):
            status, text = answer.result(HANG)
            assert status == 200 and json.loads(text)["scores"][0]["primary_score"] == expected(target)
        assert process.wait(HANG) == 0
        half_open.close()
