"""Images in the requests of a decisions judge: in the places of each wire format, and what a server may refuse."""

import os

import pytest
from PIL import Image as Pillow
from pydantic import TypeAdapter

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.decisions import backend as decisions_backend
from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.protocols import DecisionQuestion, OpenAIDecisions, SystemOne
from checklist_rewards.backends.openai.wire import WHITE
from checklist_rewards.errors import ModelError
from checklist_rewards.images import image_of
from tests.backends.answerserver import MODEL, SETTINGS, answering, refusal

RED, BLUE = (image_of(Pillow.new("RGB", (8, 8), colour)) for colour in ("red", "blue"))
WEB = image_of("https://example.org/cat.png")
STATE = f"First {RED.mark} then {WEB.mark}{RED.mark}."
QUESTION = DecisionQuestion("predicate", "Is it red?")
QUESTIONS = {"q1": QUESTION}
GROUP = ReadGroup(None, STATE, (QUESTION.text(),))
TEXT = ReadGroup(None, "No image.", (QUESTION.text(),))


def test_openai_has_images_in_their_places_and_a_body_that_its_sdk_declares():
    params = pytest.importorskip("openai.types.decision_create_params")
    shown = [{"type": "input_image", "image_url": image.url} for image in (RED, WEB)]
    texts = [{"type": "input_text", "text": text} for text in ("First ", " then ", ".")]
    content = [texts[0], shown[0], texts[1], shown[1], shown[0], texts[2]]
    body = OpenAIDecisions().body(MODEL, "You judge.", STATE, QUESTIONS)
    assert body["input"] == [{"role": "developer", "content": "You judge."}, {"role": "user", "content": content}]
    TypeAdapter(params.DecisionCreateParams).validate_python(body)


def test_system_one_names_images_in_their_places_and_sends_each_once():
    body = SystemOne().body(MODEL, None, STATE, QUESTIONS)
    assert body["state"] == "First [image 1] then [image 2][image 1]." and body["images"] == [RED.url, WEB.source]
    of_openrouter = SystemOne(openrouter=True).body(MODEL, None, STATE, QUESTIONS)
    shown = [{"type": "image_url", "image_url": {"url": image.url}} for image in (RED, WEB)]
    assert of_openrouter["state"] == ["First ", shown[0], " then ", shown[1], shown[0], "."]
    assert "images" not in of_openrouter
    assert SystemOne(openrouter=True).body(MODEL, None, "No image.", QUESTIONS)["state"] == "No image."


@pytest.mark.vllm
def test_vllm_declares_the_field_of_system_one():
    protocol = pytest.importorskip("vllm.entrypoints.generate.structured_decisions.protocol")
    request = protocol.StructuredDecisionRequest(**SystemOne().body(MODEL, None, STATE, QUESTIONS))
    assert request.images == [RED.url, WEB.source] and not request.model_extra


def shows(body, image):
    return image.url in str(body)


def decides(path, body, tokens=None):
    """A server that counts the tokens of a request."""
    usage = {"input_tokens": len(body.get("images") or ()) * 9 + 50 if tokens is None else tokens, "output_tokens": 1}
    if path.endswith("/systemone"):
        return 200, {"answers": {"q1": {"type": "noul", "noul": 0.75}}, "usage": usage}
    return 200, {"answers": [{"type": "predicate", "name": "q1", "probability": 0.75}], "usage": usage}


@pytest.mark.parametrize(("protocol", "requests"), [("systemone", 3), ("decisions", 2)])
def test_a_server_is_shown_a_white_image_once(protocol, requests):
    with answering(decides) as server:
        backend = DecisionsBackend(MODEL, server.base_url, protocol=protocol, **SETTINGS)
        backend.read([TEXT])
        assert backend.sees and not any(shows(body, image_of(WHITE)) for _, body in server.asked)
        del server.asked[:]
        answers, _ = backend.read([GROUP, ReadGroup(None, BLUE.mark, GROUP.tails), TEXT])
        assert len(server.asked) == requests + 2 and all(answer.logprobs for answer in answers)
        assert sum(shows(body, image_of(WHITE)) for _, body in server.asked) == 1
        del server.asked[:]
        backend.read([GROUP])
        assert len(server.asked) == 1


SAYS = "this model reads text only"
IGNORES = "as many tokens for a request with an image as without it"


@pytest.mark.parametrize(
    ("protocol", "respond", "why"),
    [
        ("systemone", lambda p, b: refusal(SAYS) if "images" in b else decides(p, b), SAYS),
        ("decisions", lambda p, b: decides(p, b) if isinstance(b["input"], str) else refusal(SAYS, 422), SAYS),
        ("systemone", lambda p, b: decides(p, b, 50), IGNORES),  # it does not know the field
    ],
)
def test_a_server_that_does_not_see_ends_the_run_in_one_sentence(protocol, respond, why):
    with answering(respond) as server:
        backend = DecisionsBackend(MODEL, server.base_url, protocol=protocol, **SETTINGS)
        assert backend.read([TEXT])[0][0].logprobs
        with pytest.raises(ModelError, match=f"does not take images at /{protocol}: .*{why}.*images='ignore'"):
            backend.read([TEXT, GROUP])
        assert not any(shows(body, RED) for _, body in server.asked)


@pytest.mark.parametrize("down", [1, 2])
def test_while_it_is_not_known_whether_a_server_sees_it_is_asked_about_no_image(down):
    """A server that ignores images, and fails at one of the requests with which that is found out."""
    at = []

    def respond(path, body):
        at.append(body)
        return refusal("loading", 503) if len(at) == down else decides(path, body, 50)

    with answering(respond) as server:
        backend = DecisionsBackend(MODEL, server.base_url, protocol="systemone", **SETTINGS | {"attempts": 1})
        assert "loading" in str(backend.read([GROUP])[0][0].unanswered)
        with pytest.raises(ModelError, match=IGNORES):
            backend.read([GROUP])
        assert not any(shows(body, RED) for _, body in server.asked)


def test_a_forked_child_finds_out_for_itself():
    """Where several requests of the parent have waited for it."""
    groups = [ReadGroup(None, f"{RED.mark}{n}", GROUP.tails) for n in range(4)]
    with answering(decides) as server:
        backend = DecisionsBackend(MODEL, server.base_url, protocol="systemone", **SETTINGS | {"attempts": 1})
        sound, server.respond = server.respond, lambda p, b: refusal("loading", 503)
        backend.read(groups)
        server.respond = sound
        child = os.fork()
        if child == 0:
            try:
                sound = all(answer.logprobs for answer in backend.read(groups)[0])
            except BaseException:
                os._exit(2)
            os._exit(0 if sound else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_one_image_that_a_server_refuses_costs_its_reads_only():
    with answering(lambda p, b: refusal("image exceeds 5 MB maximum") if shows(b, RED) else decides(p, b)) as server:
        backend = DecisionsBackend(MODEL, server.base_url, **SETTINGS)
        answers, _ = backend.read([GROUP, ReadGroup(None, BLUE.mark, GROUP.tails)])
    assert answers[0].unanswered == "backend_error: status 400: image exceeds 5 MB maximum" and answers[1].logprobs


def test_the_protocol_is_found_by_a_request_with_images_and_a_server_that_counts_no_tokens_is_trusted():
    def respond(path, body):
        return decides(path, body, 0) if path.endswith("/decisions") else refusal("not found", 404)

    with answering(respond) as server:
        backend = DecisionsBackend(MODEL, server.base_url, **SETTINGS)
        assert backend.read([GROUP])[0][0].logprobs
    assert [protocol.path for protocol in backend._protocols] == ["/decisions"]


def test_openrouter_is_asked_with_a_state_of_parts(monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "key")
    answer = {"answers": {"q1": {"type": "noul", "noul": 0.75}}, "usage": {"input_tokens": 9, "output_tokens": 1}}
    with answering(lambda p, b: (200, answer)) as server:
        monkeypatch.setattr(decisions_backend, "_OPENROUTER_DECISIONS", server.base_url)
        assert DecisionsBackend(MODEL, "openrouter", **SETTINGS).read([GROUP])[0][0].logprobs
        assert [type(body["state"]) for body in server.of("/decisions")] == [list, list]


def test_a_wrong_key_is_not_taken_for_a_server_that_does_not_see():
    with answering(lambda p, b: refusal("invalid key", 401)) as server:
        backend = DecisionsBackend(MODEL, server.base_url, **SETTINGS)
        with pytest.raises(ModelError, match="rejected a request: status 401: invalid key"):
            backend.read([GROUP])
