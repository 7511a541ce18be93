"""Replies of a served model, parameters of requests, thoughts that a prompt opened, and replies without an answer."""

import itertools
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, ReadGroup, Reply, Sampling, pocket_dir
from checklist_rewards.backends.base import reply_seed
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.wire import (
    ZERO_WIDTH,
    label_body,
    label_of,
    neutral,
    refused_by,
    reply_body,
    reply_of,
)
from checklist_rewards.backends.replies import sample_replies, target_of
from checklist_rewards.backends.servers import SERVERS
from checklist_rewards.errors import ModelError
from checklist_rewards.files.store import Store
from checklist_rewards.rerank import sample_candidates
from tests.backends.answers import LABELS, ONE, user
from tests.backends.answerserver import MODEL, SERVED_NAME, answering, chat, connect

WARM = Sampling(max_tokens=8, temperature=1.0)
YES = [[Reply("yes", "stop")]]


# ----- replies as they come -----


def test_generation_keeps_the_full_concurrency(chat_server):
    judge = connect(chat_server, concurrency=200, attempts=1)
    judge.generate([user("first")], WARM)  # the server is known to take such requests
    chat_server.answers = lambda server: server.most == 200
    assert judge.generate([user(f"{n}") for n in range(200)], WARM) == YES * 200


def test_replies_arrive_in_the_calling_thread_while_others_are_waited_for(chat_server):
    seen, others = [], threading.Event()

    def arrived(place, replies):
        seen.append((place, replies[0].text, threading.get_ident()))
        if len(seen) == 2:
            others.set()

    chat_server.fails = lambda asked: asked["messages"][0]["content"] == "last" and not others.wait(10)
    prompts = [user("first"), user("last"), user("second")]
    found = connect(chat_server, attempts=1).generate(prompts, WARM, arrived)
    here = threading.get_ident()
    assert seen == [(0, "yes", here), (2, "yes", here), (1, "yes", here)] and found == YES * 3


def test_what_is_done_with_an_arrived_reply_may_stop_the_others(chat_server):
    def interrupted(place, replies):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connect(chat_server, concurrency=1).generate([user(f"{n}") for n in range(50)], WARM, interrupted)
    asked = len(chat_server.asked)
    connect(chat_server).generate([user("again")], WARM)
    assert asked < 50


def test_fewer_replies_than_asked_for_are_asked_for_again_with_the_seeds_of_their_prompt(chat_server):
    judge, prompts = connect(chat_server), [user("?"), user("b")]
    [replies] = judge.generate(prompts[:1], Sampling(temperature=1.0, n=3))
    assert [reply.text for reply in replies] == ["yes"] * 3
    assert [asked.get("n", 1) for asked in chat_server.asked] == [3, 2, 1]
    first = reply_seed(0, prompts[0])
    assert [asked["seed"] for asked in chat_server.asked] == [first, first + 1, first + 2]
    judge.generate(prompts, WARM)
    seeds = {asked["messages"][0]["content"]: asked["seed"] for asked in chat_server.asked[3:]}
    assert seeds == {"?": first, "b": reply_seed(0, prompts[1])} and len(set(seeds.values())) == 2


@pytest.mark.parametrize(
    "complaint", ["'n' : number must be at most 1", "Only one candidate can be specified in the current model", "No."]
)
def test_a_server_of_one_reply_per_request_is_asked_for_each(chat_server, complaint):
    chat_server.refuses = lambda asked: "n" in asked and complaint
    judge = connect(chat_server)
    for _ in range(2):
        [replies] = judge.generate([user("?")], Sampling(temperature=1.0, n=3))
        assert [reply.text for reply in replies] == ["yes"] * 3
    last = chat_server.asked[-3:]
    assert len({body["seed"] for body in last}) == 3 and not any("n" in body for body in last)


def test_the_eighth_refusal_in_a_row_is_an_error_and_the_next_call_tries_again(chat_server):
    chat_server.statuses = [400]
    judge = connect(chat_server)
    for _ in range(7):
        [[reply]] = judge.generate([user("?")], WARM)
        assert reply.unanswered == "backend_error: status 400: status 400"
    with pytest.raises(ModelError, match="rejected a request: status 400"):
        judge.generate([user("?")], WARM)
    chat_server.statuses = [200]
    assert judge.generate([user("?")], WARM) == YES


def test_a_prompt_too_long_for_a_server_is_asked_again_when_it_was_started_with_a_longer_context(
    broken_server, tmp_path
):
    store, text = Store(tmp_path / "store.sqlite"), "word " * 300
    for context, reason in ((100, "too_long"), (2048, None)):
        broken_server.card |= {"max_model_len": context}
        judge = connect(broken_server)
        score = ChecklistScorer(SERVED_NAME, backend=judge, store=store).score(["Is it?"], text)
        [[reply]] = sample_replies(Engine(SERVED_NAME, judge), [user(text)], WARM, store)
        assert score.items[0].unanswered == reply.unanswered == reason


ENDS = {  # as of other servers: Mistral; Gemini; Zhipu; TensorRT-LLM; DeepSeek
    **dict.fromkeys(("model_length", "MAX_TOKENS", "length"), "cut"),
    **dict.fromkeys(("content_filter: RECITATION", "SAFETY", "sensitive"), "refused"),
    **dict.fromkeys(("repetition", "timeout", "network_error", "insufficient_system_resource"), "backend_error"),
    **dict.fromkeys(("stop", "STOP", "eos", None), "answered"),
}
FAILED = {"code": 502, "message": "Provider disconnected"}


@pytest.mark.parametrize("finish", ENDS)
def test_how_a_reply_ended_is_understood_in_the_words_of_other_servers(finish):
    reply = reply_of(chat("A part of", finish=finish)[1]["choices"][0])
    assert (target_of(reply).state if reply.unanswered is None else reply.unanswered.reason) == ENDS[finish]


@pytest.mark.parametrize("error", [FAILED, FAILED["message"]])
@pytest.mark.parametrize("finish", [None, "error"])
def test_an_answer_that_a_provider_broke_off_has_its_error(finish, error):
    choice = chat("A part of", finish=finish)[1]["choices"][0] | {"error": error}
    for found in (reply_of(choice), label_of(choice, LABELS)):
        assert found.unanswered.reason == "backend_error" and "Provider disconnected" in found.unanswered


@pytest.mark.parametrize("finish", ["abort", "error"])
def test_an_answer_that_the_server_broke_off_is_unanswered(broken_server, finish):
    broken_server.finish = finish
    broken_server.spoil = lambda choices: [choice | {"finish_reason": finish} for choice in choices]
    lists = connect(broken_server)
    broken_server.card = {}
    chats, reason = connect(broken_server), f"backend_error: the server ended the answer with {finish!r}"
    reads = [*lists.read([ReadGroup(None, "Hello. ", ("Is it?", "Was it?"))], LABELS)[0], *chats.read(ONE, LABELS)[0]]
    [[reply]] = chats.generate([user("?")], WARM)
    assert [(read.logprobs, read.unanswered) for read in reads] == [(None, reason)] * 3
    assert (reply.text, reply.unanswered) == (None, reason)


# ----- the parameters of a request -----

PLAIN = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_k": -1, "min_p": 0.0}
"""What vLLM and SGLang take from the model's generation_config.json if a request omits it, without an effect."""


@pytest.mark.parametrize("warmth", [0.0, 0.7])
def test_a_server_takes_nothing_from_the_models_generation_config(chat_server, warmth):
    """Its defaults are those of `vllm serve`: the parameters of the request replace those of the model's folder."""
    of_the_folder = {name: 0.123 for name in (*PLAIN, "temperature", "top_p")}
    judge = connect(chat_server)
    judge.read(ONE, LABELS)
    judge.generate([user("?")], Sampling(max_tokens=7, temperature=warmth, top_p=0.9))
    read, reply = (of_the_folder | asked for asked in chat_server.asked)
    assert read["chat_template_kwargs"] == {"enable_thinking": False} and "chat_template_kwargs" not in reply
    penalties = {name: value for name, value in PLAIN.items() if name.endswith("penalty")}
    assert {name: read[name] for name in penalties} == {name: reply[name] for name in penalties} == penalties
    assert (read["temperature"], reply["temperature"]) == (0.0, warmth)  # greedy: no other parameter counts
    assert reply["max_tokens"] == 7
    if warmth:
        assert {name: reply[name] for name in (*PLAIN, "top_p")} == PLAIN | {"top_p": 0.9}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        *((name, "{} is not supported") for name in ("chat_template_kwargs", "presence_penalty", "top_k", "min_p")),
        *((name, "Extra inputs are not permitted") for name in ("chat_template_kwargs", "repetition_penalty")),
    ],
)
def test_a_server_without_a_parameter_is_asked_without_it_from_then_on(name, complaint, chat_server):
    chat_server.refuses = lambda asked: name in asked and complaint.format(name)
    judge = connect(chat_server)
    asked = []
    for _ in range(2):
        [read], _ = judge.read(ONE, LABELS)
        assert (read.logprobs, read.exact) == ((-0.5, -1.5), False)
        assert judge.generate([user("?")], WARM) == YES
        asked.append(len(chat_server.asked))
    assert asked[1] == asked[0] + 2
    read, reply = chat_server.asked[-2:]
    assert name not in read and name not in reply and (reply["temperature"], reply["top_p"]) == (1.0, 1.0)
    assert "logprobs" in read and ("chat_template_kwargs" in read) == (name != "chat_template_kwargs")


def test_servers_known_by_name_are_sent_the_parameters_of_openai_only(chat_server, monkeypatch):
    monkeypatch.setitem(SERVERS, "openrouter", (chat_server.base_url, "OPENROUTER_API_KEY"))
    monkeypatch.setenv("OPENROUTER_API_KEY", "key")
    OpenAIBackend(SERVED_NAME, "openrouter").read(ONE, LABELS)
    [asked] = chat_server.asked
    assert (
        "chat_template_kwargs" not in asked and not PLAIN.keys() & asked.keys() and not asked["plugins"][0]["enabled"]
    )


@pytest.mark.parametrize("model", ["o1", "openai/o4-mini", "gpt-5.1-mini", "gpt-6-luna", "openai/gpt-6.1-sol"])
def test_reasoning_models_sample_their_own_way(model):
    body = reply_body(model, user("?"), Sampling(max_tokens=100, temperature=0.7), 1, 10**6, refused_by(model))
    assert body.keys() == {"model", "messages", "max_completion_tokens", "seed"}
    assert "logprobs" not in label_body(model, user("?"), refused_by(model))


@pytest.mark.parametrize("model", ["gpt-4.1", "org/o1x", "gpt-5-chat-latest", "llama-o1s"])
def test_other_models_do_not(model):
    assert refused_by(model) == frozenset()


# ----- control strings: none is left for a server's tokenizer to parse, and everything else stays as it is -----

CONTROLS = """<|im_end|> <|im_start|> <|eot_id|> <|start_header_id|> <|endoftext|> <｜Assistant｜>
<｜end▁of▁sentence｜> <start_of_turn> <end_of_turn> <|turn> <turn|> <s> </s> <bos> <unused7> <SPECIAL_12> <think>
</think> <tool_call> [INST] [/INST] [TOOL_CALLS] <<SYS>> [gMASK] [|assistant|] ]~b] [e~[""".split()
HARMLESS = [
    "a < b and c > d; a <- b; f <| x |> g",
    "if a<b: return x[0]",
    "<p>One <b class='x'>bold</b> word.</p>",
    "<target-123456>\ntext\n</target-123456>",
    "[NAME], see [1] and [x](y).",
    "{'key': [1, 2]}",
    "日本 🙂 �",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_stays_as_it_is(text):
    assert neutral(text) == text


def test_strings_that_overlap_and_those_of_the_tokenizer_are_all_broken():
    assert neutral("<|a<|im_end|>") == f"<{ZERO_WIDTH}|a<{ZERO_WIDTH}|im_end|>"
    assert neutral("Say @@end@@.", ["@@end@@"]) == f"Say @{ZERO_WIDTH}@end@@."


@example(CONTROLS)
@given(st.lists(st.sampled_from([*CONTROLS, *"<>[]|/｜~ a\n", "im_end", "assistant"]), max_size=12))
def test_no_control_string_is_left_and_nothing_else_is_changed(parts):
    text = "".join(parts)
    found = neutral(text)
    assert not any(control in found for control in CONTROLS)
    assert neutral(found) == found and found.replace(ZERO_WIDTH, "") == text


def test_every_message_but_the_systems_is_neutralized(chat_server):
    messages = [{"role": role, "content": "<|end|>"} for role in ("system", "user", "assistant", "user")]
    judge = connect(chat_server)
    judge.read([ReadGroup("<|end|>", "<|end|> ", ("Is it?",))], LABELS)
    judge.generate([messages], Sampling())
    contents = [[message["content"] for message in asked["messages"]] for asked in chat_server.asked]
    broken = f"<{ZERO_WIDTH}|end|>"
    assert contents == [["<|end|>", f"{broken} Is it?"], ["<|end|>", broken, broken, broken]]


# ----- thoughts -----

OPENS = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|><think>\n"
CLOSED = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|>"
THOUGHT, ANSWER = "Two words, I think. So", "Rain falls."


class Rendering:
    """A server that renders its prompts as vLLM, as llama.cpp, or does not show them."""

    def __init__(self, shows, template, replies, **message):
        self.shows, self.prompt = shows, template.replace("{% for m in messages %}", "").partition("{{")[0]
        self.prompt += "Hello." + template.rpartition("{% endfor %}")[2]
        self.replies, self.message = itertools.cycle(replies), message

    def __call__(self, path, body):
        if path == "/tokenize" and self.shows == "vllm" and "messages" in body:
            return 200, {"tokens": list(self.prompt.encode())}
        if path == "/tokenize" and self.shows == "llama.cpp":
            return 200, {"tokens": []}
        if path == "/detokenize" and self.shows == "vllm":
            return 200, {"prompt": bytes(body["tokens"]).decode()}
        if path == "/apply-template" and self.shows == "llama.cpp":
            return 200, {"prompt": self.prompt}
        if path != "/v1/chat/completions":
            return 404, {"error": "not found"}
        text, finish = next(self.replies)
        return chat(text, None, finish, **self.message)


def targets(server, prompts=1, **settings):
    engine = Engine(MODEL, OpenAIBackend(MODEL, server.base_url, concurrency=1, **settings))
    found = sample_candidates([f"Write {n}." for n in range(prompts)], engine, Sampling(max_tokens=8))
    return [(candidate.target.state, candidate.target.text) for (candidate,) in found]


@pytest.mark.parametrize(
    ("shows", "template", "text", "finish", "expected"),
    [
        ("vllm", OPENS, THOUGHT, "length", ("cut_in_thought", "")),
        ("llama.cpp", OPENS, THOUGHT, "length", ("cut_in_thought", "")),
        ("vllm", OPENS, f"{THOUGHT}</think>\n{ANSWER}", "stop", ("answered", ANSWER)),
        ("vllm", OPENS, f"{THOUGHT}</think>\n{ANSWER}", "length", ("cut", ANSWER)),
        ("vllm", OPENS, THOUGHT, "stop", ("cut_in_thought", "")),
        ("llama.cpp", OPENS, THOUGHT, "stop", ("answered", THOUGHT)),  # its parser may have taken an empty thought
        ("llama.cpp", CLOSED, ANSWER, "length", ("cut", ANSWER)),
        ("vllm", CLOSED, ANSWER, "stop", ("answered", ANSWER)),
    ],
)
def test_a_prompt_that_the_server_renders_shows_whether_it_opens_a_thought(shows, template, text, finish, expected):
    message = {"reasoning": None} if shows == "vllm" else {}  # vLLM's message has the field without a parser too
    with answering(Rendering(shows, template, [(text, finish)], **message)) as server:
        assert targets(server) == [expected]


@pytest.mark.parametrize("opens", [True, False])
def test_the_tokenizer_shows_it_where_the_server_does_not(opens, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    tokenizer.chat_template = OPENS if opens else CLOSED
    tokenizer.save_pretrained(tmp_path)
    card = {"root": str(tmp_path), "max_model_len": 2048}
    with answering(Rendering("nothing", OPENS, [(THOUGHT, "length")]), card) as server:
        assert targets(server) == [("cut_in_thought", "") if opens else ("cut", THOUGHT)]


@pytest.mark.parametrize("place", [0, 3])
def test_another_reply_shows_it_where_nothing_else_does(place):
    replies = [(THOUGHT, "length")] * 3
    replies.insert(place, (f"{THOUGHT}</think>{ANSWER}", "stop"))
    with answering(Rendering("nothing", OPENS, replies)) as server:
        found = targets(server, 4)
    assert found.count(("cut_in_thought", "")) == 3 and found[place] == ("answered", ANSWER)


def test_cut_replies_are_answers_where_a_complete_one_has_no_thought():
    with answering(Rendering("nothing", CLOSED, [(ANSWER, "length"), (ANSWER, "stop"), (ANSWER, "length")])) as server:
        assert targets(server, 3) == [("cut", ANSWER), ("answered", ANSWER), ("cut", ANSWER)]


def test_replies_that_are_held_back_are_few_and_a_warning_says_what_is_not_known(monkeypatch, caplog):
    monkeypatch.setattr("checklist_rewards.backends.openai.backend._MOST_HELD", 2)
    with answering(Rendering("nothing", CLOSED, [(ANSWER, "length")])) as server:
        assert targets(server, 6) == [("cut", ANSWER)] * 6
    [said] = [record.getMessage() for record in caplog.records if "thoughts are judged" in record.message]
    assert "max_tokens=8" in said


@pytest.mark.parametrize(("key", "thought"), [("reasoning", "Two words."), ("reasoning_content", "")])
def test_a_server_that_parses_thoughts_returns_the_answer_apart(key, thought):
    with answering(Rendering("vllm", OPENS, [(ANSWER, "length")], **{key: thought})) as server:
        assert targets(server) == [("cut", ANSWER)]
    cut = reply_of({"message": {"content": None, key: thought}, "finish_reason": "length"})
    assert (cut.text, cut.unanswered, cut.thought) == (None, "cut_off", thought or None)


# ----- what is an answer -----

THINKING = [{"type": "thinking", "thinking": "No?"}]
MISTRALS = [{"type": "thinking", "thinking": [{"type": "text", "text": "No"}, {"type": "text", "text": "?"}]}]
YES_PART = {"type": "text", "text": "Yes"}
REFUSAL = {"type": "refusal", "refusal": "I cannot."}
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


@pytest.mark.parametrize(
    ("content", "thought"),
    [
        ([{"text": "Yes"}], None),
        ([{"type": "text", "text": "Ye"}, {"type": "text", "text": "s"}], None),
        ([{"type": "output_text", "text": "Yes", "annotations": []}], None),
        (["Y", "es"], None),
        (YES_PART, None),
        ([*THINKING, YES_PART], "No?"),
        ([*MISTRALS, YES_PART], "No?"),
        ([{"type": "redacted_thinking", "data": "x"}, YES_PART], None),
    ],
)
def test_a_content_of_parts_is_its_text(content, thought):
    choice = chat(content)[1]["choices"][0]
    reply, read = reply_of(choice), label_of(choice, LABELS)
    assert (reply.text, reply.unanswered, read.label, reply.thought) == ("Yes", None, "yes", thought)
    assert target_of(reply).text == "Yes"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "null_content"),
        (THINKING, "null_content"),
        ([REFUSAL], "refused"),
        ([YES_PART, IMAGE], "error_body"),
        ([1, 2], "error_body"),
        (7, "error_body"),
    ],
)
def test_a_content_that_is_no_text_is_unanswered(content, reason):
    choice = chat(content)[1]["choices"][0]
    reply, read = reply_of(choice), label_of(choice, LABELS)
    assert reply.unanswered.reason == read.unanswered.reason == reason and reply.text is read.label is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes", "yes"),
        ("**No**", "no"),
        ("No, it does not.", "no"),
        ("Yes，因为很短。", "yes"),
        ("YES\n\nBecause", "yes"),
        ("<think>no, no</think>Yes", "yes"),
        *((text, None) for text in ("N/A", "yes or no", "Not yes", "Nope", "The answer is yes")),
    ],
)
def test_a_word_is_an_answer_only_where_it_stands_alone(text, answer):
    read = label_of(chat(text)[1]["choices"][0], LABELS)
    assert (read.label, read.unanswered, read.logprobs) == (answer, None if answer else "off_label", None)
    assert label_of(chat("<think>so</think>")[1]["choices"][0], LABELS).unanswered == "null_content"
