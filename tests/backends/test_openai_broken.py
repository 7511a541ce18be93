"""What a server may send instead of an answer: HTTP that is broken anywhere, and JSON with any value in any place."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import ReadGroup, Sampling, pocket_dir
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.protocols import DecisionQuestion
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai import client as loop
from checklist_rewards.backends.openai.client import Connection
from checklist_rewards.backends.openai.wire import Failure, answer_of
from checklist_rewards.backends.servers import Settings
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.errors import ModelError
from checklist_rewards.judges import Ask
from checklist_rewards.judges.remote import RemoteJudge, RewardServer
from checklist_rewards.scores.score import answer_of as label_of
from tests.backends.answers import LABELS, reads_about, user
from tests.backends.answerserver import LIKELY, MODEL, AnswerServer, listed, raw_server, request_in, serving
from tests.fakes import FakeBackend

ONCE = {"attempts": 1, "pause": 0.001, "failures": 10**6, "timeout": 5.0}
BODY = b'{"choices": [{}], "a": 1}'

# ----- HTTP -----


def response(
    head: str = "Content-Type: application/json", body: bytes = BODY, status: str = "HTTP/1.1 200 OK"
) -> bytes:
    return f"{status}\r\n{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(*chunks: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)


PACKED = gzip.compress(BODY)
NO_HOST = "a" * 70 + ".example"
SOUND = {
    "plain": response(),
    "packed": response("Content-Encoding: gzip", PACKED),
    "in chunks": chunked(b"19\r\n" + BODY + b"\r\n", b"0\r\n\r\n"),
    "after a promise": b"HTTP/1.1 100 Continue\r\n\r\n" + response(),
    "a header in another encoding": response("X-Name: \udcff".encode(errors="surrogateescape").decode("latin-1")),
    "a broken type": response("Content-Type: ;;;=\x7f"),
}
BROKEN = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x50",
    "too short": response().replace(b"Length: 25", b"Length: 99"),
    "two lengths": response("Content-Length: 3"),
    "a negative length": response().replace(b"Length: 25", b"Length: -1"),
    "a length in words": response().replace(b"Length: 25", b"Length: ten"),
    "a chunk without a size": chunked(b"zz\r\n" + BODY + b"\r\n"),
    "a chunk that is cut": chunked(b"ff\r\n" + BODY),
    "no last chunk": chunked(b"19\r\n" + BODY + b"\r\n"),
    **{f"not {name}": response(f"Content-Encoding: {name}") for name in ("gzip", "deflate", "br", "zstd")},
    "half of gzip": response("Content-Encoding: gzip", PACKED[:-9]),
    "a long header": response("X-Long: " + "x" * 10**5),
    "many headers": response("\r\n".join(f"X-{n}: x" for n in range(10**4))),
    "a header without a name": response(": x"),
    "status 99999": response(status="HTTP/1.1 99999 No"),
    "HTTP 9": response(status="HTTP/9.9 200 OK"),
    "no content": response(status="HTTP/1.1 204 No Content"),
    "not modified": response(status="HTTP/1.1 304 Not Modified"),
    "only a promise": b"HTTP/1.1 100 Continue\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n\x00\x01",
    **{
        f"redirected to {to!r}": response(f"Location: {to}", status="HTTP/1.1 307 Moved")
        for to in ("", "/v1/chat", "http://[", "//", "ftp://there", "http://:99999999/", "/\x17", f"http://{NO_HOST}/")
    },
}


@pytest.fixture(scope="module")
def raw() -> Iterator[tuple[Connection, list[bytes]]]:
    """A connection to a server that answers every request with the bytes in the list, and hangs up."""
    reply = [b""]

    async def handle(reader, writer):
        with suppress(OSError, asyncio.IncompleteReadError):
            await request_in(reader)
            writer.write(reply[0])
            await writer.drain()
        writer.close()

    with raw_server(handle) as address:
        yield Connection(f"{address}/v1", "EMPTY", Settings(**ONCE)), reply


def outcome_of(raw: tuple[Connection, list[bytes]], reply: bytes) -> dict | Failure:
    connection, replies = raw
    replies[0] = reply
    return loop.run(connection.post("/chat", {"a": 1}))


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_response_is_its_json(raw, name):
    assert outcome_of(raw, SOUND[name]) == json.loads(BODY)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_http_is_a_failure_of_the_server(raw, name):
    assert isinstance(outcome_of(raw, BROKEN[name]), Failure)


@settings(max_examples=150, deadline=None)
@given(
    sound=st.sampled_from(list(SOUND.values())),
    start=st.integers(0, 200),
    length=st.integers(0, 20),
    other=st.binary(max_size=12),
)
def test_a_response_with_other_bytes_anywhere_is_an_answer_or_a_failure(raw, sound, start, length, other):
    assert isinstance(outcome_of(raw, sound[:start] + other + sound[start + length :]), dict | Failure)


def test_a_fault_of_this_package_is_no_failure_of_the_server(raw, monkeypatch):
    def broken(*arguments, **named):
        raise AttributeError("a fault of ours")

    monkeypatch.setattr("aiohttp.ClientSession.request", broken)
    for request in (raw[0].post("/chat", {}), raw[0].texts("/metrics")):
        with pytest.raises(AttributeError, match="a fault of ours"):
            loop.run(request)


@pytest.mark.parametrize("host", [NO_HOST, "no such host"])
def test_a_host_name_that_cannot_exist_is_a_server_that_does_not_answer(host):
    with pytest.raises(ModelError, match="no OpenAI-compatible server responds at"):
        OpenAIBackend(MODEL, f"http://{host}/v1", **ONCE)


# ----- JSON -----

USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
MESSAGE = {"role": "assistant", "content": [{"type": "text", "text": "yes"}], "reasoning_content": "Well."}
CHAT = {"choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}], "usage": USAGE}
LIKELY_CHAT = {"choices": [{**CHAT["choices"][0], "logprobs": LIKELY}, {"index": 1}], "usage": USAGE}
DROPPED = "dropped"
ERROR = {"error": {"message": "no", "code": 400, "metadata": {"raw": "no"}}, "errors": [{"message": "no"}]}
VALUES = [
    *(None, True, False, 0, -1, 7, 0.5, 1e300, 10**400, float("nan"), float("inf")),
    *("", "yes", "-1", "\ud800", "token_id:3"),
    *([], [[]], [None], ["yes"], [{}, {}], {}, {"type": "text"}, {"token": {}}),
]


def places_in(value: object, above: tuple = ()) -> Iterator[tuple]:
    """The way to each value in JSON, from the outside."""
    yield above
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from places_in(inner, (*above, key))


@st.composite
def changed(draw, *bodies: object) -> object:
    """One of these JSON values with another value in one or two places, or with a place less."""
    body = deepcopy(draw(st.sampled_from(bodies)))
    for _ in range(draw(st.integers(1, 2))):
        *above, last = draw(st.sampled_from([place for place in places_in(body) if place] or [("",)]))
        inner = body
        for key in above:
            inner = inner[key]
        value = deepcopy(draw(st.sampled_from([*VALUES, DROPPED])))
        if value == DROPPED:
            inner.pop(last, None) if isinstance(inner, dict) else inner.pop(last)
        else:
            inner[last] = value
    return body


@pytest.fixture(scope="module")
def odd() -> Iterator[AnswerServer]:
    """A server that answers chats, lists and rows with the JSON in `odd`, and reports the models in `models`."""

    class Odd(AnswerServer):
        odd: object = None
        models: object = None

        def get(self, path):
            return (200, self.models) if path.endswith(("/models", "/health")) else (404, {})

        def post(self, path, body):
            return 200, self.odd

    with serving(Odd()) as server:
        yield server


def engine(server: AnswerServer, **card: object) -> OpenAIBackend:
    server.models = {"object": "list", "data": [{"id": MODEL} | card]}
    return OpenAIBackend(MODEL, server.base_url, **ONCE)


@settings(max_examples=60, deadline=None)
@given(body=changed(CHAT, LIKELY_CHAT, ERROR))
def test_any_value_in_a_chat_is_an_answer_or_a_reason(odd, body):
    backend = engine(odd)
    odd.odd = body
    [answer], usage = backend.read(reads_about("A text"), LABELS)
    assert [answer.logprobs, answer.label, answer.unanswered].count(None) == 2
    assert str(answer.unanswered).encode(), "a reason that logs can write"
    assert usage.prompt_tokens >= 0
    [[reply]] = backend.generate([user("Hi.")], Sampling())
    assert (reply.text is None) == (reply.unanswered is not None)


@pytest.fixture(scope="module")
def of_lists(odd) -> OpenAIBackend:
    """An engine that reads in lists."""
    backend = engine(odd, root=str(pocket_dir()), max_model_len=2048)
    backend._supports_lists = True
    return backend


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_value_in_a_list_is_an_answer_or_a_reason(odd, of_lists, data):
    ids = sorted({*of_lists.tokens.label_ids("yes"), *of_lists.tokens.label_ids("no")})
    odd.odd = data.draw(changed({"choices": listed([0, 1], ids)}))
    answers, _ = of_lists.read([ReadGroup(None, "A text. ", ("Is it?", "Was it?"))], LABELS)
    for answer in answers:
        assert (answer.logprobs is None) == (answer.unanswered is not None)


@settings(max_examples=100, deadline=None)
@given(body=changed({"object": "list", "data": [{"id": MODEL, "max_model_len": 2048, "root": None}, {"id": "other"}]}))
def test_any_value_in_a_list_of_models_is_a_model_or_one_sentence(odd, body):
    odd.models, odd.odd = body, CHAT
    try:
        backend = OpenAIBackend(MODEL, odd.base_url, **ONCE)
    except ModelError as error:
        assert odd.base_url in str(error)
    else:
        [answer], _ = backend.read(reads_about("A text"), LABELS)
        assert answer.label == "yes" or answer.unanswered == "too_long"


QUESTION = DecisionQuestion("predicate", "Is it?").text()
SYSTEM_ONE = {
    "answers": {"q1": {"type": "noul", "noul": 0.8}},
    "diagnostics": {"q1": {"label_mass": 0.97, "argmax_is_label": True}},
    "usage": {"input_tokens": 400, "output_tokens": 8},
    "identity": "1",
}
DECISIONS = {"answers": [{"name": "q1", "type": "predicate", "probability": 0.8}], "usage": SYSTEM_ONE["usage"]}


@settings(max_examples=60, deadline=None)
@given(data=st.data(), protocol=st.sampled_from(["systemone", "decisions"]))
def test_any_value_in_a_decision_is_an_answer_or_a_reason(odd, data, protocol):
    odd.models = {"object": "list", "data": [{"id": MODEL}]}
    odd.odd = data.draw(changed(SYSTEM_ONE if protocol == "systemone" else DECISIONS))
    backend = DecisionsBackend(MODEL, odd.base_url, protocol=protocol, **ONCE)
    [answer], _ = backend.read([ReadGroup(None, "A text.", (QUESTION,))])
    assert (answer.logprobs is None) == (answer.unanswered is not None)


def test_a_text_with_an_unpaired_surrogate_is_read_and_sampled_from(odd, of_lists):
    text = "Cut in an emoji: \ud83d"
    ids = sorted({*of_lists.tokens.label_ids("yes"), *of_lists.tokens.label_ids("no")})
    chats, group = engine(odd), ReadGroup(text, f"{text}. ", (f"{text}?",))
    odd.odd = {"choices": listed([0], ids)}
    assert of_lists.read([group], LABELS)[0][0].unanswered is None
    odd.odd = CHAT
    assert chats.read([group], LABELS)[0][0].label == "yes"
    [[reply]] = chats.generate([user(text)], Sampling())
    assert reply.text == "yes"
    odd.odd = DECISIONS
    decisions = DecisionsBackend(MODEL, odd.base_url, protocol="decisions", **ONCE)
    question = DecisionQuestion("predicate", f"{text}?").text()
    assert decisions.read([ReadGroup(None, text, (question,))])[0][0].unanswered is None


JUDGE = {"judge": "j", "identity": "1"}


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_value_in_a_response_of_a_reward_server_is_a_score_or_a_reason(odd, data, scored):
    refused = {"scores": [None, None], "errors": [{"row": 1, "message": "no"}], **JUDGE}
    odd.models, odd.odd = JUDGE, data.draw(changed(scored, refused))
    judge, item = RemoteJudge(RewardServer(odd.base_url, **ONCE)), ChecklistItem(question="Is it?")
    try:
        verdicts, _ = judge.answer([Ask(item, "A text."), Ask(item, "Another.")])
    except ModelError as error:
        assert "has changed its judge" in str(error)
    else:
        assert len(verdicts) == 2
        assert all(verdict.unanswered or label_of(item, verdict) in ("yes", "no") for verdict in verdicts)


@pytest.fixture(scope="module")
def scored() -> dict:
    """The response of a reward server to two rows, of which it scored one."""
    scorer = ChecklistScorer("m", backend=FakeBackend(lambda p, t: 0.9), store=False)
    score = scorer.score(["Is it?"], "A text.").model_dump(mode="json")
    return {"scores": [score, None], "errors": [{"row": 2, "message": "no"}], **JUDGE}


@pytest.mark.parametrize(
    ("text", "status"), [("[" * 10**5, 200), ("[" * 10**5, 400), ("1" * 10**5, 200), ("\xff", 500), ('"\\ud800"', 200)]
)
def test_json_that_python_does_not_parse_is_a_failure(text, status):
    assert isinstance(answer_of(status, {}, text.encode("latin-1"), "choices"), Failure)
