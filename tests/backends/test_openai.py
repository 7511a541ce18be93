"""A served judge: a real vLLM server gives the in-process numbers; a broken one costs what it breaks, and no more."""

import json
import logging
import os
import re
import time

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import ReadGroup, Sampling, engine_identity, load_backend
from checklist_rewards.backends.base import Written, reply_seed
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.wire import (
    answer_of,
    in_words,
    label_body,
    label_of,
    refused_by,
    reply_body,
    reply_of,
)
from checklist_rewards.errors import ModelError
from checklist_rewards.judges.remote import RewardServer
from tests.backends.answers import largest_difference
from tests.backends.answerserver import SERVED_NAME, connect
from tests.conftest import HANG
from tests.faultserver import RETRY_AFTER

LABELS = ("yes", "no")
ONE = [ReadGroup(None, "Hello there. ", ("Is it short?",))]


def with_server(test):
    return pytest.mark.slow(pytest.mark.vllm(test))


@with_server
def test_a_served_judge_gives_the_same_p_yes(pocket, vllm_server, world_reads):
    served_answers, served = load_backend(SERVED_NAME, base_url=vllm_server).read(world_reads, LABELS)
    answers, here = pocket.read(world_reads, LABELS)
    assert largest_difference(served_answers, answers) < 1e-3
    assert (served.prompt_tokens, served.floor_tokens) == (here.prompt_tokens, here.floor_tokens)


@with_server
def test_a_served_judge_thinks_and_its_labels_are_read_after_the_thoughts(pocket, vllm_server):
    questions, text = ["Does the response end with a question mark?", "Does the response use bullet points?"], "Is it?"
    for settings in ({}, {"thinking_per": "target"}):
        served = ChecklistScorer(SERVED_NAME, base_url=vllm_server, store=False, thinking=12, **settings)
        here = ChecklistScorer("pocket", backend=pocket, store=False, thinking=12, **settings)
        there, ours = (scorer.score(questions, text, "Ask something.") for scorer in (served, here))
        assert [item.reasoning for item in there.items] == [item.reasoning for item in ours.items]
        assert [i.confidence for i in there.items] == pytest.approx([i.confidence for i in ours.items], abs=1e-3)


def test_a_list_of_prompts_ends_in_the_thoughts(broken_server):
    judge = connect(broken_server)
    assert judge.continues
    written = (Written("Two words."), Written("Fine."))
    judge.read([ReadGroup(None, "Hello there. ", ("Is it short?", "Is it kind?"), written=written)], LABELS)
    ends = [judge.tokens.tokenizer.decode(prompt)[-24:] for prompt in broken_server.asked[-1]["prompt"]]
    assert ends[0].endswith("Two words.\n\nAnswer:") and ends[1].endswith("Fine.\n\nAnswer:")


@pytest.mark.parametrize(
    "card", [{}, {"root": "/no/such/model", "max_model_len": 2048}], ids=["not vLLM", "no tokenizer"]
)
def test_a_chat_server_is_refused_before_a_thought_is_asked_for(broken_server, card):
    broken_server.card = card
    judge = connect(broken_server)
    thinks = ChecklistScorer(SERVED_NAME, backend=judge, store=False, thinking=8)
    with pytest.raises(ModelError, match="a chat server cannot. Use capture_reasoning=True with it"):
        thinks.score(["Is it short?"], "Hi.")
    with pytest.raises(ModelError, match="a chat server cannot"):
        judge.read([ReadGroup(None, "Hello there. ", ("Is it short?",), written=(Written("Two words."),))], LABELS)
    assert broken_server.asked == []


def test_a_thought_that_a_server_returns_apart_is_kept():
    choice = {"message": {"content": None, "reasoning_content": "Two wo"}, "finish_reason": "length"}
    assert (reply_of(choice).thought, reply_of(choice).unanswered) == ("Two wo", "cut_off")
    choice = {"message": {"content": "yes", "reasoning": "Two words."}, "finish_reason": "stop"}
    assert (reply_of(choice).thought, reply_of(choice).text) == ("Two words.", "yes")
    assert reply_of({"message": {"content": "yes"}, "finish_reason": "stop"}).thought is None


@with_server
def test_more_reads_than_fit_one_request_come_back_in_order(pocket, vllm_server):
    groups = [ReadGroup(None, f"{n} words. ", tuple(f"Is it {k}?" for k in range(10))) for n in range(60)]
    served, _ = load_backend(SERVED_NAME, base_url=vllm_server).read(groups, LABELS)
    assert largest_difference(served, pocket.read(groups, LABELS)[0]) < 1e-3


@with_server
def test_what_does_not_fit_is_too_long_before_it_is_sent(vllm_server):
    judge = load_backend(SERVED_NAME, base_url=vllm_server)
    [long, short], _ = judge.read([ReadGroup(None, "word " * 3000, ("Is it?",)), *ONE], LABELS)
    assert (long.unanswered, short.unanswered) == ("too_long", None)
    [[reply]] = judge.generate([[{"role": "user", "content": "word " * 3000}]], Sampling())
    assert (reply.text, reply.unanswered) == (None, "too_long")


@with_server
def test_greedy_replies_are_the_transformers_engines(pocket, vllm_server):
    prompts = [
        [{"role": "user", "content": text}] for text in ("Write something.", "Write one sentence. Avoid digits.")
    ]
    served = load_backend(SERVED_NAME, base_url=vllm_server)
    [theirs, ours] = [engine.generate(prompts, Sampling(max_tokens=40)) for engine in (served, pocket)]
    assert [reply.text for [reply] in theirs] == [reply.text for [reply] in ours]
    [replies] = served.generate(prompts[:1], Sampling(max_tokens=9000, temperature=1.0, n=3, seed=1))
    assert len({reply.text for reply in replies}) > 1


@with_server
def test_a_reply_follows_the_schema(vllm_server):
    schema = json.dumps({"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]})
    prompts = [[{"role": "user", "content": text}] for text in ("Write something.", "Is it? Reply in JSON.")]
    replies = load_backend(SERVED_NAME, base_url=vllm_server).generate(prompts, Sampling(max_tokens=60, schema=schema))
    assert all(json.loads(reply.text)["answer"] in ("yes", "no") for [reply] in replies)
    assert all(reply.prompt_tokens > 0 and reply.completion_tokens > 0 for [reply] in replies)


@with_server
def test_a_server_of_another_model_is_refused_by_name(vllm_server):
    with pytest.raises(ModelError, match=r"serves \['judge'\], not 'llama'"):
        load_backend("llama", base_url=vllm_server)


def test_a_rate_limit_is_told_once_with_the_setting_that_bounds_the_wait(broken_server, caplog):
    broken_server.statuses = [429, 429, 429, 200]
    connect(broken_server).read(ONE, LABELS)
    [said] = [record.getMessage() for record in caplog.records if "limits the rate" in record.getMessage()]
    assert "repeated for 300 s" in said and "`deadline`" in said


def test_a_lasting_failure_leaves_its_reads_unanswered_after_bounded_retries(broken_server):
    broken_server.statuses = [500]
    [read], _ = connect(broken_server).read(ONE, LABELS)
    assert read.logprobs is None and read.unanswered == "backend_error: status 500: status 500"
    assert len(broken_server.asked) == 5


def test_a_failed_request_costs_no_other_request(broken_server):
    broken_server.fails = lambda asked: len(asked["prompt"]) == 256
    groups = [ReadGroup(None, "Hello. ", tuple(f"Is it {n}?" for n in range(300)))]
    reads, _ = connect(broken_server).read(groups, LABELS)
    assert [read.unanswered is None for read in reads] == [False] * 256 + [True] * 44


def test_reads_that_a_list_leaves_out_or_gives_twice_are_asked_once_more(broken_server):
    groups = [ReadGroup(None, "Hello. ", tuple(f"Is it {n}?" for n in range(6)))]
    spoilt = iter([lambda c: [c[0], c[0], *c[1:4]], lambda c: c])
    broken_server.spoil = lambda choices: next(spoilt)(choices)
    reads, _ = connect(broken_server).read(groups, LABELS)
    assert all(read.unanswered is None for read in reads)
    assert [len(asked["prompt"]) for asked in broken_server.asked] == [1, 6, 3]
    broken_server.spoil = lambda choices: choices[2:]
    reads, _ = connect(broken_server, attempts=2).read(groups, LABELS)
    assert sorted(read.unanswered or "" for read in reads) == [""] * 4 + ["empty_choices"] * 2


def test_a_server_that_names_no_tokens_is_read_by_chat(broken_server):
    broken_server.names_tokens = False
    judge = connect(broken_server)
    for _ in range(2):
        [read], _ = judge.read(ONE, LABELS)
        assert read.logprobs == (-0.5, -1.5)
    assert ["prompt" in asked for asked in broken_server.asked] == [True, False, False]  # tried once


def test_without_a_tokenizer_reads_are_chats(broken_server, caplog):
    broken_server.card = {"root": "/nowhere", "max_model_len": 2048}
    with caplog.at_level(logging.WARNING):
        judge = connect(broken_server)
    assert "cannot be loaded here, so each read is a separate chat request" in caplog.text
    [read], _ = judge.read(ONE, LABELS)
    assert read.logprobs == (-0.5, -1.5)
    [asked] = broken_server.asked
    assert (asked["max_tokens"], asked["top_logprobs"], asked["temperature"]) == (1, 20, 0)


def test_requests_that_the_server_refuses_from_the_first_are_an_error(chat_server):
    chat_server.statuses = [400]
    with pytest.raises(ModelError, match="rejected a request: status 400"):
        connect(chat_server).read([ReadGroup(None, "Hello.", ("Is it?",) * 100)], LABELS)
    # as it is, without the setting of the template, without the neutral sampling parameters, with fewer likely tokens,
    # without log-probabilities
    assert len(chat_server.asked) == 5 * 8


def test_a_first_request_that_takes_long_keeps_no_other_waiting(broken_server, monkeypatch):
    monkeypatch.setattr("checklist_rewards.backends.openai.backend._HEAD_START", 0.05)
    broken_server.card = {}
    broken_server.answers = lambda server: server.most == 2  # the first one only once the second one is there
    reads, _ = connect(broken_server, attempts=1).read([ReadGroup(None, "Hello. ", ("Is it?", "Was it?"))], LABELS)
    assert [read.unanswered for read in reads] == [None, None]


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_that_does_not_list_its_models_is_used_as_it_is(broken_server, status):
    broken_server.listing = status
    [read], _ = connect(broken_server).read([ReadGroup(None, "Hello. ", ("Is it short?",))], ("yes", "no"))
    assert read.logprobs == (-0.5, -1.5)


@pytest.mark.parametrize("status", [401, 402, 404])
def test_what_no_retry_can_mend_stops_at_once(chat_server, status):
    chat_server.statuses = [status]
    with pytest.raises(ModelError, match=f"rejected a request: status {status}") as raised:
        connect(chat_server).generate([[{"role": "user", "content": "Hello."}]] * 50, Sampling())
    assert ("check the model and base_url, which usually ends with /v1" in str(raised.value)) is (status == 404)
    assert len(chat_server.asked) == 1


def test_a_request_ends_at_its_deadline(broken_server):
    broken_server.card, broken_server.answers = {}, lambda server: False
    judge = connect(broken_server, timeout=0.2, deadline=0.3, attempts=99)
    [read], _ = judge.read(ONE, LABELS)
    assert read.unanswered == "timeout" and len(broken_server.asked) <= 2
    broken_server.answers = lambda server: True  # lets go of its threads
    with broken_server.changed:
        broken_server.changed.notify_all()


def test_the_pause_that_a_server_asks_for_is_kept_and_costs_no_attempt(fault_server):
    judge = OpenAIBackend("429", fault_server, attempts=1, pause=2 * HANG, deadline=HANG)
    begins = time.monotonic()
    [read], _ = judge.read([ReadGroup(None, "A patient text. ", ("Is it fine (yes)?",))], LABELS)
    assert read.unanswered is None  # a pause of its own would have gone beyond the deadline
    assert time.monotonic() - begins >= float(RETRY_AFTER)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_more_requests_at_once_than_allowed(broken_server, concurrency, monkeypatch):
    monkeypatch.setattr("checklist_rewards.backends.openai.backend._HEAD_START", 0.05)
    broken_server.card, broken_server.answers = {}, lambda server: server.most >= concurrency
    prompts = [[{"role": "user", "content": f"{n}"}] for n in range(10)]
    connect(broken_server, concurrency=concurrency).generate(prompts, Sampling())
    assert broken_server.most == concurrency


def test_a_forked_child_and_its_parent_both_go_on(fault_server):
    judge = OpenAIBackend("valid", fault_server, timeout=HANG, attempts=1)
    assert judge.read(ONE, LABELS)[0][0].unanswered is None
    child = os.fork()
    if child == 0:
        os._exit(0 if judge.read(ONE, LABELS)[0][0].unanswered is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert judge.read(ONE, LABELS)[0][0].unanswered is None


@pytest.mark.parametrize("name", ["concurrency", "timeout", "attempts", "requests_per_minute"])
def test_a_limit_that_allows_nothing_is_refused(name):
    with pytest.raises(ModelError, match=f"{name}=0 is not allowed for a server"):
        OpenAIBackend(SERVED_NAME, "http://127.0.0.1:9/v1", **{name: 0})


@pytest.mark.parametrize(
    ("body", "why"), [(b"<html>", "its response is not JSON"), (b"{}", "its response is not one of this API")]
)
def test_a_server_of_something_else_is_refused_in_words(body, why):
    assert in_words(answer_of(200, {}, body, "data")) == why


def test_no_server_is_one_sentence():
    with pytest.raises(
        ModelError, match=r"no OpenAI-compatible server responds at http://127.0.0.1:9/v1 .*vllm serve"
    ):
        OpenAIBackend(SERVED_NAME, "http://127.0.0.1:9/v1", pause=0.01)


def test_a_model_that_is_not_there_is_named_with_some_that_are(fault_server):
    with pytest.raises(ModelError, match=r"serves \['valid', .* and \d+ more, not 'llama'"):
        OpenAIBackend("llama", fault_server)


def test_known_servers_go_by_name_and_want_their_key(monkeypatch):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(ModelError, match="https://openrouter.ai/api/v1 requires an API key: set OPENROUTER_API_KEY"):
        OpenAIBackend("org/model", "openrouter")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert engine_identity("gpt", "openai") == engine_identity("gpt", base_url="https://api.openai.com/v1/")
    for address in ("localhost", "http://", "http://[::1:8000/v1", "http://[x]/v1"):
        with pytest.raises(ModelError, match=re.escape(f"base_url='{address}' is not a URL")):
            engine_identity("gpt", base_url=address)


def test_fewer_replies_than_asked_for_are_asked_for_again(chat_server):
    [replies] = connect(chat_server).generate([[{"role": "user", "content": "?"}]], Sampling(temperature=1.0, n=3))
    assert [reply.text for reply in replies] == ["yes"] * 3
    assert [asked.get("n", 1) for asked in chat_server.asked] == [3, 2, 1]
    first = reply_seed(0, [{"role": "user", "content": "?"}])
    assert [asked["seed"] for asked in chat_server.asked] == [first, first + 1, first + 2]


@pytest.mark.parametrize("model", ["o1", "o3-mini", "openai/o4-mini", "gpt-5", "gpt-5.1-mini"])
def test_reasoning_models_sample_their_own_way(model):
    chat = [{"role": "user", "content": "?"}]
    body = reply_body(model, chat, Sampling(max_tokens=100, temperature=0.7), 1, 10**6, refused_by(model))
    assert body.keys() == {"model", "messages", "max_completion_tokens", "seed"}
    assert "logprobs" not in label_body(model, chat, refused_by(model))


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4o-mini", "org/o1x", "gpt-5-chat-latest", "llama-o1s"])
def test_other_models_do_not(model):
    assert refused_by(model) == frozenset()


@pytest.mark.parametrize(
    "text, answer",
    [
        ("Yes", "yes"),
        (" yes.", "yes"),
        ("**No**", "no"),
        ("No, it does not.", "no"),
        ("YES\n\nBecause", "yes"),
        ("<think>no, no</think>Yes", "yes"),
        ("N/A", None),
        ("yes or no", None),
        ("Not yes", None),
        ("Nope", None),
        ("The answer is yes", None),
    ],
)
def test_a_word_is_an_answer_only_where_it_stands_alone(text, answer):
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    read = label_of(choice, LABELS)
    assert (read.label, read.unanswered, read.logprobs) == (answer, None if answer else "off_label", None)


def test_a_served_model_is_known_by_name_and_address():
    assert engine_identity("judge", base_url="http://a:1/v1") == engine_identity("judge", base_url="http://a:1/v1/")
    assert engine_identity("judge", base_url="http://a:1/v1") != engine_identity("judge", base_url="http://b:1/v1")


@pytest.mark.parametrize("client", [lambda url: OpenAIBackend("model", url), RewardServer])
def test_an_address_with_a_login_is_refused_without_its_password(client):
    with pytest.raises(ModelError, match=r"'http://\*\*\*@127.0.0.1:9/v1' has a login") as refused:
        client("http://me:SECRET@127.0.0.1:9/v1")
    assert "SECRET" not in repr(refused.value)
