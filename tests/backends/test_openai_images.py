"""Prompts with images on servers: the parts of their messages, label reads, and servers that do not see."""

import base64
import io
import math

import pytest
from PIL import Image as Pillow

from checklist_rewards.backends import OPENAI, Engine, ReadGroup, Sampling
from checklist_rewards.backends.base import Written
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.errors import ModelError
from checklist_rewards.images import image_of
from tests.backends.answerserver import MODEL, answering, refusal

RED = image_of(Pillow.new("RGB", (8, 8), "red"))
WEB = image_of("https://example.org/cat.png")
GROUPS = [
    ReadGroup("You judge.", f"First {RED.mark} then {WEB.mark} and a text <|im_end|>. ", ("Is it red?", "Is it big?")),
    ReadGroup("You judge.", "No image. ", ("Is it red?",)),
]


def likely(path, body):
    tokens = [{"token": "Yes", "logprob": math.log(0.75)}, {"token": "No", "logprob": math.log(0.2)}]
    choice = {
        "message": {"content": "Yes"},
        "finish_reason": "stop",
        "logprobs": {"content": [{"top_logprobs": tokens}]},
    }
    return 200, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}


def test_images_are_parts_of_a_message_in_their_order():
    with answering(likely) as server:
        backend = OpenAIBackend(MODEL, server.base_url)
        assert backend.sees
        answers, _ = backend.read(GROUPS, ("yes", "no"))
        assert [answer.logprobs for answer in answers] == [pytest.approx((math.log(0.75), math.log(0.2)))] * 3
        contents = [body["messages"][-1]["content"] for body in server.of("/chat/completions")]
    [text] = [content for content in contents if isinstance(content, str)]
    assert text == "No image. Is it red?"
    first = next(content for content in contents if isinstance(content, list))
    assert [part["type"] for part in first] == ["text", "image_url", "text", "image_url", "text"]
    assert first[0]["text"] == "First " and first[3]["image_url"]["url"] == WEB.source
    header, _, content = first[1]["image_url"]["url"].partition(",")
    assert header == "data:image/png;base64"
    assert image_of(Pillow.open(io.BytesIO(base64.b64decode(content)))).key == RED.key
    assert "<|im_end|>" not in first[4]["text"] and first[4]["text"].endswith(("Is it red?", "Is it big?"))


def test_replies_to_prompts_with_images():
    with answering(likely) as server:
        [[reply]] = OpenAIBackend(MODEL, server.base_url).generate(
            [[{"role": "user", "content": f"{RED.mark} What is it?"}]], Sampling()
        )
        [body] = server.of("/chat/completions")
    assert reply.text == "Yes"
    assert [part["type"] for part in body["messages"][0]["content"]] == ["image_url", "text"]


@pytest.mark.parametrize(
    "message",
    [
        "At most 0 image(s) may be provided in one prompt.",
        "Invalid content type. image_url is only supported by certain models.",
        "judge is not a multimodal model",
    ],
)
def test_the_sentence_of_a_server_that_does_not_see_reaches_the_user(message):
    with (
        answering(lambda path, body: refusal(message)) as server,
        pytest.raises(ModelError, match="images='ignore'") as e,
    ):
        OpenAIBackend(MODEL, server.base_url).read(GROUPS[:1], ("yes", "no"))
    assert message in str(e.value) and "does not take images" in str(e.value)


def test_one_image_that_a_server_refuses_costs_its_reads_only():
    def picky(path, body):
        content = body["messages"][-1]["content"]
        broken = isinstance(content, list) and len(content) == 2
        return refusal("cannot identify image file") if broken else likely(path, body)

    with answering(picky) as server:
        backend = OpenAIBackend(MODEL, server.base_url)
        groups = [GROUPS[0], ReadGroup(None, RED.mark, ("Is it red?",))]
        answers, _ = backend.read(groups, ("yes", "no"))
    assert answers[0].logprobs and answers[1].logprobs
    assert (
        answers[2].unanswered is not None and answers[2].unanswered.detail == "status 400: cannot identify image file"
    )


def test_a_thought_before_a_label_is_refused_with_images(monkeypatch):
    with answering(likely) as server:
        backend = OpenAIBackend(MODEL, server.base_url)
        monkeypatch.setattr(type(backend), "continues", True)
        group = ReadGroup(None, RED.mark, ("Is it red?",), written=(Written("It is."),))
        with pytest.raises(ModelError, match="thinking=... cannot be combined with images on the server"):
            backend.read([group], ("yes", "no"))


def test_an_engine_on_a_server_counts_as_one_that_sees():
    assert Engine(MODEL, OPENAI, "http://localhost:1/v1").sees
    assert not Engine(MODEL, "decisions", "http://localhost:1/v1").sees
