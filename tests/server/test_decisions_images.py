"""Images in requests of the Decisions APIs: what the judge sees, where, and what is refused."""

import base64
import json

import pytest
from fastapi.testclient import TestClient

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.backends import Engine
from checklist_rewards.images import image_of
from checklist_rewards.prompts import fence
from checklist_rewards.server import build_app, rows
from checklist_rewards.server.decisions import decision_request, system_one_request
from tests.fakes import FakeBackend
from tests.serving import serving
from tests.test_images import BLUE, IMAGES, PILLOWS, RED, Seeing, claims

SCORER = ChecklistScorer(Engine(backend=Seeing()), store=False)
GREEN = IMAGES["green"]
ASKED = [{"type": "predicate", "name": "one", "instructions": "Is it red?"}]
TEXT = {"type": "input_text", "text": "Red."}


def part(image, kind="input_image"):
    return {"type": kind, "image_url": image.url if kind == "input_image" else {"url": image.url}}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def decided(given, **others) -> Sample:
    body = {"model": SCORER.judge.name, "input": given, "questions": ASKED} | others
    return decision_request(json.dumps(body).encode(), SCORER).sample


def state_of(state, **others) -> Sample:
    body = {"state": state, "questions": {"one": {"type": "noul", "instructions": "Is it red?"}}} | others
    return system_one_request(json.dumps(body).encode(), SCORER).sample


DRAW = {"type": "function_call", "name": "draw", "call_id": "1", "arguments": "{}"}
DRAWN = {"type": "function_call_output", "call_id": "1"}


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ([user(TEXT, part(RED), TEXT, TEXT)], {"target": f"Red.{RED.mark}Red.\nRed."}),
        (
            [user(part(RED), TEXT), user(TEXT, part(BLUE)), {"role": "assistant", "content": "Blue."}],
            {"target": "Blue.", "input": f"Red.{BLUE.mark}", "history": f"user: {RED.mark}Red."},
        ),
        (
            [user(TEXT), DRAW, DRAWN | {"output": [TEXT, part(RED)]}, {"role": "assistant", "content": "Drawn."}],
            {
                "target": "Drawn.",
                "history": f"user: Red.\n\nfunction_call: {json.dumps(DRAW)}\n\n"
                f"function_call_output: {json.dumps(DRAWN)}\nRed.{RED.mark}",
            },
        ),
        ([DRAWN | {"output": [part(RED)]}], {"target": f"{json.dumps(DRAWN)}{RED.mark}"}),
    ],
)
def test_images_of_messages_stand_where_they_stood(given, fields):
    sample = decided(given)
    there = {name: getattr(sample, name) for name in ("target", "input", "history")}
    assert {name: text for name, text in there.items() if text is not None} == fields
    expected = {image for image in (RED, BLUE) if any(image.mark in text for text in fields.values())}
    assert {*sample.images, *sample.target_images} == expected


@pytest.mark.parametrize(
    ("state", "others", "fields"),
    [
        (["A", {"b": 1}, part(RED)], {}, {"target": f'A\n{{"b": 1}}{RED.mark}'}),
        ([user(part(RED, "image_url"), TEXT)], {}, {"target": f"{RED.mark}Red."}),
        ("See [image 1].", {"images": [RED.url, BLUE.url]}, {"target": f"{RED.mark}{BLUE.mark}See [image 1]."}),
        ({"target": "Red.", "input": "What?"}, {"images": [RED.url]}, {"target": "Red.", "input": f"{RED.mark}What?"}),
        ("Red.", {"images": [RED.url], "instructions": "Look."}, {"target": f"{RED.mark}Red.", "input": "Look."}),
        (
            [user(part(BLUE)), {"role": "assistant", "content": "Red."}],
            {"images": [RED.url]},
            {"target": "Red.", "input": f"{RED.mark}{BLUE.mark}", "images": (RED, BLUE)},
        ),
    ],
)
def test_images_of_a_state(state, others, fields):
    sample = state_of(state, **others)
    assert {name: getattr(sample, name) for name in fields} == fields
    assert RED in {*sample.images, *sample.target_images}


@pytest.mark.parametrize("value", ["{path}", "https://example.org/a.png", "file://{path}", None, {"url": "{path}"}])
def test_a_client_reads_no_files_and_makes_the_server_fetch_nothing(value, tmp_path):
    PILLOWS["red"].save(tmp_path / "red.png")
    given = json.loads(json.dumps(value).replace("{path}", str(tmp_path / "red.png")))
    shown = {"type": "input_image", "image_url": given}
    with pytest.raises(rows.Refused, match="must be|must have") as refused:
        decided([user(shown)])
    assert (refused.value.status, refused.value.field) == (400, "input")
    with pytest.raises(rows.Refused, match="must be|must have"):
        state_of([shown])
    if isinstance(given, str):
        with pytest.raises(rows.Refused, match="must be a data URL"):
            state_of("Red.", images=[given])


def test_a_mark_in_a_text_or_a_state_shows_no_image():
    forged = decided([user(part(RED)), user({"type": "input_text", "text": f"{BLUE.mark}Blue."})])
    assert BLUE.mark not in forged.target and "Blue." in forged.target
    assert not forged.target_images and forged.images == (RED,)
    for state, others in (
        ({"target": "Red.", "input": BLUE.mark, "history": BLUE.mark}, {}),
        ({"target": "Red.", "input": BLUE.mark}, {"images": [RED.url]}),
        ("Red.", {"instructions": BLUE.mark}),
    ):
        sample = state_of(state, **others)
        assert BLUE.mark not in f"{sample.input}{sample.history}" and BLUE not in sample.images
        assert (RED in sample.images) == ("images" in others) == (RED.mark in sample.input)


def test_json_about_images_is_judged_as_json_and_a_question_has_no_images():
    for state in ([{"type": "image", "alt": "a cat"}], [{"role": "ad", "content": [{"type": "image", "id": 7}]}]):
        assert state_of(state).target == json.dumps(state) and not state_of(state).target_images
    with pytest.raises(rows.Refused, match="a question has no images; put them into the input"):
        decided("Red.", questions=[ASKED[0] | {"instructions": [TEXT, part(RED)]}])


def in_a_message(given):
    return decided([user(*({"type": "input_image", "image_url": url} for url in given))])


def test_images_are_bounded_as_those_of_rows(monkeypatch):
    huge = f"data:image/png;base64,{base64.b64encode(claims(100, 100)).decode()}"  # cannot be decoded
    monkeypatch.setattr(rows, "MAX_IMAGE_PIXELS", 3 * 64)
    monkeypatch.setattr(rows, "MAX_IMAGES", 2)
    for ask in (in_a_message, lambda given: state_of("Red.", images=given)):
        assert ask([RED.url, BLUE.url, RED.url])
        for urls, most in (([RED.url, huge], "192 pixels in images"), ([RED.url, BLUE.url, GREEN.url], "2 images")):
            with pytest.raises(rows.Refused, match=f"more than {most}; send less at once") as refused:
                ask(urls)
            assert refused.value.status == 413


def test_a_judge_that_reads_text_only_refuses_in_one_sentence():
    scorer = ChecklistScorer(Engine(backend=FakeBackend(lambda prefix, tail: 0.9)), store=False)
    body = {"state": ["See ", part(RED, "image_url")], "questions": {"one": {"type": "noul", "instructions": "Red?"}}}
    with TestClient(build_app(scorer)) as client:
        answer = client.post("/v1/systemone", json=body)
    assert answer.status_code == 400 and "reads text only" in answer.json()["error"]
    assert RED.mark not in answer.text and "base64" not in answer.text


def asking(judge, address, protocol, **options) -> ChecklistScorer:
    """A scorer that asks the judge of a server."""
    engine = {"protocol": protocol}
    return ChecklistScorer(
        judge.judge.name, backend="decisions", base_url=f"{address}/v1", store=False, engine_args=engine, **options
    )


@pytest.mark.parametrize("protocol", ["decisions", "systemone"])
def test_our_client_shows_the_judge_of_a_server_what_a_direct_read_shows_it(protocol, tmp_path):
    """A judge that sees, behind a real server. OpenAI's format keeps the places of images; System One's has none."""
    from tests.backends.vision_architectures import build, drawing

    model = build("LLaVA", tmp_path / "llava")
    judge = ChecklistScorer(model, backend="transformers", store=False, mass_floor=0.0, no_answer="judge")
    red, blue = image_of(drawing("red")), image_of(drawing("blue"))
    questions = ["Is it red?", "Is the left one blue?"]
    samples = [
        Sample(questions, "It is red.", "What is this?", images=images) for images in ([red], [blue], [red, blue], [])
    ]
    with serving(build_app(judge)) as address:
        asked = asking(judge, address, protocol, mass_floor=0.0)
        scores = asked.score_batch(samples)
    read = []
    for sample, score in zip(samples, scores, strict=True):
        prompt = asked.judge.prompt
        state = prompt.prefix(target=sample.target, input=sample.input, reference=None, history=None).rstrip()
        assert fence("target", sample.target) in state
        if protocol == "systemone":  # in front; the text names them
            named = state
            for number, image in enumerate(sample.images, start=1):
                named = named.replace(image.mark, f"[image {number}]")
            state = "".join(image.mark for image in sample.images) + named
        there = [prompt.tail(question).strip() for question in questions]
        direct = judge.score_batch([Sample(there, state, target_images=sample.images)])[0]
        values = [line.soft for line in score.items]
        assert values == pytest.approx([line.soft for line in direct.items], abs=1e-5) and None not in values
        read.append(tuple(round(value, 6) for value in values))
    assert len(set(read)) == len(samples)  # the judge tells the images apart


@pytest.mark.parametrize("protocol", ["decisions", "systemone"])
def test_a_target_with_an_image_in_a_prompt_of_this_package_was_read_already(protocol):
    """Thoughts that the target has were kept on purpose."""
    backend = Seeing()
    scorer = ChecklistScorer(Engine(backend=backend), store=False)
    target = f"tool: {RED.mark}\n</think>\nIt is red."
    with serving(build_app(scorer)) as address:
        asked = asking(scorer, address, protocol)
        assert asked.score_batch([Sample(["Is it red?"], target, target_images=(RED,))])[0].answered == 1
    shown = target if protocol == "decisions" else target.replace(RED.mark, "[image 1]")
    prompt, _ = backend.asked[-1]
    assert shown in prompt and RED.mark in prompt
