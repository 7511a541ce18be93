"""A web page cannot use a server on this machine; commands, SDKs, probes and routers are answered as before."""

import itertools
import json

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from checklist_rewards import ChecklistScorer
from checklist_rewards.server import build_app
from checklist_rewards.server.guard import MAX_VALUES, TooManyValues, is_unrebound, json_value
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import knows
from tests.server.bodies import rows

OWN_HOSTS = """
    localhost LOCALHOST:8090 app.localhost:8090 judges:8000 127.0.0.1:8090 10.1.2.3:8090 [::1]:8090
""".split()
OTHER_HOSTS = r"""
    evil.example:8090 127.0.0.1.evil.example localhost.evil.example:8090 127.1 evil.example@127.0.0.1 127.0.0.1:x
    127.0.0.1/ 127.0.0.1,evil.example [::1 [evil.example] localhost:8090@evil.example 256.0.0.1 evil.example.
    evil.notlocalhost \localhost
""".split()
SCORER = ChecklistScorer(backend=FakeBackend(knows), store=False)
BODY = json.dumps(rows("red")).encode()
READS = ["/health", "/ready", "/metrics", "/v1/models"]
WRITES = ["/score", "/reward", "/v1/decisions", "/v1/systemone"]


def status(client, method, path, host="localhost", origin=None, kind="application/json", **more) -> int:
    headers = {"Host": host, "Origin": origin, "Content-Type": kind, **more}
    headers = {name: value for name, value in headers.items() if value is not None}
    return client.request(method, path, content=BODY if method == "POST" else None, headers=headers).status_code


@pytest.fixture(scope="module")
def client():
    """A server without a token; the guard keeps nothing from one request to the next."""
    with TestClient(build_app(SCORER)) as client:
        yield client


def test_names_that_no_one_can_point_to_this_machine_are_its_own():
    assert [host for host in OWN_HOSTS if not is_unrebound(host)] == []
    assert [host for host in ("", "127.0.0.1 evil.example", *OTHER_HOSTS) if is_unrebound(host)] == []


@settings(max_examples=50)
@given(st.from_regex(r"[a-z0-9]{1,5}(\.[a-z0-9]{1,5}){1,4}(:\d{1,4})?", fullmatch=True))
def test_no_name_with_a_dot_is_taken_for_this_machine(host):
    name = host.partition(":")[0]
    is_address = name.count(".") == 3 and all(part.isdigit() and int(part) < 256 for part in name.split("."))
    assert not is_unrebound(host) or is_address


def test_without_a_token_other_names_and_pages_are_refused_on_every_path(client):
    for path in (*READS, *WRITES, "/none"):
        method = "POST" if path in WRITES else "GET"
        assert status(client, method, path, "evil.example") == 403
        assert status(client, method, path, origin="http://evil.example") == 403
    for origin in ("null", "https://localhost", "http://localhost:3000", "file://", "chrome-extension://x"):
        assert status(client, "POST", "/score", origin=origin) == 403
    for site in ("cross-site", "same-site"):
        assert status(client, "POST", "/score", **{"Sec-Fetch-Site": site}) == 403
    for path, kind in itertools.product(WRITES, ("text/plain", " TEXT/PLAIN", "multipart/form-data; boundary=x")):
        assert status(client, "POST", path, kind=kind) == 415


def test_other_pages_get_no_cors_headers(client):
    asked = {"Origin": "null", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x"}
    answer = client.options("/score", headers={"Host": "localhost", **asked})
    assert answer.status_code == 403 and not [name for name in answer.headers if name.startswith("access-control")]


def test_clients_that_are_no_browsers_are_answered(client):
    """curl with and without a type, SDKs, probes that name an IP address, names of containers; and the own page."""
    for kind in (None, "application/json; charset=utf-8", "application/x-www-form-urlencoded"):
        assert status(client, "POST", "/score", kind=kind) == 200
    for host in ("10.1.2.3:8090", "judges:8000"):
        assert status(client, "GET", "/ready", host, kind=None) == 200
        own = {"origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert status(client, "POST", "/score", host, **own) == 200


def test_with_a_token_it_alone_decides():
    """Behind a router or a proxy a server is asked under any name. No page can send the token without asking first."""
    foreign = "judges.example.com", "http://evil.example", "text/plain"
    with TestClient(build_app(SCORER, token="secret")) as guarded:
        assert status(guarded, "POST", "/score", *foreign, Authorization="Bearer secret") == 200
        assert status(guarded, "POST", "/score", *foreign) == 401
        assert status(guarded, "GET", "/ready", *foreign) == 200


def test_a_refusal_is_one_sentence_with_what_to_do(client):
    answer = client.post("/score", content=BODY, headers={"Host": "judges.example.com"})
    [error] = answer.json()["errors"]
    assert error["field"] == "Host" and error["message"] == answer.json()["error"]
    assert "'judges.example.com'" in error["message"] and "CHECKLIST_REWARDS_TOKEN" in error["message"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=30,
)


@settings(max_examples=50)
@given(VALUES, st.booleans())
def test_values_are_counted_and_what_is_in_texts_is_not(value, is_ascii):
    content = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")

    def marks(one) -> int:
        inside = [*one.values()] if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if inside is None else max(1, len(inside)) + sum(map(marks, inside))

    assert json_value(content, marks(value)) == value
    if marks(value):
        with pytest.raises(TooManyValues):
            json_value(content, marks(value) - 1)


@pytest.mark.parametrize("content", [b'"' + b'\\"' * 500_000, b'"' * 1_000_001, b'["' + b"," * 2**21])
def test_text_that_is_not_json_is_counted_in_linear_time(content):
    with pytest.raises((ValueError, TooManyValues)):
        json_value(content)


@pytest.mark.parametrize("path", ["/score", "/v1/decisions"])
def test_many_small_values_are_refused_before_they_take_memory(client, path):
    content = b'{"samples":[' + b"[]," * (MAX_VALUES + 1) + b"1]}"
    answer = client.post(path, content=content, headers={"Host": "localhost"})
    assert answer.status_code == 413 and "values" in answer.json()["error"]
