"""Images in texts: one value per image, its mark where it stood, and no way for a text to contain one by itself."""

import base64
import gc
import io
import json
import pickle
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from checklist_rewards import Checklist
from checklist_rewards.backends import Engine
from checklist_rewards.chat import CompletionReader, completion_text, prompt_text
from checklist_rewards.errors import SampleError
from checklist_rewards.images import (
    FORMATS,
    MAX_BYTES,
    MAX_PIXELS,
    TooManyImages,
    bounded,
    clean,
    has_images,
    image_of,
    is_plain,
    outside,
    parts,
    shown,
)
from checklist_rewards.messages import content_of, images_of, with_images
from checklist_rewards.rows import SENT, Columns, Pool, Request, Sample
from checklist_rewards.scorer import ChecklistScorer
from tests.fakes import FakeBackend

COLOURS = ("red", "green", "blue", "white")
PILLOWS = {colour: Pillow.new("RGB", (8, 8), colour) for colour in COLOURS}
IMAGES = {colour: image_of(pillow) for colour, pillow in PILLOWS.items()}
RED, BLUE = IMAGES["red"], IMAGES["blue"]
OPEN, CLOSE = RED.mark[0], RED.mark[-1]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from([OPEN, CLOSE]), max_size=20)
FORGED = st.one_of(TEXTS, st.sampled_from([RED.mark, f"a {BLUE.mark}", f"{OPEN}{'0' * 32}{CLOSE}", RED.mark[:-1]]))


def png(pillow) -> bytes:
    return saved(pillow, "PNG")


def saved(pillow, kind, **settings) -> bytes:
    file = io.BytesIO()
    pillow.save(file, kind, **settings)
    return file.getvalue()


def claims(width, height) -> bytes:
    """A PNG whose header claims a size, with the pixels of a small one."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return png(PILLOWS["red"]).replace(png(PILLOWS["red"])[12:33], header + struct.pack(">I", zlib.crc32(header)))


def upside_down(pillow) -> bytes:
    """A PNG that says that it is upside down."""
    exif = pillow.getexif()
    exif[0x0112] = 3
    return saved(pillow, "PNG", exif=exif)


def asks(*content):
    """A user message of texts and images."""
    blocks = [{"type": "text", "text": c} if isinstance(c, str) else {"type": "image", "image": c} for c in content]
    return [{"role": "user", "content": blocks}]


def asks_by(key, value, text="What?"):
    """A user message of an image part with one field, and a text."""
    return [{"role": "user", "content": [{"type": "image", key: value}, {"type": "text", "text": text}]}]


class Seeing(FakeBackend):
    """A fake engine that sees, and keeps what it was shown."""

    sees = True

    def __init__(self, **settings):
        super().__init__(self._answer, **settings)
        self.shown = []

    def _answer(self, prefix, tail):
        self.shown.append([part.key for part in parts(prefix) if not isinstance(part, str)])
        return 0.75


# ----- values -----


def test_equal_pixels_are_one_image_however_they_are_given(tmp_path):
    pillow, path = PILLOWS["red"], tmp_path / "red.png"
    path.write_bytes(png(pillow))
    url = f"data:image/png;base64,{base64.b64encode(png(pillow)).decode()}"
    given = [pillow, pillow.convert("RGBA"), png(pillow), path, str(path), np.asarray(pillow), url, RED]
    given += [{"bytes": png(pillow), "path": None}, {"bytes": None, "path": str(path)}, {"url": url}]
    given += [
        url.replace("/png", ""),
        f"file://{path}",
        {"image_url": f"file://{path}"},
        pickle.loads(pickle.dumps(RED)),
    ]
    assert {image_of(value).key for value in given} == {RED.key}
    assert image_of("red.png", folder=tmp_path) is RED and image_of(RED.url) is RED
    assert len({image.key for image in IMAGES.values()}) == len(COLOURS)
    assert image_of(Pillow.new("RGB", (4, 16), "red")).key != RED.key


def test_an_address_is_an_image_that_is_not_fetched():
    image = image_of("https://example.org/a.png")
    assert image.url == "https://example.org/a.png" and image.size is None
    with pytest.raises(SampleError, match="is an address, which is not fetched here"):
        _ = image.pillow


NO_IMAGES = {
    "missing.png": "row 1: 'missing.png' cannot be read: No such file",
    "a\0b": "cannot be read",
    "/dev/zero": "row 1: '/dev/zero' cannot be read: it is not a regular file",
    "A" * 10_000: "^row 1: 'A{299} cannot be read: File name too long.$",
    "large.png": "large.png' cannot be read: it has 256,000,001 bytes; at most 256,000,000 are",
    b"GIF89a": "row 1 cannot be decoded as an image",
    "data:image/png;base64,%%%": "row 1 is a data URL that cannot be decoded",
    7: "row 1 must be a PIL image, .* got int 7",
}
NOT_DECODED = "^row 1 cannot be decoded as an image: it is damaged, or not one of PNG, "


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *NO_IMAGES.items(),
        ({"width": 3}, "got a mapping with 'width'"),
        ({"hash": "0"}, "row 1 was logged without a path"),
        (np.zeros((2, 2, 7)), "row 1 is an array that is no image"),
        *((saved(PILLOWS["red"], kind), NOT_DECODED) for kind in "EPS PPM ICO JPEG2000 PDF".split()),
        (saved(Pillow.new("F", (2, 2), 1), "TIFF"), "32 bits per pixel .mode F.; convert it to 8 bits"),
    ],
)
def test_what_is_no_image_is_refused_in_one_sentence(value, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("large.png", "wb") as file:
        file.truncate(MAX_BYTES + 1)  # takes no space
    with pytest.raises(SampleError, match=message):
        image_of(value, "row 1")
    if isinstance(value, str) and not value.startswith("data:"):  # a client may not read files
        with pytest.raises(SampleError, match="must be a data URL"):
            image_of(value, folder=None)


def test_no_question_and_no_option_contains_an_image():
    options = [{"label": f"good{RED.mark}", "value": 1}, {"label": "bad", "value": 0}]
    [item] = Checklist.parse([{"question": f"Is it {RED.mark}?", "options": options}]).items
    assert not any(map(has_images, (item.question, *(option.label for option in item.options))))
    assert item.question.startswith("Is it ") and item.options[0].label.startswith("good")


def test_the_mark_of_an_image_that_nobody_holds_is_an_error():
    mark = image_of(Pillow.new("RGB", (3, 3), "pink")).mark
    gc.collect()
    with pytest.raises(SampleError, match="is not in memory"):
        parts(f"Look: {mark}")


# ----- files -----


@pytest.mark.parametrize("kind", FORMATS)
def test_of_each_format_the_first_frame_is_read(kind):
    settings = {"WEBP": {"lossless": True}, "MPO": {"quality": 100}}.get(kind, {})
    if kind in ("GIF", "TIFF", "WEBP", "PNG", "MPO"):
        settings |= {"save_all": True, "append_images": [PILLOWS["red"].copy()]}
    content = saved(PILLOWS["white"].copy(), kind, **settings)
    assert image_of(content) is IMAGES["white"] and image_of(Pillow.open(io.BytesIO(content))) is IMAGES["white"]


def test_a_pil_image_of_another_format_is_read_if_its_pixels_are_in_memory():
    pillow = Pillow.open(io.BytesIO(saved(PILLOWS["red"], "PPM")))
    with pytest.raises(SampleError, match="it is PPM, and not one of PNG, .*; load it before"):
        image_of(pillow)
    pillow.load()
    assert image_of(pillow) is RED


def test_changing_a_pil_image_changes_no_image():
    pillow = Pillow.new("RGB", (5, 5), "orange")
    image = image_of(pillow)
    pillow.putpixel((0, 0), (0, 0, 0))
    image.pillow.putpixel((0, 0), (0, 0, 0))
    assert image.pillow.getpixel((0, 0)) == (255, 165, 0) and image_of(pillow) is not image


def two_pixels(mode, *values):
    pillow = Pillow.new(mode, (2, 1))
    for place, value in enumerate(values):
        pillow.putpixel((place, 0), value)
    return pillow


def with_palette():
    pillow = two_pixels("P", 0, 1)
    pillow.putpalette([10, 20, 30, 200, 100, 50])
    return saved(pillow, "PNG", transparency=0)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_file_whose_pixels_are_the_same_for_every_decoder_is_sent_as_it_is(kind):
    content = saved(Pillow.effect_noise((16, 16), 50), kind)
    image = image_of(content)
    assert image.url == f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}"
    assert image.url is image.url


TWO = [(10, 20, 30), (200, 100, 50)]
FRAMES = saved(two_pixels("L", 0, 255), "GIF", save_all=True, append_images=[two_pixels("L", 9)])


@pytest.mark.parametrize(
    ("content", "pixels"),
    [
        (upside_down(two_pixels("RGB", *TWO)), TWO[::-1]),
        (with_palette(), TWO),
        (saved(two_pixels("RGBA", (10, 20, 30, 0), (200, 100, 50, 128)), "WEBP", lossless=True, exact=True), TWO),
        (saved(two_pixels("I;16", 0x0A00, 0xC8FF), "PNG"), [(10,) * 3, (200,) * 3]),
        (saved(two_pixels("LA", (10, 0), (200, 128)), "PNG"), [(10,) * 3, (200,) * 3]),
        (saved(two_pixels("I;16B", 0x0A00, 0xFFFF), "TIFF"), [(10,) * 3, (255,) * 3]),
        (saved(two_pixels("CMYK", (0, 0, 0, 0)), "JPEG"), [(255,) * 3] * 2),
        (saved(two_pixels("RGB", *TWO), "BMP"), TWO),
        (FRAMES, [(0,) * 3, (255,) * 3]),
    ],
    ids="rotated palette transparent 16-bit grey big-endian CMYK BMP frames".split(),
)
def test_any_other_file_is_sent_as_a_png_of_the_pixels_that_the_key_and_engines_have(content, pixels):
    image = image_of(content)
    assert [image.pillow.getpixel((x, 0)) for x in (0, 1)] == pixels
    assert image.url == f"data:image/png;base64,{base64.b64encode(png(image.pillow)).decode()}"
    assert image_of(image.url) is image_of(image.pillow) is pickle.loads(pickle.dumps(image)) is image


@pytest.mark.filterwarnings("ignore:Image size:PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [8_500, 20_000])  # Pillow itself refuses more than 179 million pixels
def test_too_many_pixels_are_refused_by_the_header_with_file_and_row(side, tmp_path):
    (tmp_path / "big.png").write_bytes(claims(side, side))
    rows = [{"prompt": "What?", "images": ["big.png"], "target": ""}]
    rows += [{"prompt": asks_by("path", "big.png"), "target": ""}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row, columns in Columns.each(tmp_path / "rows.jsonl"):
        with pytest.raises(SampleError, match=f"rows.jsonl, line {row.number}, .*big.png.* at most {MAX_PIXELS:,}"):
            columns.sample_of(row.data, row.where, ())


def test_a_missing_pillow_is_reported_and_missing_memory_is_no_error_of_an_image(monkeypatch):
    monkeypatch.setattr(Pillow, "open", lambda *_, **__: bytearray(2**62))
    with pytest.raises(MemoryError):
        image_of(png(PILLOWS["red"]))
    content = png(PILLOWS["red"])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(SampleError, match="^row 1 requires Pillow .*: pip install pillow.$"):
        image_of(content, "row 1")


def test_an_image_has_the_first_path_that_it_is_read_from_and_no_client_names_one(tmp_path):
    content = png(Pillow.new("RGB", (3, 3), "plum"))
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    image = image_of({"bytes": url, "path": "/etc/passwd"}, folder=None)
    cell = {"bytes": content, "path": "a.png"}
    assert image_of(cell, folder=tmp_path) is image  # the name of a file that the data set has copied
    assert image.source is None
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(content)
    for value in (cell, "a.png", "b.png"):
        assert image_of(value, folder=tmp_path) is image and image.source == str(tmp_path / "a.png")
    (tmp_path / "c.png").write_bytes(png(Pillow.new("RGB", (3, 3), "peru")))
    assert image_of(Pillow.open(bytes(tmp_path / "c.png"))).source == str(tmp_path / "c.png")


def test_equal_images_of_several_threads_are_one():
    with ThreadPoolExecutor(8) as threads:
        for shade in range(200):
            content = png(Pillow.new("RGB", (1, 1), (shade, 1, 2)))
            found = list(threads.map(image_of, [content] * 8))
            assert all(image is found[0] for image in found)


def test_a_logged_image_is_read_only_where_files_may_be_read(tmp_path):
    (tmp_path / "red.png").write_bytes(png(PILLOWS["red"]))
    logged = {"hash": RED.key, "path": str(tmp_path / "red.png")}
    assert image_of(logged) is RED
    with pytest.raises(SampleError, match="red.png' may not be read"):
        image_of(logged, may_read=lambda path: path.parent != tmp_path)
    with pytest.raises(SampleError, match="must be a data URL"):
        image_of(logged, folder=None)
    with pytest.raises(SampleError, match="has other pixels than the image that was logged"):
        image_of({**logged, "hash": BLUE.key})


def test_the_images_of_a_request_are_bounded_before_they_are_decoded():
    url = f"data:image/png;base64,{base64.b64encode(claims(100, 100)).decode()}"
    with bounded(2, 200):
        for image in (RED, BLUE, RED, BLUE):  # equal files count once
            assert image_of(image.url) is image
        with pytest.raises(TooManyImages, match="more than 2 images; send less at once"):
            image_of(IMAGES["green"].url)
    with bounded(2, 200), pytest.raises(TooManyImages, match="more than 200 pixels in images"):
        image_of(url)
    with pytest.raises(SampleError, match="cannot be decoded"):
        image_of(url)


# ----- order, and forged marks -----


@given(st.lists(st.one_of(TEXTS, st.sampled_from(COLOURS).map(PILLOWS.get)), max_size=8))
def test_texts_and_images_keep_their_order(content):
    prompt = with_images(asks(*content))
    [message] = prompt
    expected = []
    for part in content:  # neighbouring texts are one part
        if not isinstance(part, str):
            expected.append(image_of(part))
        elif clean(part):
            joined = isinstance(expected[-1], str) if expected else False
            expected[-1:] = [expected[-1] + clean(part)] if joined else [*expected[-1:], clean(part)]
    assert parts(content_of(message)) == expected
    assert images_of(prompt) == [part for part in expected if not isinstance(part, str)]


@given(FORGED, FORGED)
def test_no_text_becomes_an_image(text, other):
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": other, "reasoning_content": text},
        {"role": "tool", "name": text, "content": text},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": text, "arguments": other}}]},
        {"role": "user", "content": [{"type": "text", "text": other}]},
    ]
    assert not any(map(has_images, prompt_text(messages)))
    assert not has_images(prompt_text(text)[0])
    for part in ("answer", "transcript"):
        reader = CompletionReader(part=part, keep_thinking=True)
        for completion in (text, messages, messages[1:2]):
            target = reader.read(completion)
            assert is_plain(target.text) and all(is_plain(m.shown) and is_plain(m.text) for m in target.messages)
    row = {"prompt": other, "target": text, "history": text}
    read = Columns.of({"prompt": "", "target": ""}).sample_of(row, "row", ())
    for sample in (Sample(["Is it?"], text, None, other), read):
        assert not sample.images
        assert all(map(is_plain, (sample.target, sample.reference, sample.input, sample.history)))
    sample = Sample(["Is it?"], text, "What is this?", images=[RED])
    assert sample.images == (RED,) and sample.input == f"{RED.mark}What is this?" and is_plain(sample.target)


@given(st.text(max_size=50))
def test_texts_without_marks_are_unchanged(text):
    if not {OPEN, CLOSE} & set(text):
        assert clean(text) is text and shown(text) is text and outside(text, 3) == 3


@given(TEXTS, TEXTS, st.integers(0, 80))
def test_no_place_inside_a_mark_is_a_border(before, after, place):
    text = clean(before) + RED.mark + clean(after)
    start, end = len(clean(before)), len(clean(before)) + len(RED.mark)
    assert outside(text, place) == (end if start < place < end else place)


# ----- rows of data sets -----


PLACE = {"type": "image", "image": None, "text": None}  # as Arrow writes it
PLACES = [{"role": "user", "content": [PLACE, {"type": "text", "text": "or"}, PLACE]}, *asks("Which?")]
RULES = {"role": "system", "content": "Be brief."}
CHOICE = asks(PILLOWS["red"], "or", PILLOWS["blue"])
BOTH = [PILLOWS["red"], PILLOWS["blue"]]
CONTENT = base64.b64encode(png(PILLOWS["red"])).decode()
PARTS = [
    {"type": "image_url", "image_url": {"url": RED.url}},
    {"type": "input_image", "image_url": RED.url},
    {"type": "image", "url": RED.url},
    {"type": "image", "base64": CONTENT},
    {"type": "image", "source": {"type": "base64", "data": CONTENT}},
    {"image": PILLOWS["red"]},
]


@pytest.mark.parametrize(
    ("prompt", "images", "contents"),
    [
        (PLACES, BOTH, [f"{RED.mark}or{BLUE.mark}", "Which?"]),
        # in front of the first user message, as in TRL
        ([RULES, {"role": "user", "content": "A?"}], BOTH, ["Be brief.", f"{RED.mark}{BLUE.mark}A?"]),
        # TRL passes prompts with their images together with the column
        (CHOICE, BOTH, [f"{RED.mark}or{BLUE.mark}"]),
        (CHOICE, BOTH[1:], [f"{RED.mark}or{BLUE.mark}"]),
        ([{"role": "user", "content": [{**PLACE, "image": RED, "text": "A flag."}]}], (), [f"{RED.mark}A flag."]),
        *(([{"role": "user", "content": [part]}], (), [RED.mark]) for part in PARTS),
    ],
)
def test_images_of_messages_and_of_their_row_have_places(prompt, images, contents):
    assert list(map(content_of, with_images(prompt, images))) == contents


@pytest.mark.parametrize(
    ("prompt", "images", "message"),
    [
        (PLACES, BOTH[:1], "has 2 image parts without an image, but its row has 1"),
        (PLACES, BOTH * 2, "has 2 image parts without an image, but its row has 4"),
        (CHOICE, BOTH[::-1], "has 0 image parts without an image"),
        ([RULES], BOTH, "has no place for the images of its row"),
    ],
)
def test_images_without_a_place_and_places_without_an_image_are_refused(prompt, images, message):
    with pytest.raises(SampleError, match=message):
        with_images(prompt, images)


ROWS = [
    {"prompt": "What?", "image": PILLOWS["red"]},
    {"prompt": "What?", "images": [PILLOWS["red"]]},
    {"prompt": "What?", "images": json.dumps([RED.url])},
    {"prompt": [{"role": "user", "content": "What?"}], "image": {"bytes": png(PILLOWS["red"]), "path": None}},
    {"prompt": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}], "image": RED},
    {"prompt": asks(PILLOWS["red"], "What?"), "images": [PILLOWS["red"]], "image": None},
    {"prompt": asks(PILLOWS["red"], "What?")},
]


@pytest.mark.parametrize("row", ROWS)
def test_a_sample_holds_the_images_of_its_row(row):
    row = {**row, "target": "A red square."}
    columns = Columns.of(row)
    sample = columns.sample_of(row, "row 1", ["Is it red?"])
    assert sample.input == f"{RED.mark}What?" and sample.images == (RED,) and sample.history is None
    assert columns.request_of(row, "row 1").input == sample.input
    [pooled] = Pool(["Is it red?"], ["A red square."], sample.input, images=sample.images).samples
    assert pooled == sample == pickle.loads(pickle.dumps(sample))
    assert Request(sample.input).images == (RED,)
    assert columns.input_of(row, "row 1") == ("[image]What?", None)
    ignoring = Columns.of(row, images="ignore").sample_of(row, "row 1", ["Is it red?"])
    assert ignoring.input == "What?" and not ignoring.images


def test_a_prompt_of_several_columns_has_the_text_of_its_columns_and_the_images_of_its_row():
    columns = Columns(("prompt", "input"), history=None)
    for row in ({"prompt": "What?", "image": RED}, {"prompt": asks(PILLOWS["red"], "What?")}):
        [message] = columns.asked_of({**row, "input": "Why?"}, "row 1")
        assert content_of(message) == f"{RED.mark}What?\n\nWhy?"
    assert columns.messages_of({"prompt": "What?", "input": "Why?", "image": RED}, "row 1") == "What?\n\nWhy?"
    with pytest.raises(SampleError, match="an image in a message has no place in the text of several"):
        columns.messages_of({**row, "input": "Why?"}, "row 1")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({"images": [RED, None]}, "row 1, 'images', image 2 must be a PIL image, .*; got NoneType None"),
        ({"image": RED, "images": [RED]}, "row 1: the row has images in 'images' and in 'image'"),
    ],
)
def test_no_image_of_a_row_is_left_out(images, message):
    row = {"prompt": "What?", "target": "Red.", **images}
    with pytest.raises(SampleError, match=message):
        Columns.of(row).sample_of(row, "row 1", ())


def test_paths_begin_in_the_folder_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "red.png").write_bytes(png(PILLOWS["red"]))
    (tmp_path / "data" / "rows.jsonl").write_text(
        json.dumps({"prompt": "What?", "image": "red.png", "target": "Red."})
    )
    monkeypatch.chdir(tmp_path)
    [(row, columns)] = Columns.each("data/rows.jsonl")
    assert columns.sample_of(row.data, row.where, ()).images == (RED,)
    (tmp_path / "data" / "red.png").unlink()
    with pytest.raises(SampleError, match=r"rows.jsonl, line 1, 'image': 'data/red.png' cannot be read: No such file"):
        columns.sample_of(row.data, row.where, ())


def test_targets_and_requests_name_no_files_and_a_reference_has_no_images(tmp_path):
    (tmp_path / "red.png").write_bytes(png(PILLOWS["red"]))
    path = str(tmp_path / "red.png")
    for image in ("red.png", path):
        row = {"prompt": "What?", "target": [{"role": "assistant", "content": asks_by("image", image)[0]["content"]}]}
        (tmp_path / "rows.jsonl").write_text(json.dumps(row))
        [(row, columns)] = Columns.each(tmp_path / "rows.jsonl")
        with pytest.raises(SampleError, match="line 1, 'target': image part 1 of a completion must be a data URL"):
            columns.sample_of(row.data, row.where, ())
    prompt = asks_by("path", path)
    for row in ({"input": "What?", "images": [path]}, {"input": prompt}, {"input": json.dumps(prompt)}):
        with pytest.raises(SampleError, match="must be a data URL"):
            SENT.sample_of({**row, "target": ""}, "row 1", ())
    with pytest.raises(SampleError, match="only inputs, histories and targets may have images"):
        completion_text([{"role": "assistant", "content": asks(PILLOWS["red"])[0]["content"]}])


# ----- the judge -----


def test_a_judge_that_sees_gets_the_images_and_equal_images_are_read_once():
    backend = Seeing()
    scorer = ChecklistScorer(Engine(backend=backend), store=False)
    pillows = PILLOWS["red"], PILLOWS["red"].copy(), PILLOWS["blue"]
    samples = [Sample(["Is it red?"], "Red.", "What?", images=[pillow]) for pillow in pillows]
    assert [score.primary_score for score in scorer.score_batch(samples)] == [0.75] * 3
    assert backend.shown == [[RED.key], [BLUE.key]]


def test_a_judge_of_text_refuses_images_before_any_read():
    backend = FakeBackend()
    scorer = ChecklistScorer(Engine("words", backend=backend), store=False)
    seen, plain = Sample(["Is it?"], "Red.", images=[RED]), Sample(["Is it?"], "Red.", "What?")
    with pytest.raises(SampleError, match="sample 2: the input has an image, but the judge 'words' reads text only"):
        scorer.score_batch([plain, seen])
    assert not backend.asked
    assert scorer.score_batch([Sample(["Is it?"], "", state="empty", images=[RED])])[0].no_answer
    code = {"question": "Is it short?", "check": {"type": "words", "at_most": 3}}
    assert scorer.score([code], "Red.", images=[RED]).primary_score == 1.0


def test_code_reads_a_word_in_place_of_an_image():
    code = [{"question": "Is it short?", "check": {"type": "words", "exactly": 2}}]
    sample = Sample(code, f"Look: {RED.mark}", target_images=[RED])
    assert ChecklistScorer(store=False).score_batch([sample])[0].primary_score == 1.0


def test_an_eps_file_starts_no_program(tmp_path, monkeypatch):
    from PIL import EpsImagePlugin

    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    content = saved(PILLOWS["red"], "EPS")
    for value in (content, Pillow.open(io.BytesIO(content))):
        with pytest.raises(SampleError, match="not one of PNG"):
            image_of(value)
    assert not (tmp_path / "started").exists()
    with pytest.raises(OSError):  # the image of the other program is missing
        Pillow.open(io.BytesIO(content)).load()
    assert (tmp_path / "started").exists()
