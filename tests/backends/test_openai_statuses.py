"""Which failures cost one request, which end the run, and which pass: by status, before and after an accepted one."""

import asyncio
import itertools
import json
import logging
import threading

import pytest

from checklist_rewards.backends import ReadGroup, is_transient, pocket_dir
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.protocols import DecisionQuestion
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai import client as client_module
from checklist_rewards.backends.openai.client import Connection
from checklist_rewards.backends.openai.wire import Failure
from checklist_rewards.backends.servers import Settings
from checklist_rewards.errors import ModelError
from checklist_rewards.judges.remote import RewardServer
from tests import clock
from tests.backends.answerserver import LIKELY, MODEL, answering, chat, listed, refusal

LABELS = ("yes", "no")
ONE_REQUEST = (400, 403, 413, 422)
LASTING = (401, 402, 404)
PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 529)
BAD = "DROP TABLE"
FAST = {"pause": 0.01, "attempts": 3}


def groups(*texts):
    return [ReadGroup(None, f"{text}. ", ("Is it short?",)) for text in texts]


def chats(fails):
    """A server of chats, which fails with the status that `fails` returns for a request, if it returns one."""

    def respond(path, body):
        status = fails(body)
        return refusal("Forbidden by a rule.", status) if status else chat("yes", LIKELY)

    return respond


def for_text(status):
    return lambda body: status if BAD in str(body) else None


def reads_of(respond, *texts, card=None):
    with answering(respond, card) as server:
        judge = OpenAIBackend(MODEL, server.base_url, **FAST)
        return judge.read(groups(*texts), LABELS)[0]


@pytest.mark.parametrize("status", ONE_REQUEST)
def test_after_an_accepted_request_a_refusal_costs_one_read(status):
    reads = reads_of(chats(for_text(status)), "fine", BAD, "good")
    assert [read.logprobs is not None for read in reads] == [True, False, True]
    assert reads[1].label is None and reads[1].unanswered is not None


@pytest.mark.parametrize("status", LASTING)
@pytest.mark.parametrize("texts", [(BAD,), ("fine", BAD)], ids=["first", "after"])
def test_what_concerns_every_request_ends_the_run(status, texts):
    with pytest.raises(ModelError, match=f"rejected a request: status {status}"):
        reads_of(chats(for_text(status)), *texts)


def test_a_403_to_the_first_request_is_a_wrong_key():
    with pytest.raises(ModelError, match="rejected a request: status 403"):
        reads_of(chats(for_text(403)), BAD, "fine")


@pytest.mark.parametrize("status", PASSING)
@pytest.mark.parametrize("texts", [(BAD,), ("fine", BAD, "good")], ids=["first", "after"])
def test_what_passes_is_asked_again(status, texts):
    times = itertools.count()
    reads = reads_of(chats(lambda body: status if BAD in str(body) and next(times) < 2 else None), *texts)
    assert all(read.logprobs is not None for read in reads)


@pytest.mark.parametrize("status", PASSING)
def test_what_does_not_pass_costs_one_read_that_a_rerun_repeats(status):
    respond = chats(for_text(status))
    with answering(respond) as server:
        judge = OpenAIBackend(MODEL, server.base_url, deadline=2.0, **FAST)
        [fine, lost], _ = judge.read(groups("fine", BAD), LABELS)
    assert fine.logprobs is not None and is_transient(lost.unanswered)


@pytest.mark.parametrize("status", ONE_REQUEST)
def test_a_refused_prompt_in_a_list_costs_its_own_read(status):
    marks: list[list[int]] = []

    def respond(path, body):
        if "prompt" not in body:
            return chat("yes", LIKELY)
        if any(prompt in marks for prompt in body["prompt"]):
            return refusal("Forbidden by a rule.", status)
        if len(body["prompt"]) > 1 and not marks:
            marks.append(body["prompt"][2])
            return refusal("Forbidden by a rule.", status)
        return 200, {"choices": listed(body["prompt"], body["logprob_token_ids"])}

    card = {"root": str(pocket_dir()), "max_model_len": 2048}
    reads = reads_of(respond, *(f"text {n}" for n in range(9)), card=card)
    assert sum(read.logprobs is None for read in reads) == 1


@pytest.mark.parametrize("status", ONE_REQUEST)
def test_a_refused_decision_costs_its_own_read(status):
    def respond(path, body):
        if BAD in str(body):
            return refusal("Forbidden by a rule.", status)
        answers = {name: {"type": "noul", "noul": 0.9} for name in body["questions"]}
        return 200, {"answers": answers, "diagnostics": {}}

    tails = [DecisionQuestion("predicate", text).text() for text in ("Is it?", BAD, "Will it?")]
    with answering(respond) as server:
        judge = DecisionsBackend(MODEL, server.base_url, protocol="systemone", **FAST)
        judge.read([ReadGroup(None, "fine", tuple(tails[:1]))])
        reads, _ = judge.read([ReadGroup(None, "A text.", tuple(tails))])
    assert [read.logprobs is not None for read in reads] == [True, False, True]


@pytest.mark.parametrize("status", ONE_REQUEST)
def test_a_refused_row_of_a_reward_server_costs_its_own_row(status):
    from checklist_rewards import ChecklistScorer, Sample
    from tests.fakes import FakeBackend

    here = ChecklistScorer("m", backend=FakeBackend(lambda p, t: 0.9), store=False)

    def respond(path, body):
        if BAD in str(body):
            return refusal("Forbidden by a rule.", status)
        samples = [Sample(row["checklist"], row["target"]) for row in body["samples"]]
        scores = [score.model_dump(mode="json") for score in here.score_batch(samples)]
        return 200, {"scores": scores, "judge": "m", "identity": "1"}

    with answering(respond) as server:
        client = RewardServer(server.base_url, **FAST)
        client._health = {"judge": "m", "identity": "1"}
        rows = [{"checklist": ["Is it?"], "target": text} for text in ("fine", BAD, "good")]
        client.score(rows[:1])
        outcomes, _ = client.score(rows)
    assert [getattr(outcome, "primary_score", None) for outcome in outcomes] == [0.9, None, 0.9]


# ----- a server that is silent -----


def test_a_server_that_is_down_is_reported_at_once_with_what_is_waited_for(caplog):
    down = threading.Event()
    with answering(chats(lambda body: 500 if down.is_set() else None)) as server:
        judge = OpenAIBackend(MODEL, server.base_url, failures=2, patience=0.3, pause=0.01)
        judge.read(groups("fine"), LABELS)
        down.set()
        judge.read(groups(*map(str, range(20))), LABELS)
    [said, *_] = [record.getMessage() for record in caplog.records if "is down" in record.message]
    assert server.base_url in said and "status 500" in said
    assert "no response for 0 s. Requests fail when there is none for 0.3 s (engine setting `patience`)" in said


def test_a_request_without_a_response_is_reported_before_its_timeout(caplog, monkeypatch):
    monkeypatch.setattr(client_module, "_SILENT_SECONDS", 0.05)
    go_on, seen = threading.Event(), threading.Event()

    class Told(logging.Handler):
        def emit(self, record):
            if "has answered no request" in record.getMessage():
                go_on.set()
                seen.set()

    handler = Told()
    logging.getLogger(client_module.__name__).addHandler(handler)
    try:

        def respond(path, body):
            go_on.wait(60)
            return chat("yes", LIKELY)

        with answering(respond) as server:
            [read], _ = OpenAIBackend(MODEL, server.base_url).read(groups("fine"), LABELS)
    finally:
        logging.getLogger(client_module.__name__).removeHandler(handler)
    assert seen.is_set() and read.logprobs is not None


@pytest.mark.parametrize(
    ("requests", "silences"),
    [
        ([(0, 29)], []),
        ([(0, 70)], ["30 s", "60 s"]),
        ([(0, 1), (29, 10)], []),  # nothing was asked in between
        ([(0, 1), (29, 35)], ["30 s"]),
        ([(0, 70), (10, 15), (30, 20)], []),  # another one is answered
        ([(0, 50), (20, 60)], ["30 s"] * 2),
    ],
)
def test_silence_is_reported_while_requests_are_in_flight_and_none_is_answered(requests, silences, caplog):
    """`requests`: when each is sent, and how long it takes."""

    class Scripted(Connection):
        async def _answer(self, place, url, headers, content):
            await asyncio.sleep(json.loads(content)["seconds"])
            return 200, {}, b'{"choices": [{}]}'

    async def all_of_them():
        connection = Scripted("http://127.0.0.1:9/v1", "EMPTY", Settings())

        async def one(start, seconds):
            await asyncio.sleep(start)
            assert not isinstance(await connection.post("/chat", {"seconds": seconds}), Failure)

        await asyncio.gather(*(one(*request) for request in requests))
        await connection._session.http.close()

    clock.run(all_of_them())
    assert [record.getMessage().split(" for ")[1][:4] for record in caplog.records] == silences


def test_a_refused_connection_is_reported_with_its_first_attempt(caplog):
    with answering(chats(lambda body: None)) as server:
        judge = OpenAIBackend(MODEL, server.base_url, **FAST)
        judge.read(groups("fine"), LABELS)
    judge.read(groups("good"), LABELS)
    assert [record for record in caplog.records if "connection failed" in record.getMessage()]
