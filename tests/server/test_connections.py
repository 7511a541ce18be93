"""What a client's connection may hold up: bytes on a real socket, to a server in this process."""

import json
import logging
import signal
import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from checklist_rewards.cli.serving import listen
from checklist_rewards.server import app as server_app
from checklist_rewards.server import build_app, connections
from tests.conftest import HANG
from tests.rewards.integrations.test_queue import Held
from tests.server.bodies import rows
from tests.serving import running, serving
from tests.waiting import until

HEAD = b"POST /score HTTP/1.1\r\nHost: here\r\n"
REQUEST = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"


def request(*targets: str) -> bytes:
    body = json.dumps(rows(*targets)).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def connected(address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=10)


def answer(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection, or has sent a whole answer."""
    found = b""
    while part := connection.recv(2**16):
        found += part
        head, end, body = found.partition(b"\r\n\r\n")
        length = [line for line in head.lower().splitlines() if line.startswith(b"content-length: ")]
        if end and length and len(body) >= int(length[0].split()[1]):
            break
    return found


def get(address: str, path: bytes) -> bytes:
    """The answer to a request on a connection of its own."""
    with connected(address) as connection:
        connection.sendall(REQUEST.replace(b"health", path))
        return answer(connection)


def has_ended(thread) -> bool:
    thread.join(10)
    return not thread.is_alive()


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@contextmanager
def address_of(app):
    with listen("127.0.0.1", 0) as listening:
        server = connections.server_of(app)
        with running(server, listening) as thread:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", server, thread


@pytest.mark.parametrize(("before", "sent"), [(b"", b""), (b"", HEAD), (REQUEST, b"P")], ids=["new", "half", "used"])
def test_headers_that_do_not_come_close_the_connection(scorer, monkeypatch, before, sent):
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.2)
    with serving(build_app(scorer)) as address, connected(address) as slow:
        if before:
            slow.sendall(before)
            assert answer(slow).startswith(b"HTTP/1.1 200 OK")
        slow.sendall(sent)
        assert is_closed(slow)


def test_headers_that_come_byte_by_byte_close_the_connection(scorer, monkeypatch):
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.2)
    with serving(build_app(scorer)) as address, connected(address) as slow:
        slow.settimeout(0.01)
        slow.sendall(HEAD)
        for _ in range(1000):
            try:
                slow.sendall(b"x")
                assert slow.recv(1) == b""
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the server is still waiting for the headers")


def test_a_body_that_does_not_come_is_408(scorer, monkeypatch):
    monkeypatch.setattr(server_app, "BODY_SECONDS", 0.2)
    with serving(build_app(scorer)) as address, connected(address) as slow:
        slow.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"')
        found = answer(slow)
        assert found.startswith(b"HTTP/1.1 408")
        assert json.loads(found.partition(b"\r\n\r\n")[2])["errors"][0]["field"] == "body"
        assert is_closed(slow)


def test_connections_beyond_the_limit_are_503_and_the_others_are_served(scorer, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    with address_of(build_app(scorer)) as (address, server, _), connected(address), connected(address) as second:
        with connected(address) as third:
            third.sendall(REQUEST)
            assert answer(third).startswith(b"HTTP/1.1 503")
        until(lambda: len(server.server_state.connections) == 2)
        second.sendall(REQUEST)
        assert answer(second).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", HEAD + b"Content-Length: 100\r\n\r\n{"], ids=["nothing", "half a body"])
def test_a_half_open_connection_does_not_hold_up_the_exit(scorer, sent):
    with address_of(build_app(scorer)) as (address, server, thread), connected(address) as half_open:
        half_open.sendall(sent)
        until(lambda: server.server_state.tasks if b"Length" in sent else server.server_state.connections)
        server.should_exit = True
        assert has_ended(thread)


def test_an_idle_server_answers_503_for_some_time_before_it_leaves(scorer, monkeypatch):
    monkeypatch.setattr(connections, "NOTICE_SECONDS", HANG)
    monkeypatch.setattr(connections, "GRACE_SECONDS", HANG)
    with address_of(build_app(scorer)) as (address, server, thread):
        assert get(address, b"ready").startswith(b"HTTP/1.1 200")
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: server._drained_since is not None)  # it has had the time to leave
        for _ in range(3):
            assert get(address, b"ready").startswith(b"HTTP/1.1 503")
        assert not server.should_exit
        monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.0)
        assert has_ended(thread)


def test_sigterm_ends_readiness_then_new_work_then_the_server_once_its_work_is_answered(monkeypatch):
    """With a connection that is half open. `tests/cli/test_serving_serve.py` sends the signal to a process."""
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.0)
    scorer = Held()
    with address_of(build_app(scorer, max_wait=0)) as (address, server, thread), connected(address) as client:
        client.sendall(request("red"))
        assert scorer.started.acquire(timeout=10)
        with connected(address) as half_open, connected(address) as late:
            half_open.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
            until(lambda: len(server.server_state.tasks) == 2)
            server.handle_exit(signal.SIGTERM, None)
            assert get(address, b"ready").startswith(b"HTTP/1.1 503")
            assert get(address, b"health").startswith(b"HTTP/1.1 200")  # it lives
            late.sendall(request("red"))
            found = answer(late)
            assert found.startswith(b"HTTP/1.1 503") and b"accepts no more rows" in found
            scorer.go.set()
            assert b'"errors":[],"judge":"pocket",' in answer(client)
            assert has_ended(thread)


def test_everything_ends_before_an_orchestrator_kills_the_process():
    assert connections.GRACE_SECONDS <= 25
    assert connections.GRACE_SECONDS + server_app.CLOSE_SECONDS < 30


@pytest.mark.parametrize("drains", [False, True], ids=["Ctrl-C", "SIGTERM"])
def test_a_judge_that_does_not_return_cannot_hold_up_the_exit(monkeypatch, caplog, drains):
    monkeypatch.setattr(connections, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(server_app, "CLOSE_SECONDS", 0.2)
    scorer = Held()
    with address_of(build_app(scorer, max_wait=0)) as (address, server, thread), connected(address) as client:
        client.sendall(request("red"))
        assert scorer.started.acquire(timeout=10)
        if drains:
            server.handle_exit(signal.SIGTERM, None)
        else:
            server.should_exit = True
        found = answer(client)
        assert found.startswith(b"HTTP/1.1 503") and b"the server is shutting down" in found
        assert has_ended(thread)
        scorer.go.set()
    assert "Traceback" not in caplog.text


def test_clients_that_hang_up_are_counted_and_leave_no_traceback_and_no_work(caplog):
    scorer = Held()
    with address_of(build_app(scorer, max_wait=0)) as (address, server, _), connected(address) as patient:
        patient.sendall(request("red"))
        assert scorer.started.acquire(timeout=10)
        for sent in (HEAD + b"Content-Length: 100\r\n\r\n{", request("blue", "green")):
            for _ in range(2):
                with connected(address) as client:
                    client.sendall(sent)
                    until(lambda: len(server.server_state.tasks) > 1)
                until(lambda: len(server.server_state.tasks) == 1)
        scorer.go.set()
        assert b'"errors":[],"judge":"pocket",' in answer(patient)
        assert b'requests_total{path="/score",status="499"} 4' in get(address, b"metrics")
    assert scorer.sizes == [1]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_row_that_takes_long_to_check_keeps_nobody_else_waiting(scorer, monkeypatch):
    started, go = threading.Event(), threading.Event()

    def check_item(item, where):
        started.set()
        assert go.wait(10)

    monkeypatch.setattr(scorer, "check_item", check_item)
    with serving(build_app(scorer)) as address, connected(address) as slow, connected(address) as other:
        slow.sendall(request("red"))
        assert started.wait(10)
        other.sendall(REQUEST)
        assert answer(other).startswith(b"HTTP/1.1 200")
        go.set()
        assert answer(slow).startswith(b"HTTP/1.1 200")


LINES = b"".join(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(99))


def test_headers_that_are_too_large_are_431(scorer):
    with serving(build_app(scorer, token="secret")) as address, connected(address) as connection:
        connection.sendall((HEAD + b"X: " + b"a" * connections.HEADER_BYTES)[: connections.HEADER_BYTES])
        connection.sendall(b"aa")  # nothing after it: a server that closes before it has read all resets it
        found = answer(connection)
        assert found.startswith(b"HTTP/1.1 431 ") and b"larger than 65536 bytes" in found
        assert is_closed(connection)


@pytest.mark.parametrize(
    ("sent", "size"),
    [
        (HEAD + LINES + b"\r\n", 2**20),
        (b"GET /" + b"a" * 2**17 + b" HTTP/1.1\r\nHost: here\r\n\r\n", 2**10),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + LINES * 6 + b"\r\n", 2**10),
    ],
    ids=["lines at once", "a request line in parts", "trailers in parts"],
)
def test_headers_that_are_too_large_close_the_connection(scorer, sent, size):
    with serving(build_app(scorer, token="secret")) as address, connected(address) as connection:
        with suppress(ConnectionError):  # the server closes it before it has read all
            for start in range(0, len(sent), size):
                connection.sendall(sent[start : start + size])
            found = answer(connection)
            assert found.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 401 ") if b"chunked" in sent else b"HTTP/1.1 431 ")
        with suppress(ConnectionError):
            while connection.recv(2**16):  # until the server has closed it; a timeout is an error
                pass


def test_a_connection_is_used_again_with_large_headers_and_bodies_below_the_limit(scorer):
    with serving(build_app(scorer)) as address, connected(address) as connection:
        for target in ("red", *["a " * 60_000] * 3):  # each request counts for itself
            sent = request(target).replace(HEAD, HEAD + b"X: " + b"a" * 50_000 + b"\r\n")
            connection.sendall(sent[:20])
            connection.sendall(sent[20:])
            assert b'"errors":[],"judge":"pocket",' in answer(connection)
