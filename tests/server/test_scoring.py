"""Admission by tokens, turns of clients, deadlines, readiness and metrics of one server."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from fastapi.testclient import TestClient
from PIL import Image as pillow

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends.tokens import IMAGE_TOKENS
from checklist_rewards.checklists import Checklist
from checklist_rewards.checks.base import CHECKS, Check, _parsed
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.judges.remote import DEADLINE_HEADER, RewardServer
from checklist_rewards.server import build_app, scoring
from checklist_rewards.server.scoring import READ_TOKENS, estimated_tokens
from tests.conftest import HANG
from tests.fakes import FakeBackend
from tests.rewards.integrations.test_queue import QUESTIONS, Held, knows
from tests.server.bodies import openrlhf, rows
from tests.serving import serving
from tests.waiting import until

TURN = 2**16
"""Characters of a row that fills a turn of its client."""


def numbers(client) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def number(client, name: str) -> float:
    return numbers(client)[f"checklist_rewards_{name}"]


def waiting(client) -> int:
    return client.get("/health").json()["waiting"]


def served(scorer=None, **options) -> TestClient:
    return TestClient(build_app(scorer or on_fake(), max_wait=0, **options))


def on_fake() -> ChecklistScorer:
    return ChecklistScorer(backend=FakeBackend(knows), store=False)


def test_tokens_are_estimated_from_the_bytes_of_the_texts_the_reads_and_the_images():
    checklist = Checklist.parse(["Is it?" + " " * 34, "Why?"])
    assert estimated_tokens(Sample(checklist, "x" * 400)) == (40 + 4 + 400) // 4 + 2 * READ_TOKENS
    assert estimated_tokens(Sample(checklist, "语" * 400, "say")) == (40 + 4 + 1200 + 3) // 4 + 2 * READ_TOKENS
    images = [pillow.new("RGB", (2, 2), colour) for colour in ("red", "blue", "red")]
    plain, seen = Sample(checklist, "x"), Sample(checklist, "x", images=images)
    assert 2 * IMAGE_TOKENS <= estimated_tokens(seen) - estimated_tokens(plain) < 2 * IMAGE_TOKENS + 40


def test_a_queue_full_of_tokens_is_429_with_a_time_to_return_and_not_ready():
    scorer = Held()
    with served(scorer, max_tokens=2000) as client, ThreadPoolExecutor(2) as threads:
        first = threads.submit(client.post, "/score", json=rows("red"))
        assert scorer.started.acquire(timeout=HANG)
        second = threads.submit(client.post, "/score", json=rows("x" * 7800))
        until(lambda: number(client, "waiting_tokens") > 1900)
        assert client.get("/ready").status_code == 200
        refused = client.post("/score", json=rows("x" * 800))
        assert refused.status_code == 429 and "cannot accept 2" in refused.json()["error"]
        assert float(refused.headers["retry-after"]) >= 1 and float(refused.headers["retry-after-ms"]) > 0
        too_large = client.post("/score", json=rows("x" * 9000))
        assert too_large.status_code == 413 and "send at most 2000" in too_large.json()["error"]
        third = threads.submit(client.post, "/score", json=rows("x" * 50))  # small requests still fit
        scorer.go.set()
        assert [answer.result(HANG).status_code for answer in (first, second, third)] == [200] * 3
        assert number(client, 'refused_total{reason="queue_full"}') == 1
        assert number(client, 'refused_total{reason="too_large"}') == 1


@pytest.fixture
def held_check(monkeypatch):
    """A code check, `{"type": "held"}`, that waits until it is let go; its events."""
    started, go = threading.Semaphore(0), threading.Event()

    class HeldCheck(Check):
        summary = "Waits."
        type: Literal["held"] = "held"

        def holds(self, text, input=None):
            started.release()
            assert go.wait(HANG)
            return "red" in text

    monkeypatch.setitem(CHECKS, "held", HeldCheck)
    _parsed.cache_clear()
    yield started, go
    go.set()
    _parsed.cache_clear()


def checked(*targets):
    """Rows with a code check that waits."""
    checklist = [{"question": "Does it pass?", "check": {"type": "held"}}]
    return {"samples": [{"checklist": checklist, "target": target} for target in targets]}


def test_code_checks_of_one_client_delay_no_row_of_another(held_check):
    started, go = held_check
    most = scoring.CHECKED_AT_ONCE
    with served() as client, ThreadPoolExecutor(2) as threads:
        many = threads.submit(client.post, "/score", json=checked(*["red", "blue"] * 2 * most))
        for _ in range(most):
            assert started.acquire(timeout=HANG)
        assert waiting(client) == 4 * most
        assert client.post("/score", json=rows("red")).status_code == 200, "no check, no waiting"
        other = {"authorization": "Bearer other"}
        few = threads.submit(client.post, "/score", json=checked("red"), headers=other)
        assert started.acquire(timeout=HANG), "the other client's check runs"
        assert not started.acquire(timeout=0.05), "the first client has no further thread"
        go.set()
        assert few.result(HANG).json()["scores"][0]["primary_score"] == 1.0
        scores = many.result(HANG).json()["scores"]
        assert [score["primary_score"] for score in scores] == [1.0, 0.0] * 2 * most
        assert waiting(client) == 0


def test_a_server_that_has_shut_down_accepts_no_row():
    with served() as client:
        assert client.post("/score", json=rows("red")).status_code == 200
    answer = client.post("/score", json=rows("red"))
    assert answer.status_code == 503 and "the queue is closed" in answer.json()["error"]


def test_checks_that_take_too_long_leave_their_items_unanswered(client, monkeypatch):
    monkeypatch.setattr(scoring, "CHECK_SECONDS", 0.0)
    item = {"question": "Is it short?", "check": {"type": "words", "at_most": 3}}
    answer = client.post("/score", json={"samples": [{"checklist": [item, "Is it red?"], "target": "red"}]})
    [score] = answer.json()["scores"]
    assert score["items"][0]["unanswered"] == "check_error: the checks of this row took more than 0 s"
    assert score["items"][1]["answer"] is not None


def test_a_client_that_floods_the_server_does_not_starve_another():
    scorer = Held()
    order: list[str] = []
    score_batch = scorer.score_batch
    scorer.score_batch = lambda samples: order.extend(s.target[0] for s in samples) or score_batch(samples)
    with served(scorer, max_batch=4) as client, ThreadPoolExecutor(3) as threads:

        def post(key: str, count: int):
            texts = [f"{key} {n} ".ljust(TURN) for n in range(count)]
            return client.post("/score", json=rows(*texts), headers={"Authorization": f"Bearer {key}"})

        first = threads.submit(post, "0", 1)
        assert scorer.started.acquire(timeout=HANG)
        flood = threads.submit(post, "f", 12)
        until(lambda: waiting(client) == 12)
        small = threads.submit(post, "s", 2)
        until(lambda: waiting(client) == 14)
        scorer.go.set()
        assert [answer.result(HANG).status_code for answer in (first, flood, small)] == [200] * 3
    assert "".join(order) == "0" + "fsfs" + "f" * 10


def test_rows_whose_deadline_passes_in_the_queue_are_unanswered_and_not_scored():
    scorer = Held()
    with served(scorer) as client, ThreadPoolExecutor(4) as threads:
        first = threads.submit(client.post, "/score", json=rows("red"))
        assert scorer.started.acquire(timeout=HANG)
        soon = {DEADLINE_HEADER: "20"}
        late = [
            threads.submit(client.post, "/score", json=rows("red", "blue"), headers=soon),
            threads.submit(client.post, "/reward", json=openrlhf("red"), headers=soon),
        ]
        until(lambda: waiting(client) == 3)
        threading.Event().wait(0.05)  # longer than the deadline
        scorer.go.set()
        assert first.result(HANG).status_code == 200
        score, reward = (answer.result(HANG) for answer in late)
        assert score.status_code == 200 and score.json()["errors"] == []
        for row in score.json()["scores"]:
            assert row["primary_score"] is None
            assert {item["unanswered"] for item in row["items"]} == {"timeout: the deadline passed in the queue"}
        assert reward.status_code == 503
        assert number(client, 'refused_total{reason="deadline"}') == 3
        assert number(client, 'unanswered_total{reason="timeout"}') == 6
    assert scorer.sizes == [1]


@pytest.mark.parametrize("header", ["soon", "-1", "nan", "inf", ""])
def test_a_deadline_that_is_not_a_time_is_400(client, header):
    answer = client.post("/score", json=rows("red"), headers={DEADLINE_HEADER: header})
    assert answer.status_code == 400 and DEADLINE_HEADER in answer.json()["error"]


def test_our_client_sends_the_time_it_waits(scorer):
    app, seen = build_app(scorer), []

    async def noting(scope, receive, send):
        if scope["type"] == "http":
            seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, receive, send)

    noting.state = app.state
    with serving(noting) as address:
        [[score], _] = RewardServer(address, timeout=5.0).score(rows("red")["samples"])
    assert score.primary_score is not None
    assert 19_000 <= float(seen[-1][DEADLINE_HEADER.lower()]) <= 20_000  # four times the timeout, as for all lists


def test_the_server_is_not_ready_while_its_judge_answers_nothing(client, monkeypatch):
    def ready(*targets):
        client.post("/score", json=rows(*targets))
        return client.get("/ready")

    assert client.get("/ready").json()["status"] == "ready"
    assert ready("").status_code == 200, "a row without an answer says nothing about the judge"
    answer = ready("boom", "")
    assert answer.status_code == 503 and "the judge answered nothing" in answer.json()["error"]
    assert client.get("/health").status_code == 200
    assert ready("").status_code == 503, "the judge was not asked again"
    assert ready("red").status_code == 200
    monkeypatch.setattr(scoring, "FAILING_SECONDS", 0.0)  # after this time it is tried again
    assert ready("boom").status_code == 200


def test_metrics_count_what_was_scored_in_the_format_of_prometheus(client):
    from prometheus_client.parser import text_string_to_metric_families

    client.post("/score", json=rows("red", "red", "boom"))
    client.post("/score", json=rows("red"))
    found = {name.removeprefix("checklist_rewards_"): value for name, value in numbers(client).items()}
    assert found["queue_seconds_count"] == found["samples_total"] == 4
    assert found["batch_reads_sum"] == found["request_reads_sum"] == 4 * len(QUESTIONS)
    assert found["batches_total"] == found["request_tokens_count"] == found["request_seconds_count"] == 2
    assert found['request_reads_bucket{le="2.0"}'] == 1 and found['request_reads_bucket{le="8.0"}'] == 2
    assert found['reads_total{source="duplicate"}'] == 2 and found['reads_total{source="judge"}'] == 6
    assert found['unanswered_total{reason="backend_error"}'] == 2 and found["unscored_total"] == 1
    assert found["tokens_per_second"] > 0 and found["waiting"] == found["waiting_tokens"] == 0
    families = {family.name: family.type for family in text_string_to_metric_families(client.get("/metrics").text)}
    assert families["checklist_rewards_queue_seconds"] == "histogram"
    assert families["checklist_rewards_samples"] == "counter" and families["checklist_rewards_waiting"] == "gauge"


class Broken(ChecklistScorer):
    """A judge that fails for texts that contain one of some words."""

    def __init__(self, *words: str, error: Exception | None = None):
        super().__init__(backend=FakeBackend(knows), store=False)
        self.words, self.error = words, error

    def score_batch(self, samples, progress=None):
        for sample in samples:
            if any(word in sample.target for word in self.words):
                raise self.error or TypeError(f"cannot add {sample.target}")
        return super().score_batch(samples, progress)


@pytest.mark.parametrize("error", [MemoryError("no memory."), ModelError("the weights are gone.")])
def test_a_judge_that_cannot_be_used_fails_the_request_and_is_counted(error):
    with served(Broken("", error=error)) as client:
        answer = client.post("/score", json=rows("red"))
        assert answer.status_code == 500
        assert answer.json() == {"error": f"the judge failed: {error}", "errors": []}
        assert number(client, "failed_batches_total") == 1 and client.get("/ready").status_code == 503


def test_a_judge_that_fails_for_every_row_is_not_the_clients_fault(caplog):
    scorer = Broken("")
    with served(scorer) as client:
        for path, body in (("/score", rows("red", "blue", "green")), ("/reward", openrlhf("red"))):
            answer = client.post(path, json=body)
            assert answer.status_code == 500, answer.text
            assert "the judge failed: it fails for every row (TypeError: cannot add" in answer.json()["error"]
        ready = client.get("/ready")
        assert ready.status_code == 503 and "the judge failed in the last batch" in ready.json()["error"]
        assert number(client, "failed_batches_total") == 2
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
        scorer.words = ("bad",)
        assert client.post(path, json=body).status_code == 200
        assert client.get("/ready").status_code == 200


def test_a_row_on_which_a_working_judge_fails_is_the_clients():
    with served(Broken("bad")) as client:
        for texts in (["bad"], ["bad", "bad one"]):
            answer = client.post("/score", json=rows(*texts))
            assert answer.status_code == 422 and "the sample cannot be scored (TypeError" in answer.text
        answer = client.post("/reward", json=openrlhf("red", "bad"))
        assert answer.status_code == 422 and [error["row"] for error in answer.json()["errors"]] == [2]
        answer = client.post("/score", json=rows("red", "bad"))
        assert answer.status_code == 200 and [score is None for score in answer.json()["scores"]] == [False, True]
        assert client.get("/ready").status_code == 200
        assert number(client, "failed_batches_total") == 0


@pytest.mark.parametrize("token", ["", " \t"])
def test_a_blank_token_is_refused(scorer, token):
    with pytest.raises(SampleError, match="the token is blank"):
        build_app(scorer, token=token)
