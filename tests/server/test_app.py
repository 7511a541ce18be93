"""The reward server: the numbers of the scorer, and a sentence for whatever it refuses."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer, Sample, Score
from checklist_rewards.server import build_app
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import QUESTIONS
from tests.server.bodies import openrlhf, rows


def scores_of(answer) -> list[Score]:
    assert answer.status_code == 200, answer.text
    return [Score.model_validate(score) for score in answer.json()["scores"] if score is not None]


def test_scores_are_those_of_the_scorer_and_malformed_rows_fail_alone(client, scorer):
    targets = ["a red thing", "red and blue", "", *(f"red {number}" for number in range(100))]
    body = rows(*targets)
    body["samples"][1:1] = [{"checklist": QUESTIONS}, {"checklist": [{"question": " "}], "target": "red"}]
    answer = client.post("/score", json=body)
    assert scores_of(answer) == scorer.score_batch([Sample(QUESTIONS, target, "Say.") for target in targets])
    assert [score is None for score in answer.json()["scores"]] == [False, True, True, *[False] * 102]
    assert answer.json()["errors"] == [
        {"row": 2, "field": "target", "message": "must be a string or a list of chat messages, got nothing."},
        {"row": 3, "field": "checklist", "message": "row 3, item 1: question: the question is blank, got ' '."},
    ]


@pytest.mark.parametrize("as_is", [False, True])
def test_the_judge_sees_the_reference_and_the_history_of_a_row(as_is):
    backend = FakeBackend()
    body = rows("a red thing")
    body["samples"][0] |= {"reference": "a lamp", "history": "user: Hello", "as_is": as_is}
    with TestClient(build_app(ChecklistScorer(backend=backend, store=False))) as client:
        assert len(scores_of(client.post("/score", json=body))) == 1
    assert backend.asked and all("a lamp" in prefix and "Hello" in prefix for prefix, _ in backend.asked)


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


def test_a_target_without_an_answer_gets_the_lowest_score_with_its_state_or_none(client, scorer):
    targets = "<think>red and blue", "", "<think>blue</think>red"
    states = [(score.primary_score, score.state) for score in scores_of(client.post("/score", json=rows(*targets)))]
    assert states == [(0.0, "cut_in_thought"), (0.0, "empty"), (pytest.approx(0.5), "answered")]
    rewarded = client.post("/reward", json=openrlhf(*targets))
    assert rewarded.json()["rewards"] == pytest.approx([0.0, 0.0, 0.5])
    counts = client.get("/metrics").text
    assert 'checklist_rewards_no_answer_total{state="cut_in_thought"} 2.0' in counts
    assert 'checklist_rewards_no_answer_total{state="empty"} 2.0' in counts
    assert "checklist_rewards_unscored_total 0.0" in counts and "unanswered_total{" not in counts
    prompt = "<|im_start|>user\nSay.<|im_end|>\n<|im_start|>assistant\n<think>\n"  # it opens the thought
    body = openrlhf("x", "y") | {"prompts": [prompt] * 2}
    body["query"] = [f"{prompt}red and blue", f"{prompt}blue</think>red<|im_end|>"]
    assert client.post("/reward", json=body).json()["rewards"] == pytest.approx([0.0, 0.5])
    scorer.aggregation = replace(scorer.aggregation, no_answer="unscored")
    assert client.post("/score", json=rows("")).json()["scores"][0]["primary_score"] is None
    answer = client.post("/reward", json=openrlhf("red", "<think>red"))  # no failure of the judge
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["message"] == "row 2: the query has no answer (cut_in_thought), which is not scored."


def test_a_client_may_have_read_the_target_itself(client):
    body = rows("<think>red</think>blue", "<think>red", "")
    for row in body["samples"]:
        row["as_is"] = True
    scores = scores_of(client.post("/score", json=body))
    assert [score.items[0].answer for score in scores] == ["yes", "yes", "no"]
    assert [score.state for score in scores] == ["answered"] * 3
    assert scores[0].items[1].answer == "yes"


def test_a_target_may_be_a_list_of_messages_and_items_may_be_about_each(client):
    turns = [("assistant", "<think>blue</think>A red thing?"), ("user", "Go on."), ("assistant", "A blue thing.")]
    target = [{"role": role, "content": content} for role, content in turns]
    scopes = ("any_turn", "every_turn", "final", None)
    checklist = [{"question": "Is blue?"} | ({"scope": scope} if scope else {}) for scope in scopes]
    [score] = scores_of(client.post("/score", json={"samples": [{"checklist": checklist, "target": target}]}))
    assert [line.answer for line in score.items] == ["yes", "no", "yes", "yes"]
    assert score.items[0].reasoning == "message 2 of 2 decides"


def test_what_the_judge_does_not_answer_is_null_for_score_and_503_for_openrlhf(client):
    first, second = scores_of(client.post("/score", json=rows("red", "boom")))
    assert first.primary_score == pytest.approx(0.5)
    assert second.primary_score is None and second.items[0].unanswered.startswith("backend_error")
    answer = client.post("/reward", json=openrlhf("red", "boom"))
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    (error,) = answer.json()["errors"]
    assert error["row"] == 2 and "answered 0 of 2 items" in error["message"]
    assert "checklist_rewards_unscored_total 2" in client.get("/metrics").text


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
