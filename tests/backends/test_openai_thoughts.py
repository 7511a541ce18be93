"""What a served policy answered: thoughts that its prompt opened, thoughts that the server parsed, and typed parts."""

import itertools

import pytest
from transformers import AutoTokenizer

from checklist_rewards.backends import Engine, Sampling, pocket_dir
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.backends.openai.wire import label_of, reply_of
from checklist_rewards.backends.replies import target_of
from checklist_rewards.rerank import sample_candidates
from tests.backends.answerserver import MODEL, answering, chat

OPENS = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|><think>\n"
PLAIN = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|>"
THOUGHT, ANSWER = "Two words, I think. So", "Rain falls."
REPLIES = {
    "cut in its thought": (THOUGHT, "length", ("cut_in_thought", "")),
    "closed": (f"{THOUGHT}</think>\n{ANSWER}", "stop", ("answered", ANSWER)),
    "cut in its answer": (f"{THOUGHT}</think>\n{ANSWER}", "length", ("cut", ANSWER)),
    "never closed": (THOUGHT, "stop", ("cut_in_thought", "")),
}


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


@pytest.mark.parametrize("shows", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("reply", REPLIES)
def test_a_prompt_that_the_server_renders_opens_the_thought(shows, reply):
    text, finish, expected = REPLIES[reply]
    message = {"reasoning": None} if shows == "vllm" else {}  # vLLM's message has the field without a parser too
    if shows == "llama.cpp" and reply == "never closed":
        expected = ("answered", text)  # its parser may have taken an empty thought: not known
    with answering(Rendering(shows, OPENS, [(text, finish)], **message)) as server:
        assert targets(server) == [expected]


@pytest.mark.parametrize("shows", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("finish", ["length", "stop"])
def test_a_prompt_that_opens_nothing_leaves_a_reply_as_it_is(shows, finish):
    with answering(Rendering(shows, PLAIN, [(ANSWER, finish)], reasoning=None)) as server:
        assert targets(server) == [("cut" if finish == "length" else "answered", ANSWER)]


@pytest.mark.parametrize("opens", [True, False])
def test_the_tokenizer_shows_it_where_the_server_does_not(opens, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    tokenizer.chat_template = OPENS if opens else PLAIN
    tokenizer.save_pretrained(tmp_path)
    card = {"root": str(tmp_path), "max_model_len": 2048}
    with answering(Rendering("nothing", OPENS, [(THOUGHT, "length")]), card) as server:
        assert targets(server) == [("cut_in_thought", "") if opens else ("cut", THOUGHT)]


@pytest.mark.parametrize("place", range(4))
def test_another_reply_shows_it_where_nothing_else_does(place):
    replies = [(THOUGHT, "length")] * 3
    replies.insert(place, (f"{THOUGHT}</think>{ANSWER}", "stop"))
    with answering(Rendering("nothing", OPENS, replies)) as server:
        found = targets(server, 4)
    assert found.count(("cut_in_thought", "")) == 3 and found[place] == ("answered", ANSWER)


def test_cut_replies_are_answers_where_a_complete_one_has_no_thought():
    with answering(Rendering("nothing", PLAIN, [(ANSWER, "length"), (ANSWER, "stop"), (ANSWER, "length")])) as server:
        assert targets(server, 3) == [("cut", ANSWER), ("answered", ANSWER), ("cut", ANSWER)]


def test_replies_that_are_held_back_are_few_and_a_warning_says_what_is_not_known(monkeypatch, caplog):
    monkeypatch.setattr("checklist_rewards.backends.openai.backend._MOST_HELD", 2)
    with answering(Rendering("nothing", PLAIN, [(ANSWER, "length")])) as server:
        assert targets(server, 6) == [("cut", ANSWER)] * 6
    [said] = [record.getMessage() for record in caplog.records if "thoughts are judged" in record.message]
    assert "max_tokens=8" in said


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("thought", ["", "\n", "Two words."])
def test_a_server_that_parses_thoughts_returns_the_answer_apart(key, thought):
    with answering(Rendering("vllm", OPENS, [(ANSWER, "length")], **{key: thought})) as server:
        assert targets(server) == [("cut", ANSWER)]


def test_a_cut_thought_that_the_server_has_parsed_is_no_reply():
    with answering(Rendering("vllm", OPENS, [(None, "length")], reasoning=THOUGHT)) as server:
        [[reply]] = OpenAIBackend(MODEL, server.base_url).generate([[{"role": "user", "content": "?"}]], Sampling())
    assert (reply.text, reply.unanswered, reply.thought) == (None, "cut_off", THOUGHT)


# ----- content as parts -----

TEXT_PARTS = {
    "text": [{"type": "text", "text": "Yes"}],
    "two": [{"type": "text", "text": "Ye"}, {"type": "text", "text": "s"}],
    "output_text": [{"type": "output_text", "text": "Yes", "annotations": []}],
    "untyped": [{"text": "Yes"}],
    "strings": ["Y", "es"],
    "one": {"type": "text", "text": "Yes"},
    "a thought first": [{"type": "thinking", "thinking": "No?"}, {"type": "text", "text": "Yes"}],
    "Mistral's thought": [
        {"type": "thinking", "thinking": [{"type": "text", "text": "No"}, {"type": "text", "text": "?"}]},
        {"type": "text", "text": "Yes"},
    ],
    "a hidden thought": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Yes"}],
}


@pytest.mark.parametrize("parts", TEXT_PARTS)
def test_a_content_of_parts_is_its_text(parts):
    choice = chat(TEXT_PARTS[parts])[1]["choices"][0]
    reply, read = reply_of(choice), label_of(choice, ("yes", "no"))
    assert (reply.text, reply.unanswered, read.label) == ("Yes", None, "yes")
    assert reply.thought == ("No?" if parts in ("a thought first", "Mistral's thought") else None)
    assert target_of(reply).text == "Yes"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "null_content"),
        ([{"type": "refusal", "refusal": "I cannot."}], "refused"),
        ([{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": "x"}}], "error_body"),
        ([1, 2], "error_body"),
        (7, "error_body"),
        ([{"type": "thinking", "thinking": "Hm."}], "null_content"),
    ],
)
def test_a_content_that_is_no_text_is_unanswered(content, reason):
    choice = chat(content)[1]["choices"][0]
    for found in (reply_of(choice), label_of(choice, ("yes", "no"))):
        assert found.unanswered.reason == reason and (
            getattr(found, "text", None),
            getattr(found, "answer", None),
        ) == (
            None,
            None,
        )
