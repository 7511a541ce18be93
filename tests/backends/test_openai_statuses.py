"""Failures of a server: what a response means, which cost one request, which end the run, which pass, and silence."""

import asyncio
import json
import threading
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import ReadGroup, Sampling, is_transient, pocket_dir
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.protocols import DecisionQuestion
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.client import Connection
from checklist_rewards.backends.openai.wire import Failure, answer_of
from checklist_rewards.backends.servers import SERVERS, Settings
from checklist_rewards.backends.tokens import load_chat_tokenizer
from checklist_rewards.errors import ModelError
from checklist_rewards.judges.remote import RewardServer
from tests import clock
from tests.backends.answers import LABELS, reads_about, user
from tests.backends.answerserver import LIKELY, MODEL, SETTINGS, answering, chat, listed, refusal
from tests.fakes import FakeBackend

BAD = "DROP TABLE"


# ----- one response -----


def meaning(status, body, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer_of(status, headers, content, "choices")


def error(message):
    return {"error": {"message": message}}


@pytest.mark.parametrize(
    ("status", "body", "reason", "flags"),
    [
        (200, b"<html>Bad gateway</html>", "not_json", "retry down"),
        (200, {"error": {"message": "upstream", "code": 502}}, "error_body: upstream", "retry down"),
        (200, {"error": {"message": "no such model", "code": 404}}, "error_body: no such model", "down"),
        (
            200,
            {"choices": [], "error": {"code": 500}},
            'error_body: {"choices": [], "error": {"code": 500}}',
            "retry down",
        ),
        (200, ["yes"], "error_body", "retry down"),
        (302, b"", "backend_error: status 302: no message", ""),
        (400, error("This model's maximum context length is 2048 tokens."), "too_long", ""),
        (400, {"message": "the model's context length is only 2048 tokens"}, "too_long", ""),
        (400, error("the request exceeds the available context size"), "too_long", ""),
        (400, error("prompt is too long: 9 tokens"), "too_long", ""),
        (400, error("The response was filtered by the content management policy"), "refused", ""),
        (400, error("Bad seed"), "backend_error: status 400: Bad seed", ""),
        (401, error("Wrong key"), "backend_error: status 401: Wrong key", "fatal"),
        (400, error("Content Exists Risk"), "refused", ""),
        (400, error("Please reduce the length of the messages or completion."), "too_long", ""),
        (400, [error("API key not valid.")], "backend_error: status 400: API key not valid.", "fatal"),
        (403, error("Your input was flagged"), "refused", ""),
        (409, {"detail": "busy"}, "backend_error: status 409: busy", "retry"),
        (413, b"", "too_long", ""),
        (422, error("`inputs` tokens + `max_new_tokens` must be <= 9. Given: 9 `inputs` tokens"), "too_long", ""),
        (429, {"error": "slow down"}, "backend_error: status 429: slow down", "retry"),
        (
            429,
            {"error": {"message": "Your quota", "code": "insufficient_quota"}},
            "backend_error: status 429: Your quota",
            "retry fatal",
        ),
        (500, {}, "backend_error: status 500: {}", "retry down"),
        (503, b"<html>", "backend_error: status 503: <html>", "retry down"),
    ],
)
def test_a_failure_has_a_reason_and_says_what_may_help(status, body, reason, flags):
    """`down`: the server breaks, and does not only refuse. `fatal`: every other request awaits the same."""
    failure = meaning(status, body)
    assert failure.unanswered == reason
    assert " ".join(flag for flag in ("retry", "down", "fatal") if getattr(failure, flag)) == flags


def test_what_passes_is_repeated_and_what_lasts_is_not():
    passing = [meaning(status, {}) for status in (408, 409, 425, 429, 500, 502, 503, 504, 529)]
    assert all(failure.retry and is_transient(failure.unanswered) for failure in passing)
    assert all(
        meaning(status, {}).fatal and not meaning(status, {}).retry for status in (401, 402, 403, 404, 405, 501)
    )


def test_a_server_may_ask_for_a_pause_in_seconds_or_by_date():
    assert meaning(429, {}).wait is None
    assert meaning(429, {}, **{"retry-after": "3"}).wait == 3
    assert meaning(503, {}, **{"retry-after-ms": "250"}).wait == 0.25
    for odd in ("soon", "nan", f"Mon, 01 Jan {9**30} 00:00:00 GMT"):
        assert meaning(429, {}, **{"retry-after": odd}).wait is None
    date = format_datetime(datetime.now(UTC) + timedelta(days=2), usegmt=True)
    assert 86_400 < meaning(429, {}, **{"retry-after": date}).wait <= 2 * 86_400
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=30), usegmt=True)
    assert meaning(429, {}, **{"retry-after": past}).wait == 0


# ----- refused by a rule, at any place of a run -----


def chats(fails):
    """A server of chats, which fails with the status that `fails` returns for a request, if it returns one."""

    def respond(path, body):
        status = fails(body)
        return refusal("Forbidden by a rule.", status) if status else chat("yes", LIKELY)

    return respond


def for_text(status):
    return lambda body: status if BAD in str(body) else None


def reads_of(respond, *texts, card=None, **settings):
    with answering(respond, card) as server:
        judge = OpenAIBackend(MODEL, server.base_url, **SETTINGS | settings)
        return judge.read(reads_about(*texts), LABELS)[0]


def answered_chats(status):
    return [read.logprobs is not None for read in reads_of(chats(for_text(status)), "fine", BAD, "good")]


def answered_lists(status):
    decode = load_chat_tokenizer(str(pocket_dir())).tokenizer.decode

    def respond(path, body):
        if any(BAD in decode(prompt) for prompt in body["prompt"]):
            return refusal("Forbidden by a rule.", status)
        return 200, {"choices": listed(body["prompt"], body["logprob_token_ids"])}

    card = {"root": str(pocket_dir()), "max_model_len": 2048}
    return [read.logprobs is not None for read in reads_of(respond, "fine", BAD, "good", card=card)]


def answered_decisions(status):
    def respond(path, body):
        if BAD in str(body):
            return refusal("Forbidden by a rule.", status)
        answers = {name: {"type": "noul", "noul": 0.9} for name in body["questions"]}
        return 200, {"answers": answers, "diagnostics": {}}

    tails = [DecisionQuestion("predicate", text).text() for text in ("Is it?", BAD, "Will it?")]
    with answering(respond) as server:
        judge = DecisionsBackend(MODEL, server.base_url, protocol="systemone", **SETTINGS)
        judge.read([ReadGroup(None, "fine", tuple(tails[:1]))])
        reads, _ = judge.read([ReadGroup(None, "A text.", tuple(tails))])
    return [read.logprobs is not None for read in reads]


def answered_rows(status):
    """Those of a reward server."""
    here = ChecklistScorer("m", backend=FakeBackend(lambda p, t: 0.9), store=False)

    def respond(path, body):
        if BAD in str(body):
            return refusal("Forbidden by a rule.", status)
        samples = [Sample(row["checklist"], row["target"]) for row in body["samples"]]
        scores = [score.model_dump(mode="json") for score in here.score_batch(samples)]
        return 200, {"scores": scores, "judge": "m", "identity": "1"}

    with answering(respond) as server:
        client = RewardServer(server.base_url, **SETTINGS)
        client._health = {"judge": "m", "identity": "1"}
        rows = [{"checklist": ["Is it?"], "target": text} for text in ("fine", BAD, "good")]
        client.score(rows[:1])
        outcomes, _ = client.score(rows)
    return [getattr(outcome, "primary_score", None) == 0.9 for outcome in outcomes]


@pytest.mark.parametrize("status", [400, 403, 413, 422])
@pytest.mark.parametrize("answered", [answered_chats, answered_lists, answered_decisions, answered_rows])
def test_after_an_accepted_request_a_refusal_costs_what_it_is_about(answered, status):
    assert answered(status) == [True, False, True]


FIRST, LATER = [BAD] * 50, ["fine", BAD]


@pytest.mark.parametrize(
    ("status", "texts"), [(403, FIRST), *((status, texts) for status in (401, 402, 404) for texts in (FIRST, LATER))]
)
def test_what_concerns_every_request_ends_the_run_at_once(status, texts):
    """A 403 to the first request is a wrong key."""
    with answering(chats(for_text(status))) as server:
        judge = OpenAIBackend(MODEL, server.base_url, **SETTINGS)
        for ask in (
            lambda: judge.read(reads_about(*texts), LABELS),
            lambda: judge.generate([user(text) for text in texts], Sampling()),
        ):
            server.asked.clear()
            with pytest.raises(ModelError, match=f"rejected a request: status {status}") as raised:
                ask()
            assert ("usually ends with /v1" in str(raised.value)) == (status == 404)
            assert len(server.asked) <= len(set(texts))


@pytest.mark.parametrize("hosted", [False, True])
def test_an_account_without_money_ends_the_run_and_one_that_is_slowed_down_waits(hosted, monkeypatch):
    body = {"error": {"message": "Your quota is exceeded.", "code": "insufficient_quota"}}
    with answering(lambda *_: (429, body)) as server:
        with pytest.raises(ModelError, match="rejected a request: status 429: Your quota"):
            OpenAIBackend(MODEL, server.base_url, **SETTINGS).read(reads_about(*FIRST), LABELS)
        assert len(server.asked) == 1
        if hosted:  # as OpenAI, where it always means the account
            monkeypatch.setitem(SERVERS, "openai", (server.base_url, "OPENAI_API_KEY"))
        answers = iter([chat("yes", LIKELY), (429, body), chat("yes", LIKELY)])
        server.respond = lambda *_: next(answers)
        judge = OpenAIBackend(MODEL, server.base_url, key="key", **SETTINGS)
        with pytest.raises(ModelError, match="Your quota") if hosted else nullcontext():
            assert all(read.logprobs is not None for read in judge.read(reads_about("fine", "good"), LABELS)[0])


# ----- a server that is silent -----


def test_a_server_that_is_down_is_reported_at_once_with_what_is_waited_for(caplog):
    down = threading.Event()
    with answering(chats(lambda body: 500 if down.is_set() else None)) as server:
        judge = OpenAIBackend(MODEL, server.base_url, failures=2, patience=0.3, pause=0.01)
        judge.read(reads_about("fine"), LABELS)
        down.set()
        judge.read(reads_about(*map(str, range(20))), LABELS)
    [said, *_] = [record.getMessage() for record in caplog.records if "is down" in record.message]
    assert server.base_url in said and "status 500" in said
    assert "no response for 0 s. Requests fail when there is none for 0.3 s (engine setting `patience`)" in said


@pytest.mark.parametrize(
    ("requests", "silences"),
    [
        ([(0, 70)], ["30 s", "60 s"]),
        ([(0, 1), (0, 70), (0, 70)], ["30 s", "60 s"]),  # the server broke after its first answer
        ([(0, 1), (29, 35)], ["30 s"]),  # nothing was asked in between
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
        judge = OpenAIBackend(MODEL, server.base_url, **SETTINGS)
        judge.read(reads_about("fine"), LABELS)
    judge.read(reads_about("good"), LABELS)
    assert [record for record in caplog.records if "connection failed" in record.getMessage()]
