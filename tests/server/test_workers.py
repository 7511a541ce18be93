"""Several processes that accept requests: one queue behind them, and what happens when one is killed or all stop."""

import json
import os
import pickle
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from checklist_rewards import ChecklistScorer
from checklist_rewards.errors import SampleError
from checklist_rewards.judges.remote import RewardServer
from checklist_rewards.server.workers import AppSettings
from tests.conftest import HANG, REPO
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import QUESTIONS, knows
from tests.server.bodies import rows
from tests.waiting import printed, until
from tests.zygote import Program

CLIENTS = 12
COLOURS = ("red", "blue", "green")
TARGETS = [f"{COLOURS[n % 3]} {n}" for n in range(CLIENTS)]


def expected(target: str) -> float:
    scorer = ChecklistScorer(backend=FakeBackend(knows), store=False)
    return scorer.score(QUESTIONS, target, "Say.").primary_score


@contextmanager
def server(workers, gate):
    """Process, address and pids of the workers."""
    with Program(
        ["-m", "tests.server.gated", workers, gate], cwd=REPO, output=subprocess.PIPE, session=True
    ) as process:
        try:
            port, *pids = printed(process, r"port (.*)")[1].split()
            yield process, f"http://127.0.0.1:{port}", [int(pid) for pid in pids]
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
def test_requests_of_all_workers_meet_in_one_queue_and_outlive_a_worker_but_not_the_judges_process(tmp_path):
    gate = tmp_path / "go"
    with server(2, gate) as (process, address, pids), ThreadPoolExecutor(CLIENTS) as threads:
        # Each thread has its own client, and so its own connection.
        clients = [RewardServer(address, pause=0.05) for _ in TARGETS]
        answers = [
            threads.submit(client.score, [{"checklist": QUESTIONS, "target": target, "input": "Say."}])
            for client, target in zip(clients, TARGETS, strict=True)
        ]
        until(lambda: queued(address, CLIENTS))
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: queued(address, CLIENTS + 1))  # clients of the killed worker send their requests again
        gate.touch()
        found = [answer.result(HANG)[0] for answer in answers]
        assert [score.primary_score for [score] in found] == [expected(target) for target in TARGETS]
        counts = numbers(address)
        assert counts['checklist_rewards_requests_total{path="/score",status="200"}'] == CLIENTS
        assert counts["checklist_rewards_batches_total"] < CLIENTS  # some were read together
        # The successor accepts on the killed worker's socket: no connection hangs.
        assert Counter(get(address, "/health")[0] for _ in range(16)) == {200: 16}
        # Workers end with the process of the judge. The pid of the successor is found by its session.
        workers = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if in_session(pid, process.pid)]
        assert len(workers) >= 3
        process.kill()
        until(lambda: not any(in_session(pid, process.pid) and command(pid) for pid in workers))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_ends_readiness_then_work_then_the_process(tmp_path, workers):
    gate = tmp_path / "go"
    with server(workers, gate) as (process, address, _), ThreadPoolExecutor(4) as threads:
        assert get(address, "/ready")[0] == 200
        under_way = [threads.submit(get, address, "/score", rows(target)) for target in TARGETS[:4]]
        until(lambda: queued(address, 4))
        half_open = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        half_open.sendall(b"POST /score HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{")
        process.send_signal(signal.SIGTERM)
        until(lambda: get(address, "/ready")[0] == 503)
        assert get(address, "/health")[0] == 200  # it lives
        if workers == 1:  # of several, one without work may be gone already
            status, text = get(address, "/score", rows("red"))
            assert status == 503 and "accepts no more rows" in text
        assert not any(answer.done() for answer in under_way)
        gate.touch()
        for answer, target in zip(under_way, TARGETS, strict=False):
            status, text = answer.result(HANG)
            assert status == 200 and json.loads(text)["scores"][0]["primary_score"] == expected(target)
        assert process.wait(HANG) == 0
        half_open.close()


def in_session(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader
    except ProcessLookupError:
        return False


def command(pid: int) -> bytes:
    """The command of a process; empty for one that ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_scorer_that_cannot_be_pickled_is_one_sentence():
    scorer = ChecklistScorer(backend=FakeBackend(lambda prefix, tail: 0.5), store=False)
    with pytest.raises(SampleError, match="several workers require a scorer that can be pickled.*use one worker"):
        AppSettings.of(scorer, max_body=1, token=None)


def test_settings_of_workers_have_the_scorer_as_it_was():
    scorer = ChecklistScorer("pocket", store=False, threshold=0.9)
    copy = pickle.loads(AppSettings.of(scorer, max_body=1, token=None).scorer)
    assert copy.aggregation == scorer.aggregation and copy.judge.name == "pocket"
