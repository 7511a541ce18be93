"""What a client may get wrong: every refusal is JSON that names row and field, and no row pays for another."""

import json

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checklist_rewards import ChecklistScorer
from checklist_rewards.server import app as middleware
from checklist_rewards.server import build_app
from checklist_rewards.server.rows import LISTED, MAX_READS, MAX_ROWS
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import QUESTIONS
from tests.server.bodies import openrlhf, rows

DEEP = "[" * 100_000
NESTED: list = []
for _ in range(400):
    NESTED = [NESTED]


def refused(answer, status: int) -> list[tuple[int | None, str]]:
    """Row and field of every error, where the answer has the form that all refusals have."""
    assert answer.status_code == status, answer.text[:300]
    body = answer.json()
    assert set(body) == {"error", "errors"} and body["error"].strip()
    for error in body["errors"]:
        assert set(error) == {"row", "field", "message"} and error["message"].strip()
        assert error["row"] is None or error["row"] >= 1
    assert body["errors"]
    return [(error["row"], error["field"]) for error in body["errors"]]


def item(**changes) -> dict:
    return {"checklist": [{"question": "Is red?", **changes}], "target": "red"}


SAID = {"role": "assistant", "text": "x", "shown": "assistant: x"}
ROWS = {
    "null": (None, "samples"),
    "a list": ([], "samples"),
    "a string": ("x", "samples"),
    "nested": (NESTED, "samples"),
    "no target": ({"checklist": QUESTIONS}, "target"),
    "target null": ({"checklist": QUESTIONS, "target": None}, "target"),
    "target 7": ({"checklist": QUESTIONS, "target": 7}, "target"),
    "target true": ({"checklist": QUESTIONS, "target": True}, "target"),
    "target nested": ({"checklist": QUESTIONS, "target": NESTED}, "target"),
    "input [7]": ({"checklist": QUESTIONS, "target": "x", "input": [7]}, "input"),
    "input list as_is": ({"checklist": QUESTIONS, "target": "x", "input": [], "as_is": True}, "input"),
    "reference 0": ({"checklist": QUESTIONS, "target": "x", "reference": 0}, "reference"),
    "history {}": ({"checklist": QUESTIONS, "target": "x", "history": {}}, "history"),
    "unknown": ({"checklist": QUESTIONS, "target": "x", "taget": "y"}, "taget"),
    "as_is word": ({"checklist": QUESTIONS, "target": "x", "as_is": "true"}, "as_is"),
    "as_is 1": ({"checklist": QUESTIONS, "target": "x", "as_is": 1}, "as_is"),
    "as_is {}": ({"checklist": QUESTIONS, "target": "x", "as_is": {}}, "as_is"),
    "target [7]": ({"checklist": QUESTIONS, "target": [7]}, "target"),
    "target without role": ({"checklist": QUESTIONS, "target": [{"content": "x"}]}, "target"),
    "target list as_is": ({"checklist": QUESTIONS, "target": [], "as_is": True}, "target"),
    "messages as_is": ({"checklist": QUESTIONS, "target": "x", "messages": [SAID]}, "messages"),
    "messages word": ({"checklist": QUESTIONS, "target": "x", "as_is": True, "messages": "x"}, "messages"),
    "messages 7": ({"checklist": QUESTIONS, "target": "x", "as_is": True, "messages": [7]}, "messages"),
    "messages short": ({"checklist": QUESTIONS, "target": "x", "as_is": True, "messages": [SAID, {}]}, "messages"),
    "messages text 7": (
        {"checklist": QUESTIONS, "target": "x", "as_is": True, "messages": [SAID | {"text": 7}]},
        "messages",
    ),
    "surrogate": ({"checklist": QUESTIONS, "target": "x", "\ud800": "y"}, "\ud800"),
    "no checklist": ({"target": "x"}, "checklist"),
    "checklist null": ({"checklist": None, "target": "x"}, "checklist"),
    "checklist empty": ({"checklist": [], "target": "x"}, "checklist"),
    "checklist {}": ({"checklist": {}, "target": "x"}, "checklist"),
    "checklist no JSON": ({"checklist": "Is red?", "target": "x"}, "checklist"),
    "checklist deep": ({"checklist": DEEP, "target": "x"}, "checklist"),
    "checklist nested": ({"checklist": NESTED, "target": "x"}, "checklist"),
    "question nested": (item(question=NESTED), "checklist"),
    "question blank": (item(question=" "), "checklist"),
    "question null": (item(question=None), "checklist"),
    "question 7": (item(question=7), "checklist"),
    "item unknown": (item(wieght=1), "checklist"),
    "weight NaN": (item(weight=float("nan")), "checklist"),
    "weight inf": (item(weight=float("inf")), "checklist"),
    "weight huge": (item(weight=10**400), "checklist"),
    "weight word": (item(weight="heavy"), "checklist"),
    "weight true": (item(weight=True), "checklist"),
    "weight 0": (item(weight=0), "checklist"),
    "options one": (item(options=[{"label": "a", "value": 1}]), "checklist"),
    "options twins": (item(options=[{"label": "a", "value": 1}, {"label": "a", "value": 0}]), "checklist"),
    "option 2": (item(options=[{"label": "a", "value": 2}, {"label": "b", "value": 0}]), "checklist"),
    "options word": (item(options="ab"), "checklist"),
    "options 5": (item(options=5), "checklist"),
    "options {}": (item(options={"a": 1}), "checklist"),
    "options 5s": (item(options=[5, 5]), "checklist"),
    "category 5": (item(category=5), "checklist"),
    "required 5": (item(required=5), "checklist"),
    "check 5": (item(check=5), "checklist"),
    "check []": (item(check=[1]), "checklist"),
    "checklist 5": ({"checklist": 5, "target": "x"}, "checklist"),
    "checklist of 5": ({"checklist": [5], "target": "x"}, "checklist"),
    "items 5": ({"checklist": {"items": 5}, "target": "x"}, "checklist"),
    "check unknown": (item(check='{"type": "no_such_check"}'), "checklist"),
    "check no JSON": (item(check="{"), "checklist"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_cannot_be_scored_fails_alone_and_is_named(client, name):
    row, field = ROWS[name]
    body = rows("a red thing", "x", "blue")
    body["samples"][1] = row
    answer = client.post("/score", content=json.dumps(body))
    assert answer.status_code == 200, answer.text[:300]
    assert [score and score["answered"] for score in answer.json()["scores"]] == [2, None, 2]
    (error,) = answer.json()["errors"]
    assert (error["row"], error["field"]) == (2, field) and error["message"]
    alone = client.post("/score", content=json.dumps({"samples": [row]}))
    assert refused(alone, 422) == [(1, field)]


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name][1] == "checklist" and name != "no checklist"])
def test_a_label_that_cannot_be_used_refuses_an_openrlhf_request(client, name):
    label = ROWS[name][0]["checklist"]
    body = openrlhf("red", "blue", "green")
    body["labels"][1] = label
    assert refused(client.post("/reward", content=json.dumps(body)), 422) == [(2, "labels")]


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"query": ["something else"]}, "query", "does not contain its prompt"),
        ({"query": [None]}, "query", "must be a string, got NoneType"),
        ({"labels": ["a, b"]}, "labels", "must be JSON"),
        ({"labels": [DEEP]}, "labels", "nested too deeply"),
        ({"labels": [json.dumps({"checklist": QUESTIONS, "inptu": "x"})]}, "labels", "unknown key 'inptu'"),
        ({"labels": [{"checklist": QUESTIONS, "input": 7}]}, "labels", "input must be a string, got int 7"),
        ({"prompts": [7]}, "prompts", "must be a string, got int 7"),
        ({"prompts": [NESTED]}, "prompts", "must be a string, got list"),
    ],
)
def test_one_malformed_row_refuses_an_openrlhf_request(client, change, field, says):
    body = {name: value * 2 for name, value in openrlhf("red").items()}
    for name, value in change.items():
        body[name] = body[name][:1] + value
    answer = client.post("/reward", json=body)
    assert refused(answer, 422) == [(2, field)]
    assert says in answer.json()["errors"][0]["message"]


def test_fields_that_openrlhf_may_add_are_its_own(client):
    body = openrlhf("a red thing") | {"images": [None]}
    assert client.post("/reward", json=body).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "field", "says"),
    [
        ("/score", b"", 400, "body", "not JSON"),
        ("/score", b"{not json", 400, "body", "not JSON"),
        ("/score", b"\xff\xfe", 400, "body", "not JSON"),
        ("/score", DEEP.encode(), 400, "body", "not JSON"),
        ("/score", b"[1]", 422, "body", "must be a JSON object, got list"),
        ("/score", b"NaN", 422, "body", "must be a JSON object, got float"),
        ("/score", b"{}", 422, "samples", "samples must be a list of at least one row, got nothing"),
        ("/score", b'{"samples": []}', 422, "samples", "at least one row, got list []"),
        ("/score", b'{"samples": {"target": "x"}}', 422, "samples", "at least one row, got dict"),
        ("/score", b'{"samples": [], "metric": "pass"}', 422, "metric", "unknown field 'metric'; allowed: samples"),
        ("/reward", b"[]", 422, "body", "must be a JSON object, got list"),
        ("/reward", b'{"query": ["a"]}', 422, "prompts", "prompts must be a list"),
        ("/reward", b'{"query": ["a"], "prompts": ["a"], "labels": "x"}', 422, "labels", "must be a list"),
        ("/reward", b'{"query": ["a"], "prompts": ["a"], "labels": ["a", "b"]}', 422, "labels", "got 1, 1 and 2"),
        ("/reward", b'{"query": [], "prompts": [], "labels": []}', 422, "query", "at least one row"),
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


def test_a_body_over_the_limit_is_413_before_it_is_read(scorer):
    with TestClient(build_app(scorer, max_body=200)) as client:
        answer = client.post("/score", json=rows("x" * 300))
        assert refused(answer, 413) == [(None, "body")] and "larger than 200 bytes" in answer.json()["error"]
        small = {"samples": [{"checklist": ["Is red?"], "target": "red"}]}
        assert client.post("/score", json=small).status_code == 200


def test_more_rows_than_the_queue_ever_holds_is_413_and_as_many_as_it_holds_are_scored(scorer):
    with TestClient(build_app(scorer, max_queue=40)) as client:
        assert refused(client.post("/score", json=rows(*"x" * 41)), 413) == [(None, "samples")]
        assert refused(client.post("/reward", json=openrlhf(*"x" * 41)), 413) == [(None, "query")]
        assert len(client.post("/score", json=rows(*"x" * 40)).json()["scores"]) == 40


def test_half_a_surrogate_pair_comes_back_as_it_came(client):
    body = b'{"samples": [{"checklist": ["Is red \\ud800?"], "target": "red \\ud800"}, {"\\ud800": 1}]}'
    answer = client.post("/score", content=body)
    assert answer.status_code == 200
    assert answer.json()["errors"][0]["field"] == "\ud800"
    assert answer.json()["scores"][0]["items"][0]["question"] == "Is red \ud800?"


def test_a_text_that_the_engine_does_not_take_fails_alone():
    def takes_no_half_pairs(prefix: str, tail: str) -> float:
        return 0.9 if prefix.encode() else 0.1

    scorer = ChecklistScorer(backend=FakeBackend(takes_no_half_pairs), store=False)
    body = rows("red", "half \ud800", "blue")
    with TestClient(build_app(scorer, max_wait=0)) as client:
        answer = client.post("/score", content=json.dumps(body))
        assert [score and score["answered"] for score in answer.json()["scores"]] == [2, None, 2]
        assert [(error["row"], error["field"]) for error in answer.json()["errors"]] == [(2, "sample")]
        answer = client.post("/reward", content=json.dumps(openrlhf("red", "half \ud800", "blue")))
        assert refused(answer, 422) == [(2, "query")]


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer secret2", "secret", "Basic secret", "Bearer sécret"])
def test_without_the_token_only_health_answers(scorer, header):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    with TestClient(build_app(scorer, token="secret")) as client:
        for path in ("/score", "/reward"):
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
WORDS = [
    *QUESTIONS,
    "red",
    "yes",
    "no",
    "cannot_assess",
    "0",
    "1e999",
    "NaN",
    '{"type": "regex", "pattern": "("}',
    "[[",
    "\ud800",
]
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
@given(field=st.sampled_from(["weight", "options", "category", "required", "id", "check"]), value=JSON)
def test_whatever_a_field_of_an_item_is_its_row_is_scored_or_named(client, field, value):
    answer = client.post("/score", content=json.dumps({"samples": [item(**{field: value})]}))
    assert answer.status_code == 200 or refused(answer, 422) == [(1, "checklist")]


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
    body=st.binary(max_size=40) | JSON.map(lambda v: json.dumps(v).encode()),
)
def test_whatever_the_body_is_it_is_refused(client, path, body):
    answer = client.post(path, content=body)
    assert answer.status_code in (400, 422) and refused(answer, answer.status_code)


def test_an_exception_that_checking_a_row_raises_is_that_rows_error(scorer, monkeypatch):
    def breaks(item, where):
        if item.question == QUESTIONS[1]:
            raise KeyError("colour")

    monkeypatch.setattr(scorer, "check_item", breaks)
    body = rows("red", "red")
    body["samples"][1]["checklist"] = QUESTIONS[:1]
    with TestClient(build_app(scorer)) as client:
        answer = client.post("/score", json=body)
        assert answer.json()["errors"] == [
            {"row": 1, "field": "checklist", "message": "the value cannot be used (KeyError: 'colour')."}
        ]
        assert answer.json()["scores"][1]["answered"] == 1
        assert refused(client.post("/reward", json=openrlhf("red")), 422) == [(1, "labels")]


def test_an_exception_that_scoring_a_row_raises_is_that_rows_error():
    class Picky(ChecklistScorer):
        def score_batch(self, samples, progress=None):
            if any(sample.target == "red" for sample in samples):
                raise ZeroDivisionError("no weight")
            return super().score_batch(samples, progress)

    with TestClient(build_app(Picky(backend=FakeBackend(), store=False))) as client:
        answer = client.post("/score", json=rows("red"))
        assert refused(answer, 422) == [(1, "sample")]
        assert answer.json()["errors"][0]["message"] == "the sample cannot be scored (ZeroDivisionError: no weight)."
        assert refused(client.post("/reward", json=openrlhf("red")), 422) == [(1, "query")]


BAD = [1, None, {}, {"target": 1}, {"checklist": QUESTIONS}, {"checklist": [], "target": "x"}, {"x" * 2000: 1}]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad!r:.30}")
@pytest.mark.parametrize("number", [LISTED, LISTED + 1, MAX_ROWS])
def test_many_invalid_rows_have_a_bounded_answer(client, bad, number):
    answer = client.post("/score", json={"samples": [bad] * number})
    fields = refused(answer, 422)
    assert len(fields) == min(number, LISTED + 1) and len(answer.content) < 200_000
    if number > LISTED:
        last = answer.json()["errors"][-1]
        assert last["row"] is None and last["message"].startswith(f"{number - LISTED:,} more rows have errors")
    scored = client.post("/score", json={"samples": [item() | {"target": "red"}, *[bad] * (number - 1)]})
    assert scored.status_code == 200 and len(scored.json()["scores"]) == number
    assert len(scored.json()["errors"]) == min(number - 1, LISTED + 1)


@pytest.mark.parametrize("path", ["/score", "/reward"])
def test_more_rows_than_allowed_are_refused(client, path):
    body = rows(*["red"] * (MAX_ROWS + 1)) if path == "/score" else openrlhf(*["red"] * (MAX_ROWS + 1))
    answer = client.post(path, json=body)
    refused(answer, 413)
    assert "4,097 rows; send at most 4,096" in answer.json()["error"]


ITEMS = {
    "questions": ["Is red?"] * 900,
    "options": [{"question": "Is red?", "options": [{"label": str(n), "value": n / 30} for n in range(20)]}] * 40,
}


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("path", ["/score", "/reward"])
def test_more_items_than_allowed_are_refused(client, path, kind):
    number = MAX_READS // 800 + 1
    samples = [{"checklist": ITEMS[kind], "target": "red"}] * number
    body = {"samples": samples}
    if path == "/reward":
        label = {"checklist": ITEMS[kind]}
        body = {"query": ["Q red"] * number, "prompts": ["Q "] * number, "labels": [json.dumps(label)] * number}
    answer = client.post(path, json=body)
    refused(answer, 413)
    assert "65,536 items" in answer.json()["error"]


def test_a_checklist_as_text_is_bounded_before_it_is_parsed(client):
    text = "[" + "{}," * 2**17 + "{}]"
    for sample in (
        {"checklist": text, "target": "x"},
        {"checklist": [{"question": "Q?", "check": text}], "target": "x"},
        {"checklist": {"items": [{"question": "Q?", "check": text}]}, "target": "x"},
    ):
        answer = client.post("/score", json={"samples": [sample]})
        assert refused(answer, 422) == [(1, "checklist")] and "131,072 values" in answer.json()["errors"][0]["message"]
    for label in (text, {"checklist": text}, json.dumps({"checklist": text})):
        answer = client.post("/reward", json={"query": ["Q red"], "prompts": ["Q "], "labels": [label]})
        assert refused(answer, 422) == [(1, "labels")] and "131,072 values" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize("value", [0, [], {"a": 1}])
def test_many_wrong_values_of_a_decision_have_a_bounded_answer(client, value):
    many = [value] * 2**16
    for body in (
        {"model": "fake", "input": "x", "questions": many},
        {"model": "fake", "input": "x", "questions": [{"type": "choice", "instructions": "?", "choices": many}]},
        {"model": "fake", "input": "x", "questions": [{"type": "score", "instructions": "?", "levels": many}]},
    ):
        answer = client.post("/v1/decisions", json=body)
        refused(answer, 413)
    for body in (
        {"state": "x", "questions": {str(n): value for n in range(2**16)}},
        {"state": "x", "questions": {"q": {"type": "noul", **{f"k{n}": 1 for n in range(2**16)}}}},
        {"state": "x", "questions": {"q": {"type": "noul"}}, "images": many},
    ):
        refused(client.post("/v1/systemone", json=body), 413)
