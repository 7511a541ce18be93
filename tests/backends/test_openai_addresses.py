"""How requests reach an address: directly or through a proxy, with which headers, and by which certificates."""

import asyncio
import gzip
import re
import ssl
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai import client as loop
from checklist_rewards.backends.openai.client import Connection
from checklist_rewards.backends.servers import Settings
from checklist_rewards.errors import ModelError
from tests.backends.answers import LABELS, ONE
from tests.backends.answerserver import SERVED_NAME, connect, raw_server, request_in, serving

DEAD = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(("name", "start"), [("HTTP_PROXY", "http://"), ("ALL_PROXY", "")])
def test_requests_go_through_the_proxy_of_the_environment(monkeypatch, name, start):
    with serving() as proxy:
        monkeypatch.setenv(name, start + proxy.base_url.removeprefix("http://").removesuffix("/v1"))
        [read], _ = OpenAIBackend(SERVED_NAME, "http://far.example/v1", pause=0.01).read(ONE, LABELS)
        assert read.unanswered is None and len(proxy.asked) == 2  # the first one asks whether lists are supported


@pytest.mark.parametrize(
    ("scheme", "start", "login"),
    [
        ("http", "post http://far.example/v1/here http/1.1", "me:hidden@"),
        ("https", "connect far.example:443 http/1.1", "me:hidden@"),
        ("https", "connect far.example:443 http/1.1", ""),
    ],
)
def test_a_proxy_gets_its_login_but_not_the_key_of_the_server(monkeypatch, scheme, start, login):
    with recording() as (address, received):
        monkeypatch.setenv(f"{scheme}_proxy", address.replace("://", f"://{login}"))
        answer = loop.run(Connection(f"{scheme}://far.example/v1", "secret", Settings(attempts=1)).post("/here", {}))
    first, *lines = received[0][0].lower().split("\r\n")
    assert first == start and ("authorization: bearer secret" in lines) == (scheme == "http")
    logins = [line for line in lines if line.startswith("proxy-authorization: ")]
    assert logins == ["proxy-authorization: basic bwu6aglkzgvu"] * bool(login)
    assert "hidden" not in str(answer)


@pytest.mark.parametrize(
    ("name", "proxy"),
    [
        ("HTTP_PROXY", "socks5://127.0.0.1:9"),
        ("http_proxy", "socks5h://me:hidden@127.0.0.1:9"),
        ("ALL_PROXY", "socks://127.0.0.1"),
    ],
)
def test_a_proxy_of_another_kind_is_refused_with_its_variable_unless_it_is_not_used(monkeypatch, name, proxy):
    if name == "http_proxy":
        monkeypatch.setenv("HTTP_PROXY", DEAD)  # of the two, the other one counts
    monkeypatch.setenv(name, proxy)
    shown = proxy.replace("me:hidden", "***")
    with pytest.raises(ModelError, match=re.escape(f"{name}='{shown}' is not an HTTP proxy")) as raised:
        OpenAIBackend(SERVED_NAME, "http://far.example/v1")
    assert str(raised.value).startswith(name) and "NO_PROXY=far.example" in str(raised.value)
    with serving() as server:
        monkeypatch.setenv("NO_PROXY", "far.example,127.0.0.1")
        [read], _ = connect(server).read(ONE, LABELS)
    assert read.unanswered is None


@pytest.mark.parametrize("status", [403, 503])
def test_a_proxy_that_takes_no_request_is_named_with_the_way_around_it(monkeypatch, status):
    async def refuse(reader, writer):
        await request_in(reader)
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 6\r\n\r\n<html>".encode())
        writer.close()

    with raw_server(refuse) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        with pytest.raises(ModelError, match=f"{status}: <html>; sent through the proxy .*NO_PROXY=node7 connects"):
            OpenAIBackend(SERVED_NAME, "http://node7:8000/v1", attempts=1)


def test_the_address_of_a_proxy_that_is_no_url_is_in_the_error(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://[::1:9")
    with pytest.raises(ModelError, match=r"no OpenAI-compatible server responds .*http://\[::1:9.*NO_PROXY=far"):
        OpenAIBackend(SERVED_NAME, "http://far.example/v1", attempts=1)


def test_a_key_that_no_header_can_have_is_refused_without_being_shown():
    with pytest.raises(ModelError, match="the API key has a character that cannot be sent") as raised:
        OpenAIBackend(SERVED_NAME, DEAD, key="secret\n")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("host", "names", "direct"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "far.example, 127.0.0.0/8", True),
        ("127.0.0.1", "far.example,*", True),
        ("[::1]:80", "::1", True),
        ("[fd00::2]", "fd00::/8", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8,fd00::/8", False),
        ("Judge.lab.example:80", "*.Lab.example", True),
        ("lab.example", "*.lab.example", False),
        ("mylab.example", ".lab.example,lab.example", False),
    ],
)
def test_no_proxy_is_used_for_hosts_networks_and_domains_that_the_environment_excepts(
    monkeypatch, host, names, direct
):
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    monkeypatch.setenv("NO_PROXY", names)
    assert Connection(f"http://{host}/v1", "EMPTY", Settings())._proxies == [None if direct else DEAD]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The files of a certificate of 127.0.0.1, signed by itself, and of its key."""
    folder = tmp_path_factory.mktemp("certificate")
    names = folder / "cert.pem", folder / "key.pem"
    options = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-nodes", "-x509"]
    try:
        command = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *options]
        subprocess.run([*command, "-out", names[0], "-keyout", names[1]], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return names


@pytest.mark.parametrize("trusted", ["environment", "certifi", ""])
def test_certificates_are_those_of_the_environment_of_the_system_or_of_certifi(monkeypatch, certificate, trusted):
    """Also if they are named after the first connection of the process."""
    if trusted == "environment":
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    elif trusted == "certifi":  # of a Python that finds no other ones
        monkeypatch.setenv("SSL_CERT_FILE", "")
        monkeypatch.setenv("SSL_CERT_DIR", "")
        monkeypatch.setitem(sys.modules, "certifi", SimpleNamespace(where=lambda: str(certificate[0])))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with recording(context) as (address, _):
        answer = loop.run(Connection(f"{address}/v1", "EMPTY", Settings(attempts=1)).post("/here", {}))
    if trusted:
        assert answer == {"choices": [{}]}
    else:
        assert "certificate verify failed" in answer.unanswered


def test_requests_have_the_headers_of_the_api_and_answers_may_be_redirected_and_compressed(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "our-lab")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gate: a:b\n no header\nAuthorization : none\n X-Lab:7 ")
    with recording() as (address, received):
        connection = Connection(f"{address}/v1", "secret", Settings(attempts=1))
        answer = loop.run(connection.post("/moved", {"a": "ä"}, prefix="abc"))
        assert answer == {"choices": [{}]}
    [first, second] = received
    assert "Cookie: to=replica-2" in second[0]  # of the load balancer, whose address has no name
    for path, (head, body) in (("/v1/moved", first), ("/v1/here", second)):
        line, *lines = head.split("\r\n")
        headers = dict(pair.split(": ", 1) for pair in map(str.lower, lines) if pair)
        assert line == f"POST {path} HTTP/1.1" and body == '{"a":"ä"}'.encode()
        assert headers["authorization"] == "bearer secret" and headers["content-type"] == "application/json"
        assert headers["x-gate"] == "a:b" and headers["x-lab"] == "7"
        assert headers["openai-organization"] == "our-lab" and headers["x-session-id"] == "abc"
        assert headers["user-agent"].startswith("checklist-rewards/") and "gzip" in headers["accept-encoding"]
        assert headers["accept"] == "application/json" and headers["content-length"] == str(len(body))


@contextmanager
def recording(ssl=None):
    """The address of a server that redirects "/v1/moved" and answers with compressed JSON; and its requests, as head
    and body."""
    packed = gzip.compress(b'{"choices": [{}]}')
    received: list[tuple[str, bytes]] = []

    async def handle(reader, writer):
        while True:
            try:
                received.append(await request_in(reader))
            except asyncio.IncompleteReadError:
                return writer.close()
            head = received[-1][0]
            if head.startswith("CONNECT"):
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            elif "/moved" in head:
                start = "HTTP/1.1 307 Moved\r\nLocation: /v1/here\r\nSet-Cookie: to=replica-2; Path=/\r\n"
                writer.write(f"{start}Content-Length: 0\r\n\r\n".encode())
            else:
                start = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
                writer.write(f"{start}Content-Length: {len(packed)}\r\n\r\n".encode() + packed)
            await writer.drain()

    with raw_server(handle, ssl) as address:
        yield address, received
