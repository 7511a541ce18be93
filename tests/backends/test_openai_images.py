"""Prompts with images on servers: the parts of their messages, label reads, and servers that do not see."""

import base64
import io
import math
import threading

import pytest
from PIL import Image as Pillow

from checklist_rewards.backends import ReadGroup, Sampling
from checklist_rewards.backends.base import Written
from checklist_rewards.backends.openai import OpenAIBackend
from checklist_rewards.errors import ModelError
from checklist_rewards.images import image_of
from tests.backends.answers import LABELS, user
from tests.backends.answerserver import MODEL, answering, chat, refusal

RED = image_of(Pillow.new("RGB", (8, 8), "red"))
WEB = image_of("https://example.org/cat.png")
GROUPS = [
    ReadGroup("You judge.", f"First {RED.mark} then {WEB.mark} and a text <|im_end|>. ", ("Is it red?", "Is it big?")),
    ReadGroup("You judge.", "No image. ", ("Is it red?",)),
]


def likely(path, body):
    tokens = [{"token": "Yes", "logprob": math.log(0.75)}, {"token": "No", "logprob": math.log(0.2)}]
    status, response = chat("Yes", {"content": [{"top_logprobs": tokens}]})
    return status, response | {"usage": {"prompt_tokens": 9, "completion_tokens": 1}}


def asked_about(image):
    return user(f"{image.mark} What is it?")


def test_images_are_parts_of_a_message_in_their_order():
    with answering(likely) as server:
        backend = OpenAIBackend(MODEL, server.base_url)
        assert backend.sees
        answers, _ = backend.read(GROUPS, LABELS)
        assert [answer.logprobs for answer in answers] == [pytest.approx((math.log(0.75), math.log(0.2)))] * 3
        contents = [messages[-1]["content"] for messages in server.prompts]
        server.asked.clear()
        [[reply]] = backend.generate([asked_about(RED)], Sampling())
        [[message]] = server.prompts
    assert reply.text == "Yes" and [part["type"] for part in message["content"]] == ["image_url", "text"]
    [text] = [content for content in contents if isinstance(content, str)]
    assert text == "No image. Is it red?"
    first = next(content for content in contents if isinstance(content, list))
    assert [part["type"] for part in first] == ["text", "image_url", "text", "image_url", "text"]
    assert first[0]["text"] == "First " and first[3]["image_url"]["url"] == WEB.source
    header, _, content = first[1]["image_url"]["url"].partition(",")
    assert header == "data:image/png;base64"
    assert image_of(Pillow.open(io.BytesIO(base64.b64decode(content)))).key == RED.key
    assert "<|im_end|>" not in first[4]["text"] and first[4]["text"].endswith(("Is it red?", "Is it big?"))


@pytest.mark.parametrize(
    "message",
    [
        "At most 0 image(s) may be provided.",
        "image_url is only supported by certain models.",
        "judge is not a multimodal model",
    ],
)
def test_the_sentence_of_a_server_that_does_not_see_reaches_the_user(message):
    with answering(lambda path, body: refusal(message)) as server:
        with pytest.raises(ModelError, match="does not take images.*images='ignore'") as raised:
            OpenAIBackend(MODEL, server.base_url).read(GROUPS[:1], LABELS)
    assert message in str(raised.value)


def of_image(body, image):
    """Whether a request shows an image."""
    content = body["messages"][-1]["content"]
    return isinstance(content, list) and any(part.get("image_url", {}).get("url") == image.url for part in content)


@pytest.mark.parametrize(
    ("place", "status", "message", "reason"),
    [
        (0, 400, "image exceeds 5 MB maximum", "backend_error: status 400: image exceeds 5 MB maximum"),
        (1, 404, "the image was not found", "backend_error: status 404: the image was not found"),
        (0, 422, "file type not allowed", "backend_error: status 422: file type not allowed"),
        (1, 413, "Request Entity Too Large", "too_long: Request Entity Too Large"),
        (0, 400, "The context length is 4096 tokens; the image has 9000.", "too_long: The context length is 4096"),
    ],
)
def test_one_image_that_a_server_refuses_costs_its_reads_only(place, status, message, reason):
    """Whether it is the first that is sent or not, the server's sentence is the reason, and the others are read."""
    bad = image_of(Pillow.new("RGB", (8, 8), "black"))
    groups = [*GROUPS[:place], ReadGroup(None, bad.mark, ("Is it red?",)), *GROUPS[place:]]
    with answering(
        lambda path, body: refusal(message, status) if of_image(body, bad) else likely(path, body)
    ) as server:
        answers, _ = OpenAIBackend(MODEL, server.base_url).read(groups, LABELS)
        [[reply]] = OpenAIBackend(MODEL, server.base_url).generate([asked_about(bad)], Sampling())
    refused = answers.pop(2 * place)
    assert refused.unanswered.startswith(reason) and reply.unanswered.startswith(reason)
    assert all(answer.logprobs for answer in answers)


@pytest.mark.parametrize("texts_first", [False, True])
def test_a_server_of_texts_ends_the_run_whatever_it_says(texts_first):
    def of_texts(path, body):
        content = body["messages"][-1]["content"]
        return likely(path, body) if isinstance(content, str) else refusal(f"not a string: {content!r:.60}")

    with answering(of_texts) as server:
        backend = OpenAIBackend(MODEL, server.base_url)
        if texts_first:
            assert backend.read(GROUPS[1:], LABELS)[0][0].logprobs
        message = "does not take images: not a string" if texts_first else "not a string"
        groups = [ReadGroup(None, RED.mark, tuple(f"Is it {n}?" for n in range(9)))]
        with pytest.raises(ModelError, match=message):
            backend.read(groups, LABELS)


def test_a_wrong_key_is_not_taken_for_a_server_that_does_not_see():
    with answering(lambda path, body: refusal("invalid key", 401)) as server:
        with pytest.raises(ModelError, match="rejected a request: status 401: invalid key"):
            OpenAIBackend(MODEL, server.base_url).read(GROUPS[:1], LABELS)


def test_a_reply_beside_images_has_the_room_that_the_server_counts():
    """The context has 1000 tokens, and the prompt with its image 900. Only the server knows that."""

    def narrow(path, body):
        if body["max_tokens"] > 100:
            return refusal("This model's maximum context length is 1000 tokens. However, you requested more.")
        status, response = likely(path, body)
        return status, response | {"usage": {"prompt_tokens": 900, "completion_tokens": 1}}

    with answering(narrow) as server:
        [[reply]] = OpenAIBackend(MODEL, server.base_url).generate([asked_about(RED)], Sampling(max_tokens=400))
        asked = [body["max_tokens"] for body in server.of("/chat/completions")]
    assert reply.text == "Yes" and asked == [400, 1, 100]


def test_an_image_is_encoded_once_and_outside_of_the_loop(monkeypatch):
    encoded = []

    def encode(picture, file, kind, save=Pillow.Image.save):
        encoded.append(threading.current_thread().name)
        save(picture, file, kind)

    monkeypatch.setattr(Pillow.Image, "save", encode)
    image = image_of(Pillow.new("RGB", (8, 8), "yellow"))
    groups = [ReadGroup(None, f"{image.mark} {n} ", ("Is it red?", "Is it big?")) for n in range(8)]
    with answering(likely) as server:
        OpenAIBackend(MODEL, server.base_url).read(groups, LABELS)
    [thread] = encoded
    assert thread != "checklist-rewards-http"


def test_a_thought_before_a_label_is_refused_with_images(monkeypatch):
    with answering(likely) as server:
        backend = OpenAIBackend(MODEL, server.base_url)
        monkeypatch.setattr(type(backend), "continues", True)
        group = ReadGroup(None, RED.mark, ("Is it red?",), written=(Written("It is."),))
        with pytest.raises(ModelError, match="thinking=... cannot be combined with images on the server"):
            backend.read([group], LABELS)
