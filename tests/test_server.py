"""The reward server: the numbers of the scorer, and a sentence for whatever it refuses."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer, Sample, Score
from checklist_rewards.errors import ModelError
from checklist_rewards.server import build_app
from tests.fakes import FakeBackend
from tests.test_microbatch import QUESTIONS, Held, knows


def rows(*targets: str) -> dict:
    return {"samples": [{"checklist": QUESTIONS, "target": target, "input": "Say."} for target in targets]}


def openrlhf(*answers: str, label=QUESTIONS) -> dict:
    """A request as OpenRLHF's `_fetch_rewards_via_http` makes it."""
    prompt = "<|im_start|>user\nSay.<|im_end|>\n<|im_start|>assistant\n"
    return {
        "query": [f"{prompt}{answer}<|im_end|>" for answer in answers],
        "prompts": [prompt] * len(answers),
        "labels": [json.dumps({"checklist": label, "input": "Say."})] * len(answers),
    }


@pytest.fixture
def scorer() -> ChecklistScorer:
    backend = FakeBackend(knows, fails=lambda prefix, tail: "boom" in prefix, chunk_reads=1)
    return ChecklistScorer(backend=backend, store=False)


@pytest.fixture
def client(scorer):
    with TestClient(build_app(scorer)) as client:
        yield client


def test_scores_are_those_of_the_scorer(client, scorer):
    answer = client.post("/score", json=rows("a red thing", "red and blue", ""))
    expected = scorer.score_batch([Sample(QUESTIONS, t, "Say.") for t in ("a red thing", "red and blue", "")])
    assert answer.status_code == 200 and answer.json()["errors"] == []
    assert [Score.model_validate(score) for score in answer.json()["scores"]] == expected


def test_openrlhf_gets_rewards_scores_and_logs(client):
    answer = client.post("/reward", json=openrlhf("a red thing", "<think>blue?</think>green"))
    assert answer.status_code == 200
    assert answer.json()["rewards"] == answer.json()["scores"] == pytest.approx([0.5, 0.1])
    assert answer.json()["extra_logs"] == {"checklist_pass_rate": [0.5, 0.0]}


def test_a_malformed_row_fails_alone_and_is_named(client):
    body = rows("red", "red", "red", "red")
    body["samples"][1] = {"checklist": QUESTIONS}
    body["samples"][2] = {"checklist": [{"question": " "}], "target": "red"}
    answer = client.post("/score", json=body)
    assert answer.status_code == 200
    assert [score is None for score in answer.json()["scores"]] == [False, True, True, False]
    assert answer.json()["errors"] == [
        {"row": 2, "field": "target", "message": "must be a string, got nothing."},
        {"row": 3, "field": "checklist", "message": "row 3, item 1: question: the question is blank, got ' '."},
    ]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"checklist": QUESTIONS, "target": 7}, "target"),
        ({"checklist": QUESTIONS, "target": "x", "input": []}, "input"),
        ({"checklist": QUESTIONS, "target": "x", "taget": "y"}, "taget"),
        ({"target": "x"}, "checklist"),
        ({"checklist": [{"question": "Is it?", "weight": "heavy"}], "target": "x"}, "checklist"),
        ("x", "samples"),
    ],
)
def test_a_request_without_one_usable_row_is_422_with_row_and_field(client, row, field):
    answer = client.post("/score", json={"samples": [row]})
    assert answer.status_code == 422
    assert [(error["row"], error["field"]) for error in answer.json()["errors"]] == [(1, field)]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/score", b"{not json", 400, "not JSON"),
        ("/score", b"\xff\xfe", 400, "not JSON"),
        ("/score", b"[1]", 422, "must be a JSON object, got list"),
        ("/score", b"{}", 422, "samples must be a list of at least one row, got nothing"),
        ("/score", b'{"samples": []}', 422, "samples must be a list of at least one row"),
        ("/reward", b'{"query": ["a"]}', 422, "prompts must be a list"),
        ("/reward", b'{"query": ["a"], "prompts": ["a"], "labels": ["a", "b"]}', 422, "equally long, got 1, 1 and 2"),
    ],
)
def test_a_body_that_is_no_request_is_refused_with_a_sentence(client, path, body, status, says):
    answer = client.post(path, content=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"query": ["something else"]}, "query", "does not contain its prompt"),
        ({"labels": ["a, b"]}, "labels", "must be JSON"),
        ({"labels": [json.dumps({"checklist": QUESTIONS, "inptu": "x"})]}, "labels", "unknown key 'inptu'"),
        ({"prompts": [7]}, "prompts", "must be a string, got int 7"),
    ],
)
def test_one_malformed_row_refuses_an_openrlhf_request(client, change, field, says):
    body = {name: value * 2 for name, value in openrlhf("red").items()}
    for name, value in change.items():
        body[name] = body[name][:1] + value
    answer = client.post("/reward", json=body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["row"], error["field"]) == (2, field) and says in error["message"]


def test_what_the_judge_does_not_answer_is_null_for_score_and_503_for_openrlhf(client):
    answer = client.post("/score", json=rows("red", "boom"))
    assert answer.status_code == 200
    first, second = answer.json()["scores"]
    assert first["primary_score"] == pytest.approx(0.5)
    assert second["primary_score"] is None and second["items"][0]["unanswered"].startswith("backend_error")
    answer = client.post("/reward", json=openrlhf("red", "boom"))
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    (error,) = answer.json()["errors"]
    assert error["row"] == 2 and "answered 0 of 2 items" in error["message"]
    assert "checklist_rewards_unscored_total 2" in client.get("/metrics").text


def test_a_body_over_the_limit_is_413_before_it_is_read(scorer):
    with TestClient(build_app(scorer, max_body=200)) as client:
        answer = client.post("/score", json=rows("x" * 300))
        assert answer.status_code == 413 and "larger than 200 bytes" in answer.json()["error"]
        assert (
            client.post("/score", json={"samples": [{"checklist": ["Is red?"], "target": "red"}]}).status_code == 200
        )


def test_a_judge_that_cannot_be_used_is_500_with_its_sentence():
    class Gone(ChecklistScorer):
        def score_batch(self, samples, progress=None):
            raise ModelError("the weights are gone.")

    with TestClient(build_app(Gone(backend=FakeBackend(), store=False))) as client:
        answer = client.post("/score", json=rows("red"))
    assert answer.status_code == 500
    assert answer.json() == {"error": "the judge broke: the weights are gone.", "errors": []}


def test_half_a_surrogate_pair_comes_back_as_it_came(client):
    body = b'{"samples": [{"checklist": ["Is red \\ud800?"], "target": "red \\ud800"}, {"\\ud800": 1}]}'
    answer = client.post("/score", content=body)
    assert answer.status_code == 200
    assert answer.json()["errors"][0]["field"] == "\ud800"


def test_a_full_queue_is_429_and_what_was_accepted_is_answered():
    scorer = Held()
    with TestClient(build_app(scorer, max_wait=0, max_queue=2)) as client, ThreadPoolExecutor(2) as threads:
        first = threads.submit(client.post, "/score", json=rows("red"))
        assert scorer.started.acquire(timeout=10)
        second = threads.submit(client.post, "/score", json=rows("red", "blue"))
        while client.get("/health").json()["waiting"] < 2:
            threading.Event().wait(0.005)
        refused = client.post("/score", json=rows("red"))
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        assert "at most 2 may wait" in refused.json()["error"]
        scorer.go.set()
        assert first.result(10).status_code == second.result(10).status_code == 200
    assert scorer.sizes == [1, 2]


def test_more_rows_than_the_queue_ever_holds_is_413(scorer):
    with TestClient(build_app(scorer, max_queue=2)) as client:
        assert client.post("/score", json=rows("a", "b", "c")).status_code == 413


def test_requests_that_come_together_share_a_batch(scorer):
    with TestClient(build_app(scorer, max_wait=0.1)) as client, ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda n: client.post("/score", json=rows(f"red {n}")), range(16)))
        assert all(answer.status_code == 200 for answer in answers)
        numbers = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    assert numbers["checklist_rewards_samples_total"] == "16"
    assert int(numbers["checklist_rewards_batches_total"]) < 16
    assert numbers['checklist_rewards_requests_total{path="/score",status="200"}'] == "16"
    assert numbers['checklist_rewards_request_seconds_bucket{le="+Inf"}'] == "16"


@pytest.mark.parametrize("header", [None, "Bearer wrong", "secret", "Basic secret", "Bearer sécret"])
def test_without_the_token_only_health_answers(scorer, header):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    with TestClient(build_app(scorer, token="secret")) as client:
        for path in ("/score", "/reward"):
            assert client.post(path, json=rows("red"), headers=headers).status_code == 401
        assert client.get("/metrics", headers=headers).status_code == 401
        assert client.get("/health").json()["status"] == "ok"
        answer = client.post("/score", json=rows("red"), headers={"Authorization": "Bearer secret"})
        assert answer.status_code == 200


def test_the_pocket_judge_serves_its_own_scores(pocket):
    scorer = ChecklistScorer("pocket", backend="transformers", store=False)
    checklist = ["Does the response end with a question mark?"]
    with TestClient(build_app(scorer)) as client:
        body = {"samples": [{"checklist": checklist, "target": text} for text in ("Who is there?", "Nobody.")]}
        found = [score["primary_score"] for score in client.post("/score", json=body).json()["scores"]]
    expected = scorer.score_batch([Sample(checklist, text) for text in ("Who is there?", "Nobody.")])
    assert found == pytest.approx([score.primary_score for score in expected], abs=1e-6)
