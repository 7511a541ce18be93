"""The reward server: the numbers of the scorer, and a sentence for whatever it refuses."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer, Sample, Score
from checklist_rewards.server import build_app
from tests.conftest import HANG
from tests.rewards.integrations.test_queue import QUESTIONS, Held
from tests.server.bodies import openrlhf, rows
from tests.waiting import until


def test_scores_are_those_of_the_scorer(client, scorer):
    answer = client.post("/score", json=rows("a red thing", "red and blue", ""))
    expected = scorer.score_batch([Sample(QUESTIONS, t, "Say.") for t in ("a red thing", "red and blue", "")])
    assert answer.status_code == 200 and answer.json()["errors"] == []
    assert [Score.model_validate(score) for score in answer.json()["scores"]] == expected


def test_openrlhf_gets_rewards_scores_and_logs(client):
    answer = client.post("/reward", json=openrlhf("a red thing", "<think>blue?</think>green"))
    assert answer.status_code == 200
    assert answer.json()["rewards"] == answer.json()["scores"] == pytest.approx([0.5, 0.1])
    assert answer.json()["extra_logs"] == {
        "checklist/pass_rate": [0.5, 0.0],
        "checklist/answered_weight": [1.0, 1.0],
        "checklist/scored": [1.0, 1.0],
        "checklist/no_answer": [0.0, 0.0],
        "checklist/cut": [0.0, 0.0],
    }


def test_an_invalid_row_of_openrlhf_is_logged_once(client, caplog):
    body = openrlhf("red") | {"labels": ['{"checklist": [], "input": "logged once"}']}
    for _ in range(2):
        assert client.post("/reward", json=body).status_code == 422
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage().startswith("POST /reward: labels: row 1: ")


def test_a_malformed_row_fails_alone_and_is_named(client):
    body = rows("red", "red", "red", "red")
    body["samples"][1] = {"checklist": QUESTIONS}
    body["samples"][2] = {"checklist": [{"question": " "}], "target": "red"}
    answer = client.post("/score", json=body)
    assert answer.status_code == 200
    assert [score is None for score in answer.json()["scores"]] == [False, True, True, False]
    assert answer.json()["errors"] == [
        {"row": 2, "field": "target", "message": "must be a string or a list of chat messages, got nothing."},
        {"row": 3, "field": "checklist", "message": "row 3, item 1: question: the question is blank, got ' '."},
    ]


def test_a_target_without_an_answer_gets_the_lowest_score_with_its_state(client):
    answer = client.post("/score", json=rows("<think>red and blue", "", "<think>blue</think>red")).json()
    assert [(score["primary_score"], score["state"]) for score in answer["scores"]] == [
        (0.0, "cut_in_thought"),
        (0.0, "empty"),
        (pytest.approx(0.5), "answered"),
    ]
    rewarded = client.post("/reward", json=openrlhf("<think>red and blue", "", "<think>blue</think>red"))
    assert rewarded.json()["rewards"] == pytest.approx([0.0, 0.0, 0.5])
    counts = client.get("/metrics").text
    assert 'checklist_rewards_no_answer_total{state="cut_in_thought"} 2.0' in counts
    assert 'checklist_rewards_no_answer_total{state="empty"} 2.0' in counts
    assert "checklist_rewards_unscored_total 0.0" in counts and "unanswered_total{" not in counts


def test_a_prompt_of_openrlhf_that_opens_the_thought_is_noticed(client):
    prompt = "<|im_start|>user\nSay.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    body = openrlhf("x", "y") | {
        "query": [f"{prompt}red and blue", f"{prompt}blue</think>red<|im_end|>"],
        "prompts": [prompt] * 2,
    }
    assert client.post("/reward", json=body).json()["rewards"] == pytest.approx([0.0, 0.5])


def test_a_row_of_openrlhf_that_must_not_be_scored_is_an_error_and_no_failure_of_the_judge(scorer):
    scorer.aggregation = replace(scorer.aggregation, no_answer="unscored")
    with TestClient(build_app(scorer)) as client:
        assert client.post("/score", json=rows("")).json()["scores"][0]["primary_score"] is None
        answer = client.post("/reward", json=openrlhf("red", "<think>red"))
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["message"] == "row 2: the query has no answer (cut_in_thought), which is not scored."


def test_a_client_may_have_read_the_target_itself(client, scorer):
    body = rows("<think>red</think>blue", "<think>red", "")
    for row in body["samples"]:
        row["as_is"] = True
    scores = client.post("/score", json=body).json()["scores"]
    assert [score["items"][0]["answer"] for score in scores] == ["yes", "yes", "no"]
    assert [score["state"] for score in scores] == ["answered"] * 3
    assert scores[0]["items"][1]["answer"] == "yes"


def test_a_target_may_be_a_list_of_messages_and_items_may_be_about_each(client):
    target = [
        {"role": "assistant", "content": "<think>blue</think>A red thing?"},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "A blue thing."},
    ]
    scopes = ("any_turn", "every_turn", "final", None)
    checklist = [{"question": "Is blue?"} | ({"scope": scope} if scope else {}) for scope in scopes]
    [score] = client.post("/score", json={"samples": [{"checklist": checklist, "target": target}]}).json()["scores"]
    assert [line["answer"] for line in score["items"]] == ["yes", "no", "yes", "yes"]
    assert score["items"][0]["reasoning"] == "message 2 of 2 decides"


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


def test_a_full_queue_is_429_and_what_was_accepted_is_answered():
    scorer = Held()
    with TestClient(build_app(scorer, max_wait=0, max_queue=2)) as client, ThreadPoolExecutor(2) as threads:
        first = threads.submit(client.post, "/score", json=rows("red"))
        assert scorer.started.acquire(timeout=HANG)
        second = threads.submit(client.post, "/score", json=rows("red", "blue"))
        until(lambda: client.get("/health").json()["waiting"] >= 2)
        refused = client.post("/score", json=rows("red"))
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        assert "(at most 2)" in refused.json()["error"]
        scorer.go.set()
        assert first.result(HANG).status_code == second.result(HANG).status_code == 200
    assert scorer.sizes == [1, 2]


def test_large_requests_are_worked_on_beside_the_others(client, scorer):
    body = rows(*(f"red {number}" for number in range(100)))
    body["samples"][41] = {"checklist": QUESTIONS}
    answer = client.post("/score", json=body).json()
    assert [error["row"] for error in answer["errors"]] == [42] and answer["scores"][41] is None
    expected = scorer.score_batch([Sample(QUESTIONS, f"red {n}", "Say.") for n in range(100) if n != 41])
    assert [Score.model_validate(score) for score in answer["scores"] if score is not None] == expected


def test_requests_that_come_together_share_a_batch(scorer):
    app = build_app(scorer, max_wait=HANG, max_batch=16)  # a batch waits until it is full
    with TestClient(app) as client, ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda n: client.post("/score", json=rows(f"red {n}")), range(16)))
        assert all(answer.status_code == 200 for answer in answers)
        numbers = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    assert numbers["checklist_rewards_samples_total"] == "16.0"
    assert numbers["checklist_rewards_batches_total"] == "1.0"
    assert numbers['checklist_rewards_requests_total{path="/score",status="200"}'] == "16.0"
    assert numbers['checklist_rewards_request_seconds_bucket{le="+Inf"}'] == "16.0"


def test_the_pocket_judge_serves_its_own_scores(pocket):
    scorer = ChecklistScorer("pocket", backend="transformers", store=False)
    checklist = ["Does the response end with a question mark?"]
    with TestClient(build_app(scorer)) as client:
        body = {"samples": [{"checklist": checklist, "target": text} for text in ("Who is there?", "Nobody.")]}
        found = [score["primary_score"] for score in client.post("/score", json=body).json()["scores"]]
    expected = scorer.score_batch([Sample(checklist, text) for text in ("Who is there?", "Nobody.")])
    assert found == pytest.approx([score.primary_score for score in expected], abs=1e-6)
