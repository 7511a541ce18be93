"""Prompts with images: equal by content, whatever objects hold it, and loggable as JSON."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from checklist_rewards.errors import SampleError
from checklist_rewards.keys import content_key, described

PIXEL = Image.new("RGB", (2, 1), (255, 0, 0))


def asks(image, text="What is it?"):
    return [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": text}]}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (asks(PIXEL), asks("<image 2x1 RGB, sha256 1aee68b0b41b970d>")),
        (None, None),
        ("A", "A"),
        (("A", 1, 0.5, True), ["A", 1, 0.5, True]),
        ({1: "A"}, {"1": "A"}),
        (b"GIF89a", "<bytes 6, sha256 610f5ae4d76e3326>"),
        (lambda: None, "<function>"),  # has no content that could be compared
    ],
)
def test_text_is_kept_and_what_is_none_becomes_a_short_description(value, shown):
    assert described(value) == shown
    assert json.loads(json.dumps(described(value))) == shown


def png(image) -> bytes:
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


MAKERS = {
    "image": lambda colour: Image.new("RGB", (2, 1), colour),
    "palette": lambda colour: Image.new("RGB", (2, 1), colour).quantize(2),
    "file": lambda colour: Image.open(io.BytesIO(png(Image.new("RGB", (2, 1), colour)))),
    "bytes": lambda colour: png(Image.new("RGB", (2, 1), colour)),
    "dict": lambda colour: {"bytes": png(Image.new("RGB", (2, 1), colour)), "path": None},
    "array": lambda colour: np.asarray(Image.new("RGB", (2, 1), colour)),
    "view": lambda colour: memoryview(png(Image.new("RGB", (2, 1), colour))),
    "tensor": lambda colour: torch.tensor(np.array(Image.new("RGB", (2, 1), colour))),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_equal_images_in_different_objects_have_one_key_and_other_images_another(make):
    assert content_key(asks(make("red"))) == content_key(asks(make("red")))
    assert content_key(asks(make("red"))) != content_key(asks(make("blue")))
    assert content_key(asks(make("red"))) != content_key(asks(make("red"), "Where is it?"))


ARRAY = np.arange(48, dtype=np.uint8).reshape(4, 6, 2)
ORDERS = {
    "Fortran": np.asfortranarray,
    "transposed": lambda array: array.T.copy().T,
    "reversed": lambda array: array[::-1].copy()[::-1],
    "slice": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "read-only": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_equal_arrays_have_one_key_however_they_are_in_memory(order):
    other = order(ARRAY)
    assert (other == ARRAY).all() and content_key(other) == content_key(ARRAY) != content_key(other + 1)


def test_equal_tensors_have_one_key_however_they_are_in_memory():
    tensor = torch.tensor(ARRAY).bfloat16()
    other = tensor.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert content_key(other) == content_key(tensor) != content_key(tensor + 1)


def test_the_keys_of_earlier_versions():
    """In `trainer_state.json`, the items of evolving checklists have them."""
    images = PIXEL, Image.new("L", (3, 70), 7), b"GIF89a", "a.png"
    assert [content_key(asks(image))[:8] for image in images] == ["d898eb7c", "ecfa402c", "0df1f34c", "2d0b5c8e"]


def test_an_image_that_cannot_be_decoded_is_described_without_its_content():
    cut = Image.open(io.BytesIO(png(Image.effect_noise((64, 64), 50))[:500]))
    assert described(cut) == "<image 64x64 L>"
    with pytest.raises(SampleError, match="an image of a prompt cannot be decoded"):
        content_key([cut])  # it would be the key of other images too
