"""`serve` as a user runs it: a process of its own, stopped while it works."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from checklist_rewards.judges import ReasonedJudge
from tests.conftest import HANG, REPO
from tests.waiting import printed, until
from tests.zygote import Program

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")


def ask(address: str, path: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(address + path, data), timeout=60) as answer:
        return json.loads(answer.read())


def responds(address: str) -> bool:
    try:
        return ask(address, "/health")["status"] == "ok"
    except urllib.error.URLError:
        return False


@pytest.fixture
def server():
    """A server with the pocket judge on a free port of this machine; (process, address)."""
    command = ["-m", "checklist_rewards.cli", "serve", "--port", "0", "--no-store"]
    command += "--model pocket --backend transformers --max-wait-ms 3000".split()  # time for all rows to come together
    environment = {**os.environ, "CHECKLIST_REWARDS_TOKEN": ""}
    del environment["CHECKLIST_REWARDS_TOKEN"]
    with Program(command, cwd=REPO, env=environment, output=subprocess.PIPE) as process:
        yield process, printed(process, r"http://[^\s;]+")[0]
        process.kill()


@pytest.mark.slow
def test_it_answers_what_it_accepted_before_it_stops(server):
    process, address = server
    assert address.startswith("http://127.0.0.1:")
    until(lambda: responds(address))
    clients, checklist = 6, ["Does the response end with a question mark?"]

    def client(number: int) -> dict:
        row = {"checklist": checklist, "target": f"Who is number {number}?"}
        return ask(address, "/score", {"samples": [row] * 3})

    half_open = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
    half_open.sendall(b"POST /score HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{")
    with half_open, ThreadPoolExecutor(clients) as threads:
        answers = [threads.submit(client, number) for number in range(clients)]
        until(lambda: ask(address, "/health")["waiting"] >= 3 * clients or any(answer.done() for answer in answers))
        process.send_signal(signal.SIGTERM)
        for answer in answers:
            scores = answer.result(60)["scores"]
            assert len(scores) == 3 and all(score["primary_score"] is not None for score in scores)
        assert process.wait(20) == 0
    with pytest.raises(urllib.error.URLError):
        ask(address, "/health")


def test_a_taken_port_is_one_sentence(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run(f"serve --port {port}", refused=f"cannot listen on 127.0.0.1:{port}")


def test_the_address_it_shows_can_be_used_also_with_ipv6(run, served):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    result = run("serve --host ::1 --port 0 --no-store")
    assert "at http://[::1]:" in result.stderr


@pytest.mark.parametrize("missing", ["fastapi", "httptools"])
def test_a_missing_library_is_one_sentence_that_names_the_extra(run, monkeypatch, missing):
    import checklist_rewards.server

    monkeypatch.setattr(checklist_rewards, "server", checklist_rewards.server)  # put back what is imported anew
    for name in [name for name in sys.modules if name.startswith(("checklist_rewards.server", f"{missing}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "uvicorn.protocols.http.httptools_impl", raising=False)
    words = f"this needs {missing}: pip install 'checklist-rewards[serve]'"
    run("serve", refused=words)


@pytest.fixture
def served(monkeypatch):
    """What is served, and no judge is loaded for it."""
    apps = []
    monkeypatch.setattr("checklist_rewards.cli.serving.run_server", lambda app, listening: apps.append(app))
    monkeypatch.setattr("checklist_rewards.cli.serving.load", lambda judge: None)
    monkeypatch.delenv("CHECKLIST_REWARDS_TOKEN", raising=False)
    return apps


def test_beyond_loopback_a_token_is_required(run, served):
    run("serve --host 0.0.0.0 --port 0 --no-store", refused="requires a token: set CHECKLIST_REWARDS_TOKEN")
    assert not served
    run("serve --token", " ", refused="the token is empty")
    run("serve --host 0.0.0.0 --port 0 --no-store --token secret")
    run("serve --host 127.0.0.2 --port 0 --no-store")
    assert len(served) == 2


def test_the_judge_of_the_options_is_served(run, served, monkeypatch):
    loaded = []
    monkeypatch.setattr("checklist_rewards.cli.serving.load", loaded.append)
    monkeypatch.setattr("checklist_rewards.server.build_app", lambda scorer, **settings: scorer)
    for options in ("--judge.capture-reasoning", "--mode batch --threshold 0.9"):
        run(f"serve --port 0 --no-store {options}")
    reasoned, batch = served
    assert type(reasoned.judge) is ReasonedJudge
    assert (batch.mode, batch.aggregation.threshold) == ("batch", 0.9)
    assert loaded == [scorer.judge for scorer in served]


@pytest.mark.slow
def test_with_the_defaults_one_connection_scores_twice_and_sigterm_ends_it(tmp_path):
    """Only the port is not the default, which another server of this machine may have. The environment is a user's."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(REPO)}
    command = ["-m", "checklist_rewards.cli", "serve", "--model", "pocket", "--port", "0"]
    row = {"checklist": ["Does the response end with a question mark?"], "target": "Who is it?"}
    with Program(command, cwd=tmp_path, env=environment, output=subprocess.PIPE) as process:
        try:
            address = printed(process, r"http://[^\s;]+")[0]
            until(lambda: responds(address))
            with httpx.Client(base_url=address, timeout=60) as client:
                scores = [client.post("/score", json={"samples": [row]}).raise_for_status().json() for _ in range(2)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANG) == 0
        finally:
            process.kill()
    assert scores[0] == scores[1] and scores[0]["scores"][0]["primary_score"] is not None
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert all(name.startswith(".cache/checklist-rewards/store.sqlite") for name in files), files
