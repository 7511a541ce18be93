"""Images in requests: data URLs only, where the client put them, and bounded in number."""

import base64
import json

import pytest

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.judges.base import Ask
from checklist_rewards.judges.remote import _row, _with_urls
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.server import rows as read
from checklist_rewards.server.rows import Refused, reward_samples, score_samples
from tests.server.bodies import openrlhf
from tests.test_images import BLUE, PILLOWS, RED, Seeing, asks, asks_by, claims

SCORER = ChecklistScorer(Engine(backend=Seeing()), store=False)


def scored(**row):
    """The sample of one row of `/score`, or its error."""
    body = {"samples": [{"checklist": ["Is it red?"], "target": "Red.", **row}]}
    _, samples, errors = score_samples(json.dumps(body).encode(), SCORER)
    return samples[0][1] if samples else errors[0]


def test_rows_have_images_in_messages_and_in_a_field():
    assert scored(input="What?", images=[RED.url]).input == f"{RED.mark}What?"
    sample = scored(input=asks("This ", {"url": RED.url}, " or ", {"url": BLUE.url}))
    assert sample.input == f"This {RED.mark} or {BLUE.mark}" and sample.images == (RED, BLUE)
    assert scored(input=[{"role": "user", "content": [{"type": "image"}]}], images=RED.url).images == (RED,)


@pytest.mark.parametrize("value", ["{path}", "https://example.org/a.png", "file://{path}", {"path": "{path}"}])
def test_a_client_reads_no_files_and_makes_the_server_fetch_nothing(value, tmp_path):
    PILLOWS["red"].save(tmp_path / "red.png")
    value = json.loads(json.dumps(value).replace("{path}", str(tmp_path / "red.png")))
    answer = [{"role": "assistant", "content": [{"type": "image", "image": value}, {"type": "text", "text": "Red."}]}]
    for field, row in (
        ("images", {"images": [value]}),
        ("input", {"input": asks_by("image", value)}),
        ("target", {"target": answer}),
        ("reference", {"reference": answer}),
    ):
        error = scored(**row)
        assert error["field"] == field and ("must be" in error["message"]), error


def test_the_client_of_a_server_sends_the_images_of_its_texts_and_no_other_mark_counts():
    item = ChecklistItem(question="Is it red?")
    asked = Ask(item, f"Look: {BLUE.mark}", f"{RED.mark}What?")
    row = _with_urls(_row([asked]))
    assert row["images"] == [RED.url, BLUE.url]
    sample = scored(**row)
    assert (sample.input, sample.target) == (asked.input, asked.target)
    assert set(sample.images) | set(sample.target_images) == {RED, BLUE}
    forged = scored(**{**row, "images": []})
    assert "\ufdd0" not in forged.input + forged.target and not forged.images
    assert "images" not in _row([Ask(item, "Red.", "What?")])


def test_reward_requests_have_images_by_row():
    body = openrlhf("a red thing", "a blue thing")
    for images, second in (([None, [BLUE.url]], (BLUE,)), (None, ()), ([], ())):
        samples = reward_samples(json.dumps(body | {"images": images}).encode(), SCORER)
        assert [tuple(sample.images) for sample in samples] == [(), second]


@pytest.mark.parametrize(("images", "got"), [([RED.url], "1 entries"), (RED.url, "str 'data")])
def test_images_that_belong_to_no_row_of_a_reward_request_are_refused(images, got):
    body = openrlhf("a red thing", "a blue thing") | {"images": images}
    expected = rf"^images must have one entry per query \(2\), or be null, got {got}"
    with pytest.raises(Refused, match=expected) as refused:
        reward_samples(json.dumps(body).encode(), SCORER)
    assert (refused.value.status, refused.value.field) == (422, "images")


def test_more_images_than_allowed_are_refused(monkeypatch):
    monkeypatch.setattr(read, "MAX_IMAGES", 2)
    assert scored(images=[RED.url, BLUE.url]).images == (RED, BLUE)
    rows = [{"checklist": ["Is it red?"], "target": "Red.", "images": [RED.url]}] * 3  # the judge sees it three times
    with pytest.raises(Refused, match="more than 2 images"):
        score_samples(json.dumps({"samples": rows}).encode(), SCORER)


def test_pixels_of_all_rows_together_are_bounded_before_any_is_decoded(monkeypatch):
    monkeypatch.setattr(read, "MAX_IMAGE_PIXELS", 3 * 64)
    rows = [{"checklist": ["Is it red?"], "target": "Red.", "images": [image.url]} for image in (RED, BLUE)]
    assert len(score_samples(json.dumps({"samples": [*rows, *rows]}).encode(), SCORER)[1]) == 4
    huge = f"data:image/png;base64,{base64.b64encode(claims(100, 100)).decode()}"  # cannot be decoded
    asked = asks_by("image", {"url": huge})
    for more in ({"images": [huge]}, {"input": asked}, {"input": json.dumps(asked)}):
        body = {"samples": [*rows, {**rows[0], "images": [], **more}]}
        with pytest.raises(Refused, match="more than 192 pixels in images; send less at once") as refused:
            score_samples(json.dumps(body).encode(), SCORER)
        assert refused.value.status == 413


def test_missing_memory_is_no_error_of_a_row(monkeypatch):
    monkeypatch.setattr(read, "images_of_row", lambda *_: bytearray(2**62))
    with pytest.raises(MemoryError):
        scored(images=[RED.url])
