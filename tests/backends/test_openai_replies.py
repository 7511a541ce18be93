"""Replies and requests of a served model: its full width, what arrives when, what it refuses, what is not stored."""

import shutil
import threading

import pytest

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Answer, Engine, ReadGroup, Reply, Sampling, is_kept, pocket_dir
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.replies import sample_replies
from checklist_rewards.backends.servers import SERVERS
from checklist_rewards.errors import ModelError
from checklist_rewards.files.store import Store
from tests.backends.answerserver import SERVED_NAME, connect

LABELS = ("yes", "no")
ONE = [ReadGroup(None, "Hello there. ", ("Is it short?",))]
WARM = Sampling(max_tokens=8, temperature=1.0)


def user(text):
    return [{"role": "user", "content": text}]


def test_generation_keeps_the_full_concurrency(chat_server):
    everybody = threading.Barrier(200)

    def alone(asked):
        if asked["messages"][0]["content"] == "first":
            return False
        try:
            everybody.wait(10)
        except threading.BrokenBarrierError:
            return True
        return False

    chat_server.fails = alone
    judge = connect(chat_server, concurrency=200, attempts=1)
    judge.generate([user("first")], WARM)  # the server is known to take such requests
    replies = sample_replies(Engine(SERVED_NAME, judge), [user(f"{n}") for n in range(200)], WARM)
    assert [reply.unanswered for [reply] in replies] == [None] * 200


def test_a_reply_may_be_as_long_as_asked_for(chat_server):
    connect(chat_server).generate([user("Write.")], Sampling(max_tokens=7))
    assert chat_server.asked[-1]["max_tokens"] == 7


def test_replies_arrive_in_the_calling_thread_while_others_are_waited_for(broken_server):
    seen, others = [], threading.Event()

    def arrived(place, replies):
        seen.append((place, replies[0].text, threading.get_ident()))
        if len(seen) == 2:
            others.set()

    broken_server.card = {}
    broken_server.fails = lambda asked: asked["messages"][0]["content"] == "last" and not others.wait(10)
    prompts = [user("first"), user("last"), user("second")]
    found = connect(broken_server, attempts=1).generate(prompts, WARM, arrived)
    here = threading.get_ident()
    assert seen == [(0, "yes", here), (2, "yes", here), (1, "yes", here)]
    assert found == [[Reply("yes", "stop")]] * 3


def test_what_is_done_with_an_arrived_reply_may_stop_the_others(broken_server):
    def interrupted(place, replies):
        raise KeyboardInterrupt

    broken_server.card = {}
    with pytest.raises(KeyboardInterrupt):
        connect(broken_server, concurrency=1).generate([user(f"{n}") for n in range(50)], WARM, interrupted)
    asked = len(broken_server.asked)
    connect(broken_server).generate([user("again")], WARM)
    assert asked < 50


def test_each_prompt_has_a_seed_of_its_own_whatever_else_is_asked(chat_server):
    judge = connect(chat_server)
    judge.generate([user("a"), user("b")], WARM)
    judge.generate([user("b")], WARM)
    seeds = {}
    for asked in chat_server.asked:
        seeds.setdefault(asked["messages"][0]["content"], set()).add(asked["seed"])
    assert len(seeds["a"]) == len(seeds["b"]) == 1 and seeds["a"] != seeds["b"]


def test_a_server_that_lists_no_model_is_used(broken_server):
    broken_server.card = None
    assert connect(broken_server).read(ONE, LABELS)[0][0].logprobs == (-0.5, -1.5)


def test_a_tokenizer_that_cannot_be_read_costs_the_lists_only(broken_server, tmp_path):
    for file in ("config.json", "tokenizer_config.json"):
        shutil.copy(pocket_dir() / file, tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "none of these"}}')
    broken_server.card |= {"root": str(tmp_path)}
    assert connect(broken_server).read(ONE, LABELS)[0] == [Answer((-0.5, -1.5), exact=False)]


def test_the_eighth_refusal_in_a_row_is_an_error_and_the_next_call_tries_again(chat_server):
    chat_server.statuses = [400]
    judge = connect(chat_server)
    for _ in range(7):
        [[reply]] = judge.generate([user("?")], WARM)
        assert reply.unanswered == "backend_error: status 400: status 400"
    with pytest.raises(ModelError, match="rejected a request: status 400"):
        judge.generate([user("?")], WARM)
    chat_server.statuses = [200]
    assert judge.generate([user("?")], WARM) == [[Reply("yes", "stop")]]


def test_label_reads_ask_the_chat_template_not_to_think(chat_server):
    judge = connect(chat_server)
    judge.read(ONE, LABELS)
    judge.generate([user("?")], WARM)
    read, reply = chat_server.asked
    assert read["chat_template_kwargs"] == {"enable_thinking": False} and "chat_template_kwargs" not in reply


@pytest.mark.parametrize("complaint", ["Unrecognized request argument supplied: chat_template_kwargs", True])
def test_a_server_that_refuses_the_templates_setting_is_asked_without_it(chat_server, complaint):
    chat_server.refuses = lambda asked: "chat_template_kwargs" in asked and complaint
    judge = connect(chat_server)
    for _ in range(2):
        assert judge.read(ONE, LABELS)[0] == [Answer((-0.5, -1.5), exact=False)]
    assert ["chat_template_kwargs" in asked for asked in chat_server.asked] == [True, False, False]
    assert all("logprobs" in asked for asked in chat_server.asked)


def test_servers_known_by_name_are_never_sent_the_templates_setting(chat_server, monkeypatch):
    monkeypatch.setitem(SERVERS, "openrouter", (chat_server.base_url, "OPENROUTER_API_KEY"))
    monkeypatch.setenv("OPENROUTER_API_KEY", "key")
    OpenAIBackend(SERVED_NAME, "openrouter").read(ONE, LABELS)
    [asked] = chat_server.asked
    assert "chat_template_kwargs" not in asked and not PLAIN.keys() & asked.keys() and asked["transforms"] == []


PLAIN = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_k": -1, "min_p": 0.0}
"""What vLLM and SGLang take from the model's generation_config.json if a request omits it, without an effect."""


@pytest.mark.parametrize("warmth", [0.0, 0.7])
def test_a_server_takes_nothing_from_the_models_generation_config(broken_server, warmth):
    """Its defaults are those of `vllm serve`: the parameters of the request replace those of the model's folder."""
    of_the_folder = {name: 0.123 for name in (*PLAIN, "temperature", "top_p")}
    broken_server.card = {}
    judge = connect(broken_server)
    judge.read(ONE, LABELS)
    judge.generate([user("?")], Sampling(temperature=warmth, top_p=0.9))
    read, reply = (of_the_folder | asked for asked in broken_server.asked)
    penalties = {name: value for name, value in PLAIN.items() if name.endswith("penalty")}
    assert {name: read[name] for name in penalties} == {name: reply[name] for name in penalties} == penalties
    assert (read["temperature"], reply["temperature"]) == (0.0, warmth)  # greedy: no other parameter counts
    if warmth:
        assert {name: reply[name] for name in (*PLAIN, "top_p")} == PLAIN | {"top_p": 0.9}


@pytest.mark.parametrize("complaint", ["{} is not supported", "Extra inputs are not permitted"])
@pytest.mark.parametrize("name", PLAIN)
def test_a_server_without_one_of_these_parameters_is_asked_without_them(chat_server, name, complaint):
    chat_server.refuses = lambda asked: name in asked and complaint.format(name)
    judge = connect(chat_server)
    for _ in range(2):
        assert judge.read(ONE, LABELS)[0] == [Answer((-0.5, -1.5), exact=False)]
        assert judge.generate([user("?")], WARM) == [[Reply("yes", "stop")]]
    read, reply = chat_server.asked[-2:]
    assert name not in read and name not in reply and (reply["temperature"], reply["top_p"]) == (1.0, 1.0)
    assert "logprobs" in read and "chat_template_kwargs" in read


@pytest.mark.parametrize("finish", ["abort", "error"])
def test_an_answer_that_the_server_broke_off_is_unanswered(chat_server, finish):
    chat_server.finish = finish
    judge, reason = connect(chat_server), f"backend_error: the server ended the answer with {finish!r}"
    [read], _ = judge.read(ONE, LABELS)
    [[reply]] = judge.generate([user("?")], WARM)
    assert (read.logprobs, read.unanswered, reply.text, reply.unanswered) == (None, reason, None, reason)


def test_a_list_read_that_the_server_broke_off_is_unanswered(broken_server):
    broken_server.spoil = lambda choices: [choice | {"finish_reason": "abort"} for choice in choices]
    reads, _ = connect(broken_server).read([ReadGroup(None, "Hello. ", ("Is it?", "Was it?"))], LABELS)
    assert [read.unanswered for read in reads] == ["backend_error: the server ended the answer with 'abort'"] * 2


def test_a_prompt_too_long_for_a_server_is_asked_again_when_it_was_started_with_a_longer_context(
    broken_server, tmp_path
):
    store, text = Store(tmp_path / "store.sqlite"), "word " * 300

    def answers():
        judge = connect(broken_server)
        score = ChecklistScorer(SERVED_NAME, backend=judge, store=store).score(["Is it?"], text)
        [[reply]] = sample_replies(Engine(SERVED_NAME, judge), [user(text)], WARM, store)
        return score.items[0].unanswered, reply.unanswered

    broken_server.card |= {"max_model_len": 100}
    assert answers() == ("too_long", "too_long")
    broken_server.card |= {"max_model_len": 2048}
    assert answers() == (None, None)


def test_what_a_server_calls_too_long_is_not_stored(chat_server):
    chat_server.refuses = lambda asked: "This model's maximum context length is 10 tokens."
    judge = connect(chat_server)
    [read], _ = judge.read(ONE, LABELS)
    [[reply]] = judge.generate([user("?")], WARM)
    assert read.unanswered == reply.unanswered == "too_long" and not is_kept(read) and not is_kept(reply)


def test_an_answer_out_of_the_likely_tokens_is_never_given_out_as_an_exact_one(broken_server, tmp_path):
    store = Store(tmp_path / "store.sqlite")

    def methods(*questions):
        scorer = ChecklistScorer(SERVED_NAME, backend=connect(broken_server), store=store, min_answered=0)
        return [item.method for item in scorer.score(list(questions), "A text.").items]

    broken_server.card |= {"root": "/nowhere"}  # without the tokenizer every read is a chat request
    assert methods("Is it short?") == ["top_logprobs"]
    broken_server.card |= {"root": str(pocket_dir())}
    assert methods("Is it short?", "Is it long?") == ["top_logprobs", "logprobs"]
