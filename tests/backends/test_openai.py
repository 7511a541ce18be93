"""Reads of a served judge: in lists or in chats, what a broken answer costs, what is computed, and who is refused."""

import logging
import os
import re
import shutil
import threading

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Answer, ReadGroup, Sampling, is_kept, pocket_dir
from checklist_rewards.backends.base import Written
from checklist_rewards.backends.openai import OpenAIBackend, client
from checklist_rewards.backends.openai.served import Counts, _card, counts_in
from checklist_rewards.backends.openai.wire import answer_of, in_words
from checklist_rewards.errors import ModelError
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Receipt
from checklist_rewards.judges.remote import RewardServer
from tests.backends.answers import LABELS, ONE, user
from tests.backends.answerserver import SERVED_NAME, answering, connect, refusal
from tests.conftest import HANG

TWO = [ReadGroup(None, "Hello there. ", ("Is it short?", "Is it long?"))]
BY_CHAT = [Answer((-0.5, -1.5), exact=False)]
UNUSED = "http://127.0.0.1:9/v1"


# ----- lists or chats -----


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


def test_a_failed_request_costs_no_other_request(broken_server):
    broken_server.fails = lambda asked: len(asked["prompt"]) == 256
    groups = [ReadGroup(None, "Hello. ", tuple(f"Is it {n}?" for n in range(300)))]
    reads, _ = connect(broken_server).read(groups, LABELS)
    assert [read.unanswered is None for read in reads] == [False] * 256 + [True] * 44


def test_a_server_that_names_no_tokens_is_read_by_chat(broken_server):
    broken_server.names_tokens = False
    judge = connect(broken_server)
    assert [judge.read(ONE, LABELS)[0] for _ in range(2)] == [BY_CHAT] * 2
    assert ["prompt" in asked for asked in broken_server.asked] == [True, False, False]  # tried once


def test_without_a_tokenizer_reads_are_chats(broken_server, caplog, tmp_path):
    for file in ("config.json", "tokenizer_config.json"):
        shutil.copy(pocket_dir() / file, tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "none of these"}}')
    broken_server.card |= {"root": str(tmp_path)}
    with caplog.at_level(logging.WARNING):
        judge = connect(broken_server)
    assert "cannot be loaded here, so each read is a separate chat request" in caplog.text
    assert judge.read(ONE, LABELS)[0] == BY_CHAT
    [asked] = broken_server.asked
    assert (asked["max_tokens"], asked["top_logprobs"], asked["temperature"]) == (1, 20, 0)


@pytest.mark.parametrize("listing", [{"listing": 404}, {"card": None}, {"card": {"max_model_len": None}}])
def test_a_server_that_does_not_list_its_models_is_used_as_it_is(broken_server, listing):
    vars(broken_server).update(listing)
    assert connect(broken_server).read(ONE, LABELS)[0] == BY_CHAT


def test_an_answer_out_of_the_likely_tokens_is_never_given_out_as_an_exact_one(broken_server, tmp_path):
    store = Store(tmp_path / "store.sqlite")

    def methods(*questions):
        scorer = ChecklistScorer(SERVED_NAME, backend=connect(broken_server), store=store, min_answered=0)
        return [item.method for item in scorer.score(list(questions), "A text.").items]

    broken_server.card |= {"root": "/nowhere"}
    assert methods("Is it short?") == ["top_logprobs"]
    broken_server.card |= {"root": str(pocket_dir())}
    assert methods("Is it short?", "Is it long?") == ["top_logprobs", "logprobs"]


def test_a_rate_limit_is_told_once_with_the_setting_that_bounds_the_wait(broken_server, caplog):
    broken_server.statuses = [429, 429, 429, 200]
    connect(broken_server).read(ONE, LABELS)
    [said] = [record.getMessage() for record in caplog.records if "limits the rate" in record.getMessage()]
    assert "repeated for 300 s" in said and "`deadline`" in said


# ----- failures, deadlines and limits -----


def test_a_lasting_failure_leaves_its_reads_unanswered_after_bounded_retries(broken_server):
    broken_server.statuses = [500]
    [read], _ = connect(broken_server).read(ONE, LABELS)
    assert read.logprobs is None and read.unanswered == "backend_error: status 500: status 500"
    assert len(broken_server.asked) == 5


def test_requests_that_the_server_refuses_from_the_first_are_an_error(chat_server):
    chat_server.statuses = [400]
    with pytest.raises(ModelError, match="rejected a request: status 400"):
        connect(chat_server).read([ReadGroup(None, "Hello.", ("Is it?",) * 100)], LABELS)
    # as it is, without the setting of the template, without the neutral sampling parameters, with fewer likely tokens,
    # without log-probabilities
    assert len(chat_server.asked) == 5 * 8


def test_what_a_server_calls_too_long_is_not_stored(chat_server):
    chat_server.refuses = lambda asked: "This model's maximum context length is 10 tokens."
    judge = connect(chat_server)
    [read], _ = judge.read(ONE, LABELS)
    [[reply]] = judge.generate([user("?")], Sampling())
    assert read.unanswered == reply.unanswered == "too_long" and not is_kept(read) and not is_kept(reply)


def test_a_first_request_that_takes_long_keeps_no_other_waiting(chat_server, monkeypatch):
    monkeypatch.setattr("checklist_rewards.backends.openai.backend._HEAD_START", 0.05)
    chat_server.answers = lambda server: server.most == 2  # the first one only once the second one is there
    reads, _ = connect(chat_server, attempts=1).read(TWO, LABELS)
    assert [read.unanswered for read in reads] == [None, None]


def test_a_forked_child_and_its_parent_both_go_on(fault_server):
    judge = OpenAIBackend("valid", fault_server, timeout=HANG, attempts=1)
    assert judge.read(ONE, LABELS)[0][0].unanswered is None
    child = os.fork()
    if child == 0:
        os._exit(0 if judge.read(ONE, LABELS)[0][0].unanswered is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert judge.read(ONE, LABELS)[0][0].unanswered is None


# ----- which server -----


@pytest.mark.parametrize(
    ("model", "address", "settings", "error"),
    [
        *((SERVED_NAME, UNUSED, {name: 0}, f"{name}=0 is not allowed for a server")
          for name in ("concurrency", "timeout", "attempts", "requests_per_minute")),
        (SERVED_NAME, UNUSED, {"pause": 0.01}, f"responds at {UNUSED} .*; check base_url, .* /v1, .*vllm serve"),
        ("org/model", "openrouter", {}, "https://openrouter.ai/api/v1 requires an API key: set OPENROUTER_API_KEY"),
        *(("gpt", address, {}, re.escape(f"base_url='{address}' is not a URL"))
          for address in ("localhost", "http://", "http://[::1:8000/v1", "http://[x]/v1")),
    ],
)  # fmt: skip
def test_a_server_that_cannot_be_used_is_one_sentence(monkeypatch, model, address, settings, error):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(ModelError, match=error):
        OpenAIBackend(model, address, **settings)


def test_a_model_that_is_not_there_is_named_with_some_that_are(fault_server):
    with pytest.raises(ModelError, match=r"serves \['valid', .* and \d+ more, not 'llama'"):
        OpenAIBackend("llama", fault_server)


def test_a_public_server_may_answer_models_that_it_does_not_list(caplog):
    listed = {"data": [{"id": "a/m"}, {"id": "b/m"}]}
    assert _card(listed, "a/m:nitro", "https://openrouter.ai/api/v1") == {}
    assert "does not list 'a/m:nitro' among its 2 models" in caplog.text
    for alone, address in [(listed, "http://localhost:1234/v1"), ({"data": [{"id": "m"}]}, "https://far.example/v1")]:
        with pytest.raises(ModelError, match="not 'a/m:nitro'"):  # such a server ignores the name
            _card(alone, "a/m:nitro", address)


def test_a_key_for_one_model_only_is_accepted(broken_server, monkeypatch):
    missing = (403, {"error": {"message": "Missing scopes: api.model.read"}})
    monkeypatch.setattr(broken_server, "get", lambda path: missing)
    assert connect(broken_server).read(ONE, LABELS)[0] == BY_CHAT


def test_a_list_of_models_may_be_bare(broken_server, monkeypatch):
    monkeypatch.setattr(broken_server, "get", lambda path: (200, [{"id": SERVED_NAME}]))
    assert connect(broken_server).read(ONE, LABELS)[0] == BY_CHAT


def test_an_error_that_quotes_the_key_is_shown_without_it():
    with answering(lambda path, body: refusal("Received=my-own-key, expected sk-", 401)) as server:
        judge = OpenAIBackend(SERVED_NAME, server.base_url, key="my-own-key")
        with pytest.raises(ModelError, match=r"Received=\*\*\*, expected sk-"):
            judge.read(ONE, LABELS)


@pytest.mark.parametrize("client", [lambda url: OpenAIBackend("model", url), RewardServer])
def test_an_address_with_a_login_is_refused_without_its_password(client):
    with pytest.raises(ModelError, match=r"'http://\*\*\*@127.0.0.1:9/v1' has a login") as refused:
        client("http://me:SECRET@127.0.0.1:9/v1")
    assert "SECRET" not in repr(refused.value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "is not JSON"),
        (b"{}", "is not one of this API"),
        (b'{"error": "Unexpected endpoint."}', "is not one of this API: Unexpected endpoint."),
    ],
)
def test_a_server_of_something_else_is_refused_in_words(body, why):
    assert in_words(answer_of(200, {}, body, "data")) == f"its response {why}"


# ----- what a server computed: by its responses, by its counters, or not known -----

METRICS = """# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
vllm:prefix_cache_queries_total{{engine="0",model_name="judge"}} {}
vllm:prefix_cache_queries_created{{engine="0",model_name="judge"}} 1.79530477632568e+09
vllm:prefix_cache_hits_total{{engine="0",model_name="judge"}} {}
vllm:external_prefix_cache_hits_total{{engine="0",model_name="judge"}} 77.0
"""


def counting(server, per_token=1.0, hits=0.5, others=0):
    """Has the server count the tokens of the lists it was asked, and half of them as hits."""

    def metrics():
        asked = sum(len(prompt) for body in server.asked for prompt in body.get("prompt", ()))
        return METRICS.format(asked * per_token + others * len(server.asked), int(asked * hits))

    server.metrics = metrics


def test_the_counters_of_all_engines_are_added_up():
    text = METRICS.format("1.7e+02", 30) + METRICS.format(8, 2).replace('engine="0"', 'engine="1"')
    assert counts_in(text) == Counts(178, 32)
    assert counts_in("vllm:num_requests_running 1.0") is None


def test_computed_tokens_are_those_that_were_not_in_the_cache_also_after_a_slow_answer(broken_server, monkeypatch):
    monkeypatch.setattr(client, "_TEXT_SECONDS", 0.2)
    connect(broken_server).read(TWO, LABELS)  # the first one tries a prompt of its own
    counting(broken_server)
    judge = connect(broken_server)
    _, result = judge.read(TWO, LABELS)
    hits = result.prompt_tokens - result.computed_tokens
    assert result.prompt_tokens > 0 and hits == pytest.approx(result.prompt_tokens / 2, abs=1)
    quick, late = broken_server.metrics, threading.Event()
    broken_server.metrics = lambda: late.wait(HANG) and quick()
    assert judge.read(TWO, LABELS)[1].computed_tokens is None
    late.set()
    assert judge.read(TWO, LABELS)[1].computed_tokens is not None


@pytest.mark.parametrize("counters", [{"others": 5}, {"per_token": 0.0}], ids=["another client", "no cache"])
def test_what_cannot_be_told_is_not_known(broken_server, counters):
    counting(broken_server, **counters)
    scorer = ChecklistScorer(SERVED_NAME, backend=connect(broken_server), store=False)
    scorer.score(["Is it short?", "Is it long?"], "Hello there.")
    assert scorer.receipt.computed_tokens is None
    assert scorer.receipt.prompt_tokens > scorer.receipt.floor_tokens > 0
    assert str(scorer.receipt).endswith("completion tokens; computed tokens not reported by the server")


@pytest.mark.parametrize(
    ("metrics", "requests"),
    [(lambda: "vllm:num_requests_running 1.0", 3), (lambda: METRICS.format(5, 0), 3 * (1 + 3))],
    ids=["no counters", "counters that stay the same"],
)
def test_counters_that_say_nothing_are_not_asked_for_again(broken_server, metrics, requests):
    asked = []
    broken_server.metrics = lambda: asked.append(1) or metrics()
    judge = connect(broken_server)
    assert [judge.read(TWO, LABELS)[1].computed_tokens for _ in range(4)] == [None] * 4
    assert len(asked) == requests


def test_chat_reads_are_counted_by_their_responses(chat_server):
    judge = connect(chat_server)
    assert judge.read(TWO, LABELS)[1].computed_tokens is None  # no usage at all
    usage = {"prompt_tokens": 30, "completion_tokens": 1}
    chat_server.usage = lambda asked: {"usage": usage}
    _, result = judge.read(TWO, LABELS)
    assert (result.prompt_tokens, result.computed_tokens, result.completion_tokens) == (60, None, 2)
    chat_server.usage = lambda asked: {"usage": usage | {"prompt_tokens_details": {"cached_tokens": 16}}}
    assert judge.read(TWO, LABELS)[1].computed_tokens == 28
    # As xAI reports 94 tokens of a thought.
    chat_server.usage = lambda asked: {"usage": {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135}}
    _, result = judge.read(TWO, LABELS)
    assert (result.prompt_tokens, result.completion_tokens) == (64, 206)


def test_receipts_add_up_to_unknown_where_one_part_is_unknown():
    known, unknown = Receipt(computed_tokens=5, floor_tokens=5), Receipt(computed_tokens=None)
    assert (known + unknown).computed_tokens is None and (known + known).computed_tokens == 10
    assert (known - unknown).computed_tokens is None
