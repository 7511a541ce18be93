"""What a client may get wrong: every refusal is JSON that names row and field, and no row pays for another."""

import itertools
import json

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checklist_rewards import ChecklistScorer
from checklist_rewards.server import app as middleware
from checklist_rewards.server import build_app
from checklist_rewards.server.rows import LISTED, MAX_READS, MAX_ROWS
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import QUESTIONS, knows
from tests.server.bodies import openrlhf, rows

DEEP = "[" * 100_000
NESTED: list = []
for _ in range(400):
    NESTED = [NESTED]


@pytest.fixture(scope="module")
def client():
    """A server that keeps nothing from one refused request to the next."""
    with TestClient(build_app(ChecklistScorer(backend=FakeBackend(knows), store=False))) as client:
        yield client


def refused(answer, status: int) -> list[tuple[int | None, str]]:
    """Row and field of every error, where the answer has the form that all refusals have."""
    assert answer.status_code == status, answer.text[:300]
    body = answer.json()
    assert set(body) == {"error", "errors"} and body["error"].strip() and body["errors"]
    for error in body["errors"]:
        assert set(error) == {"row", "field", "message"} and error["message"].strip()
        assert error["row"] is None or error["row"] >= 1
    return [(error["row"], error["field"]) for error in body["errors"]]


def sample(**fields) -> dict:
    return {"checklist": QUESTIONS, "target": "red", **fields}


def item(**fields) -> dict:
    return sample(checklist=[{"question": "Is red?", **fields}])


SAID = {"role": "assistant", "text": "x", "shown": "assistant: x"}
TWINS = [{"label": "a", "value": 1}, {"label": "a", "value": 0}]
BAD_ROWS = [
    *((value, "samples") for value in (None, NESTED)),
    *(({"checklist": QUESTIONS}, "target"), ({"target": "x"}, "checklist")),
    *((sample(target=value), "target") for value in (None, 7, NESTED, [7])),
    *((sample(**{field: value}), field) for field, value in (("input", [7]), ("reference", 0), ("history", {}))),
    *((sample(**{field: "x"}), field) for field in ("taget", "\ud800", "as_is")),
    (sample(messages=[SAID]), "messages"),
    *((sample(as_is=True, messages=value), "messages") for value in ("x", [7], [SAID | {"text": 7}])),
    *((sample(as_is=True, **{field: []}), field) for field in ("input", "target")),
    *((sample(checklist=value), "checklist") for value in (None, [], "Is red?", DEEP, NESTED, {"items": 5})),
    *((item(question=value), "checklist") for value in (NESTED, " ")),
    *((item(weight=value), "checklist") for value in (float("nan"), float("inf"), 10**400, "heavy", True, 0)),
    *(
        (item(options=value), "checklist")
        for value in (TWINS, TWINS[:1], [{"label": "a", "value": 2}, TWINS[1] | {"label": "b"}], 5)
    ),
    *((item(check=value), "checklist") for value in (5, '{"type": "no_such_check"}', "{")),
    *((item(**{field: 5}), "checklist") for field in ("wieght", "category", "required")),
    (sample(checklist=[f"Is it {number}?" for number in range(1001)]), "checklist"),
]


@pytest.mark.parametrize(("row", "field"), BAD_ROWS, ids=itertools.count())
def test_a_row_that_cannot_be_scored_fails_alone_and_is_named(client, row, field):
    body = rows("a red thing", "x", "blue")
    body["samples"][1] = row
    answer = client.post("/score", content=json.dumps(body))
    assert answer.status_code == 200, answer.text[:300]
    assert [score and score["answered"] for score in answer.json()["scores"]] == [2, None, 2]
    (error,) = answer.json()["errors"]
    assert (error["row"], error["field"]) == (2, field) and error["message"]
    if field == "checklist" and "checklist" in row:
        body = openrlhf("red", "blue", "green")
        body["labels"][1] = row["checklist"]
        assert refused(client.post("/reward", content=json.dumps(body)), 422) == [(2, "labels")]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("query", "something else", "does not contain its prompt"),
        ("labels", "a, b", "must be JSON"),
        ("labels", DEEP, "nested too deeply"),
        ("labels", json.dumps({"checklist": QUESTIONS, "inptu": "x"}), "unknown key 'inptu'"),
        ("prompts", NESTED, "must be a string, got list"),
    ],
)
def test_one_malformed_row_refuses_an_openrlhf_request(client, field, value, says):
    body = openrlhf("red", "red") | {"images": [None, None]}  # OpenRLHF may add fields
    assert client.post("/reward", json=body).status_code == 200
    body[field][1] = value
    answer = client.post("/reward", json=body)
    assert refused(answer, 422) == [(2, field)]
    assert says in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "field", "says"),
    [
        ("/score", b"\xff\xfe", 400, "body", "not JSON"),
        ("/score", DEEP.encode(), 400, "body", "not JSON"),
        ("/score", b"[1]", 422, "body", "must be a JSON object, got list"),
        ("/score", b"{}", 422, "samples", "samples must be a list of at least one row, got nothing"),
        ("/score", b'{"samples": []}', 422, "samples", "at least one row, got list []"),
        ("/score", b'{"samples": [], "metric": "pass"}', 422, "metric", "unknown field 'metric'; allowed: samples"),
        ("/reward", b'{"query": ["a"]}', 422, "prompts", "prompts must be a list"),
        ("/reward", b'{"query": ["a"], "prompts": ["a"], "labels": ["a", "b"]}', 422, "labels", "got 1, 1 and 2"),
        ("/reward", b'{"query": ["a"], "prompts": ["a", "b"], "labels": ["a"]}', 422, "prompts", "got 1, 2 and 1"),
    ],
)
def test_a_body_that_is_no_request_is_refused_with_a_sentence(client, path, body, status, field, says):
    answer = client.post(path, content=body)
    assert refused(answer, status) == [(None, field)]
    assert says in answer.json()["error"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/score", 405), ("POST", "/scores", 404)])
def test_a_path_that_does_not_exist_is_answered_with_those_that_do(client, method, path, status):
    answer = client.request(method, path)
    assert refused(answer, status) == [(None, "path")]
    assert "the paths are /score, /reward, /v1/decisions, /v1/systemone, /v1/models, /health" in answer.json()["error"]
    assert status == 404 or answer.headers["allow"] == "POST"


def test_bodies_and_rows_are_bounded(scorer, monkeypatch):
    """By the size of a body before it is read, and by what the queue ever holds."""
    monkeypatch.setattr(middleware, "MAX_BODY", 200)
    with TestClient(build_app(scorer)) as client:
        answer = client.post("/score", json=rows("x" * 300))
        assert refused(answer, 413) == [(None, "body")] and "larger than 200 bytes" in answer.json()["error"]
        assert client.post("/score", json={"samples": [item()]}).status_code == 200
    monkeypatch.undo()
    with TestClient(build_app(scorer, max_queue=40)) as client:
        assert refused(client.post("/score", json=rows(*"x" * 41)), 413) == [(None, "samples")]
        assert refused(client.post("/reward", json=openrlhf(*"x" * 41)), 413) == [(None, "query")]
        assert len(client.post("/score", json=rows(*"x" * 40)).json()["scores"]) == 40


OPTIONS = [{"label": str(n), "value": n / 30} for n in range(20)]
NUMBER = MAX_READS // 800 + 1


@pytest.mark.parametrize("path", ["/score", "/reward"])
@pytest.mark.parametrize(
    ("checklist", "count", "sentence"),
    [
        (["Is red?"], MAX_ROWS + 1, "4,097 rows; send at most 4,096"),
        (["Is red?"] * 900, NUMBER, "65,536 items"),
        ([{"question": "Is red?", "options": OPTIONS}] * 40, NUMBER, "65,536 items"),
    ],
    ids=["rows", "questions", "options"],
)
def test_more_rows_or_items_than_allowed_are_refused(client, path, checklist, count, sentence):
    body = {"samples": [sample(checklist=checklist)] * count}
    if path == "/reward":
        label = json.dumps({"checklist": checklist})
        body = {"query": ["Q red"] * count, "prompts": ["Q "] * count, "labels": [label] * count}
    answer = client.post(path, json=body)
    assert refused(answer, 413) and sentence in answer.json()["error"]


def test_a_checklist_as_text_is_bounded_before_it_is_parsed(client):
    text = "[" + "{}," * 2**17 + "{}]"
    nested = {"items": [{"question": "?", "check": text}]}
    requests = [("/score", {"samples": [sample(checklist=one)]}, "checklist") for one in (text, nested)]
    for label in (text, {"checklist": text}):
        requests.append(("/reward", {"query": ["Q red"], "prompts": ["Q "], "labels": [label]}, "labels"))
    for path, body, field in requests:
        answer = client.post(path, json=body)
        assert refused(answer, 422) == [(1, field)] and "131,072 values" in answer.json()["errors"][0]["message"]


LISTS = (("choice", "choices"), ("score", "levels"))


def test_many_wrong_values_of_a_decision_have_a_bounded_answer(client):
    many = [{"a": 1}] * 2**16
    asked = {"model": "fake", "input": "x"}
    for questions in (many, *([{"type": kind, "instructions": "?", name: many}] for kind, name in LISTS)):
        refused(client.post("/v1/decisions", json={**asked, "questions": questions}), 413)
    refused(client.post("/v1/systemone", json={"state": "x", "questions": dict(enumerate(many))}), 413)
    refused(
        client.post("/v1/systemone", json={"state": "x", "questions": {"q": {"type": "noul"}}, "images": many}), 413
    )


@pytest.mark.parametrize("number", [LISTED, MAX_ROWS])
def test_many_invalid_rows_have_a_bounded_answer(client, number):
    bad = {"x" * 2000: 1}
    answer = client.post("/score", json={"samples": [bad] * number})
    fields = refused(answer, 422)
    assert len(fields) == min(number, LISTED + 1) and len(answer.content) < 200_000
    if number > LISTED:
        last = answer.json()["errors"][-1]
        assert last["row"] is None and last["message"].startswith(f"{number - LISTED:,} more rows have errors")
    scored = client.post("/score", json={"samples": [item(), *[bad] * (number - 1)]})
    assert scored.status_code == 200 and len(scored.json()["scores"]) == number


def test_half_a_surrogate_pair_comes_back_as_it_came_or_its_row_fails_alone(client):
    body = b'{"samples": [{"checklist": ["Is red \\ud800?"], "target": "red \\ud800"}, {"\\ud800": 1}]}'
    answer = client.post("/score", content=body)
    assert answer.status_code == 200
    assert answer.json()["errors"][0]["field"] == "\ud800"
    assert answer.json()["scores"][0]["items"][0]["question"] == "Is red \ud800?"
    takes_no_half_pairs = FakeBackend(lambda prefix, tail: 0.9 if prefix.encode() else 0.1)
    targets = "red", "half \ud800", "blue"
    with TestClient(build_app(ChecklistScorer(backend=takes_no_half_pairs, store=False), max_wait=0)) as client:
        answer = client.post("/score", content=json.dumps(rows(*targets)))
        assert [score and score["answered"] for score in answer.json()["scores"]] == [2, None, 2]
        assert [(error["row"], error["field"]) for error in answer.json()["errors"]] == [(2, "sample")]
        assert refused(client.post("/reward", content=json.dumps(openrlhf(*targets))), 422) == [(2, "query")]


@pytest.mark.parametrize("header", [None, "Bearer secret2", "Basic secret", "Bearer sécret"])
def test_without_the_token_only_health_answers(scorer, header):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    with TestClient(build_app(scorer, token="secret")) as client:
        for path in ("/score", "/reward", "/v1/decisions", "/v1/systemone"):
            answer = client.post(path, json=rows("red"), headers=headers)
            assert refused(answer, 401) == [(None, "Authorization")]
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/metrics", headers=headers).status_code == 401
        assert client.get("/nowhere", headers=headers).status_code == 401
        assert client.get("/health").json()["status"] == "ok" and client.get("/ready").status_code == 200
        for given in ("Bearer secret", "bearer secret"):
            assert client.post("/score", json=rows("red"), headers={"Authorization": given}).status_code == 200


def test_tokens_are_compared_in_constant_time(scorer, monkeypatch):
    compared = []
    real = middleware.hmac.compare_digest
    monkeypatch.setattr(middleware.hmac, "compare_digest", lambda *pair: compared.append(pair) or real(*pair))
    with TestClient(build_app(scorer, token="sécret")) as client:
        client.post("/score", json=rows("red"), headers={"Authorization": "Bearer secret"})
    assert compared == [(b"secret", "sécret".encode())]


FIELDS = (
    "checklist target input history items question weight options label value na category required id check".split()
)
CHECK = '{"type": "regex", "pattern": "("}'
WORDS = [*QUESTIONS, "red", "yes", "no", "cannot_assess", "0", "1e999", "NaN", CHECK, "[[", "\ud800"]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS)
NESTED_JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)
JSON = LEAVES | NESTED_JSON | NESTED_JSON.map(json.dumps)  # in a string too, as datasets keep checklists
ITEMS = st.fixed_dictionaries(
    {"question": st.just("Is red?") | JSON},
    optional={name: JSON for name in ("weight", "options", "category", "required", "id", "check")},
)
CHECKLISTS = st.lists(ITEMS | JSON, min_size=1, max_size=2) | st.fixed_dictionaries({"items": st.lists(ITEMS)}) | JSON
ROW = (
    st.fixed_dictionaries({"checklist": CHECKLISTS, "target": st.just("red") | JSON}, optional={"input": JSON}) | JSON
)
FUZZ = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(found=st.lists(ROW, min_size=1, max_size=3))
def test_whatever_the_rows_are_a_good_one_is_scored_and_the_others_are_named(client, found):
    good = rows("a red thing")["samples"]
    answer = client.post("/score", content=json.dumps({"samples": [*found, *good]}))
    assert answer.status_code == 200
    body = answer.json()
    assert len(body["scores"]) == len(found) + 1 and body["scores"][-1]["answered"] == 2
    missing = [number for number, score in enumerate(body["scores"], start=1) if score is None]
    assert [error["row"] for error in body["errors"]] == missing
    assert all(error["field"] and error["message"] for error in body["errors"])


@FUZZ
@given(found=CHECKLISTS | ROW, column=st.sampled_from(["query", "prompts", "labels"]))
def test_whatever_a_column_is_an_openrlhf_request_is_answered_or_refused(client, found, column):
    body = openrlhf("red", "blue")
    body[column] = [body[column][0], found]
    answer = client.post("/reward", content=json.dumps(body))
    if answer.status_code == 200:
        assert len(answer.json()["rewards"]) == 2
    else:
        assert {row for row, _ in refused(answer, 422)} == {2}


@FUZZ
@given(
    path=st.sampled_from(["/score", "/reward"]),
    body=st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()),
)
def test_whatever_the_body_is_it_is_refused(client, path, body):
    answer = client.post(path, content=body)
    assert answer.status_code in (400, 422) and refused(answer, answer.status_code)


def test_an_exception_that_the_check_of_one_row_raises_is_that_rows_error(scorer, monkeypatch):
    def breaks(item, where):
        if item.question == QUESTIONS[1]:
            raise KeyError("colour")

    monkeypatch.setattr(scorer, "check_item", breaks)
    with TestClient(build_app(scorer)) as client:
        answer = client.post("/score", json={"samples": [sample(), sample(checklist=QUESTIONS[:1])]})
        assert answer.json()["errors"] == [
            {"row": 1, "field": "checklist", "message": "the value cannot be used (KeyError: 'colour')."}
        ]
        assert answer.json()["scores"][1]["answered"] == 1
        assert refused(client.post("/reward", json=openrlhf("red")), 422) == [(1, "labels")]
