"""Images in the calls of a reward: prompts, columns, results of tools, and the log."""

import io
import json
from collections import Counter

import pytest
from PIL import Image as Pillow
from transformers import AutoTokenizer

from checklist_rewards import ChecklistScorer, images, keys
from checklist_rewards.backends import Engine
from checklist_rewards.backends.models import pocket_dir
from checklist_rewards.chat import CompletionReader
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.images import image_of
from checklist_rewards.rewards.integrations.labelled import labelled_sample
from checklist_rewards.rewards.trl import ChecklistReward
from tests.test_images import BLUE, PILLOWS, RED, Seeing, asks, asks_by

ASKED = "What colour is it?"


def place(image=None):
    return {"type": "image"} if image is None else {"type": "image", "image": image}


def rewarded(backend, **options):
    return ChecklistReward(ChecklistScorer(Engine(backend=backend), store=False), **options)


def test_images_that_tools_return_are_in_the_transcript_and_its_scopes():
    backend = Seeing()
    reward = rewarded(backend, judged="transcript")
    completion = [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]},
        {"role": "tool", "name": "look", "content": [place(PILLOWS["blue"]), {"type": "text", "text": "Seen."}]},
        {"role": "assistant", "content": "It is blue."},
    ]
    items = ["Is it blue?", {"question": "Does it show blue?", "scope": "any_tool_result"}]
    assert reward([asks(PILLOWS["red"], ASKED)], [completion], [items]) == [0.75]
    [sample] = reward.last.samples
    assert sample.images == (RED,) and sample.target_images == (BLUE,)
    assert sample.target == f"assistant calls look()\n\ntool look: {BLUE.mark}Seen.\n\nassistant: It is blue."
    assert all(keys == [RED.key, BLUE.key] for keys in backend.shown) and len(backend.shown) == 2
    assert rewarded(Seeing())([asks(ASKED)], [completion], [["Is it blue?"]]) == [0.75]


def test_prompts_are_strings_or_messages_and_rows_without_images_have_none():
    backend, log = Seeing(), []
    reward = rewarded(backend)
    prompts = ["What?", asks("What?"), [{"role": "user", "content": "What?"}]]
    assert reward(prompts, ["Red."] * 3, [["Is it?"]] * 3, image=[PILLOWS["red"], None, None]) == [0.75] * 3
    assert [sample.input for sample in reward.last.samples] == [f"{RED.mark}What?", "What?", "What?"]
    assert backend.shown == [[RED.key], []] and not log


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"images": [[], [PILLOWS["red"]]]}, "row 2 of the batch: a prompt has 0 image parts without an image"),
        ({"image": [None, "gone.png"]}, "row 2 of the batch, 'image': 'gone.png' cannot be read"),
        ({"image": [PILLOWS["red"]]}, "expected one value of 'image' per prompt, got 1 for 2 prompts"),
    ],
)
def test_images_that_do_not_belong_to_a_prompt_are_refused_by_row(columns, message):
    prompts = [asks("What?"), asks(PILLOWS["blue"], "What?")]
    with pytest.raises(SampleError, match=message):
        rewarded(Seeing())(prompts, ["Red."] * 2, [["Is it?"]] * 2, **columns)


def test_completions_may_not_name_files(tmp_path):
    PILLOWS["red"].save(tmp_path / "red.png")
    completion = [{"role": "assistant", "content": [place(str(tmp_path / "red.png"))]}]
    with pytest.raises(SampleError, match="must be a data URL"):
        rewarded(Seeing())(["What?"], [completion], [["Is it?"]])
    with pytest.raises(SampleError, match="must be a data URL"):
        labelled_sample(["Is it?"], "Red.", asks_by("image", str(tmp_path / "red.png")), "row 1")
    assert labelled_sample(["Is it?"], "Red.", asks_by("url", RED.url), "row 1").images == (RED,)


def test_images_in_the_log_have_the_paths_that_they_came_from(tmp_path):
    path = tmp_path / "pink.png"
    Pillow.new("RGB", (9, 5), "pink").save(path)
    reward = rewarded(Seeing(), log=tmp_path / "log.jsonl")
    reward([asks(Pillow.open(path), ASKED), "What?"], ["Red."] * 2, [["Is it?"]] * 2, image=[None, str(path)])
    messages, text = (json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines())
    pink = image_of(path)
    logged = {"hash": pink.key, "path": str(path)}
    assert messages["prompt"][0]["content"][0] == {"type": "image", "image": logged}
    assert text["prompt"] == "What?" and text["images"] == [logged]
    assert image_of(logged) is pink


def asked_again(path, **options):
    """The samples of a log that is read again."""
    return [text.asked(Checklist.parse(["Is it?"])).to_judge for text in ScoredFile(path, images="show", **options)]


def test_a_log_is_read_again_with_the_images_that_its_judge_saw(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    path = tmp_path / "images" / "plum.png"
    Pillow.new("RGB", (9, 5), "plum").save(path)
    monkeypatch.chdir(tmp_path / "images")
    reward = rewarded(Seeing(), log=tmp_path / "log.jsonl")
    prompts = [asks(Pillow.open("plum.png"), ASKED), "What?", "Why?"]
    reward(prompts, ["Red."] * 3, [["Is it?"]] * 3, image=[None, "plum.png", None])
    monkeypatch.chdir(tmp_path)
    before = list(reward.last.samples)
    again = asked_again(tmp_path / "log.jsonl")
    assert [sample.input for sample in again] == [sample.input for sample in before]
    assert [len(sample.images) for sample in again] == [1, 1, 0]
    Pillow.new("RGB", (9, 5), "teal").save(path)
    with pytest.raises(SampleError, match=r"line 1, 'prompt': .*plum.png' has other pixels than the image that was"):
        asked_again(tmp_path / "log.jsonl")
    path.unlink()
    with pytest.raises(SampleError, match=r"line 1, 'prompt': .*plum.png' cannot be read: No such file"):
        asked_again(tmp_path / "log.jsonl")


def test_a_log_is_never_read_again_without_the_images_that_its_judge_saw(tmp_path):
    """Images of a policy or a tool have no path; those in a completion have no place in the log."""
    reward = rewarded(Seeing(), log=tmp_path / "log.jsonl", judged="transcript")
    drawn = Pillow.new("RGB", (6, 6), "red")
    reward([asks(drawn, ASKED)], ["Red."], [["Is it?"]])
    with pytest.raises(SampleError, match="line 1, 'prompt': image part 1 of a prompt was logged without a path"):
        asked_again(tmp_path / "log.jsonl")
    completion = [{"role": "tool", "content": [place(drawn)]}, {"role": "assistant", "content": "Red."}]
    reward = rewarded(Seeing(), log=tmp_path / "tool.jsonl", judged="transcript")
    reward(["What?"], [completion], [["Is it?"]])
    [line] = map(json.loads, (tmp_path / "tool.jsonl").read_text().splitlines())
    assert line["completion_images"] == [{"hash": image_of(drawn).key}] and line["completion"].startswith(
        "tool: [image]"
    )
    with pytest.raises(SampleError, match="line 1: the judge saw 1 images in the completion, which are not"):
        asked_again(tmp_path / "tool.jsonl")


def test_a_log_of_a_reward_that_ignored_images_is_read_without_them(tmp_path):
    PILLOWS["red"].save(tmp_path / "red.png")
    reward = rewarded(Seeing(), log=tmp_path / "log.jsonl", images="ignore")
    prompts = [asks_by("image", value) for value in (PILLOWS["red"], b"GIF89a", str(tmp_path / "red.png"))]
    reward(prompts, ["Red."] * 3, [["Is it?"]] * 3, image=[PILLOWS["red"]] * 3)
    assert all(not sample.images and sample.input == "What?" for sample in asked_again(tmp_path / "log.jsonl"))


def test_an_image_that_cannot_be_read_is_logged_by_a_reward_that_ignores_images(tmp_path):
    """A data set may hold an image of which a part is there, or that was closed."""
    cut, closed = Pillow.open(io.BytesIO(png(Pillow.effect_noise((64, 64), 50))[:999])), Pillow.new("RGB", (4, 4))
    closed.close()
    for image, known in ((cut, "<image 64x64 L>"), (closed, "<image 4x4 RGB>")):
        reward = rewarded(Seeing(), images="ignore", log=tmp_path / "log.jsonl")
        for _ in range(2):  # the first call loads what is there
            assert reward([asks_by("image", image)], ["Red."], [["Is it?"]]) == [0.75]
        rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        assert [row["prompt"][0]["content"][0]["image"] for row in rows] == [known] * 2
        (tmp_path / "log.jsonl").unlink()


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


FORMS = {
    "one object": lambda image: image,
    "copies": lambda image: image.copy(),
    "files": lambda image: Pillow.open(io.BytesIO(png(image))),
    "loaded files": lambda image: loaded(Pillow.open(io.BytesIO(png(image)))),  # what TRL's data loader passes
    "grey": lambda image: image.convert("L"),
    "transparent": lambda image: image.convert("RGBA"),
    "palettes": lambda image: image.convert("P"),
    "bytes": png,
    "cells": lambda image: {"bytes": png(image), "path": None},
}


def loaded(image):
    image.load()
    return image


@pytest.fixture
def hashed(monkeypatch):
    """The contents that were decoded for the judge, and those that were hashed for a key."""
    found = {"decoded": [], "hashed": []}
    for name, module, function in (("decoded", images, "_opened"), ("hashed", keys, "_content")):
        real = getattr(module, function)
        monkeypatch.setattr(module, function, lambda value, n=name, r=real: found[n].append(value) or r(value))
    return found


@pytest.mark.parametrize("mode", ["show", "ignore"])
@pytest.mark.parametrize("form", FORMS)
def test_a_content_is_hashed_once_per_call_however_many_completions_have_it(tmp_path, hashed, mode, form):
    """With everything that compares prompts: groups, shaping, evolving checklists, log and monitor."""
    red, blue = (Pillow.effect_noise((40, 70), 50).convert("RGB") for _ in range(2))
    make = FORMS[form]
    column = [[make(image)] for image in (red, blue) for _ in range(4)]
    prompts = [asks(image, ASKED) for [image] in column[:4]] + [ASKED] * 4
    reward = rewarded(Seeing(), images=mode, log=tmp_path / "log.jsonl", monitor={}, shaping=["centred"])
    assert reward(prompts, [f"Red {n}." for n in range(8)], [["Is it?"]] * 8, images=column) == [0.0] * 8
    assert reward.monitor.alarms is not None and len((tmp_path / "log.jsonl").read_text().splitlines()) == 8
    repeated = 4 if form in ("files", "palettes") else 1  # whose pixels are not in memory, or are numbers of colours
    assert len(hashed["decoded" if mode == "show" else "hashed"]) == 2 * repeated
    assert not hashed["hashed" if mode == "show" else "decoded"]
    if mode == "show":
        assert [len({sample.images for sample in reward.last.samples[n : n + 4]}) for n in (0, 4)] == [1, 1]


@pytest.mark.parametrize("mode", ["show", "ignore"])
def test_a_prompt_is_read_and_rendered_once_for_all_its_completions(monkeypatch, mode):
    counts = Counter()
    for name in ("prompt_text", "_render"):
        real = getattr(CompletionReader, name)
        monkeypatch.setattr(CompletionReader, name, lambda *a, n=name, r=real, **k: counts.update([n]) or r(*a, **k))
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    reward, pictures = rewarded(Seeing(), images=mode, tokenizer=tokenizer), [PILLOWS["red"], PILLOWS["blue"]]

    def counted(completions):
        counts.clear()
        prompts = [asks(image.copy(), f"{ASKED} {n}") for n, image in enumerate(pictures) for _ in range(completions)]
        reward(prompts, ["Red."] * len(prompts), [["Is it?"]] * len(prompts))
        return dict(counts)

    counted(1)  # the tokenizer's template is tried
    assert counted(8) == counted(1) == {"prompt_text": 2, "_render": 2}


def test_images_that_differ_in_one_pixel_or_their_rotation_are_different():
    first = Pillow.effect_noise((300, 200), 50).convert("RGB")
    last, turned = first.copy(), first.copy()
    last.putpixel((299, 199), (1, 2, 3))
    turned.getexif()[0x0112] = 3
    again = [first.copy(), last.copy(), turned.copy()]
    again[2].getexif()[0x0112] = 3
    reward = rewarded(Seeing())
    reward(["What?"] * 6, ["Red."] * 6, [["Is it?"]] * 6, images=[first, last, turned, *again])
    keys = [sample.images[0].key for sample in reward.last.samples]
    assert keys == [image_of(image).key for image in (first, last, turned, *again)]
    assert len(set(keys)) == 3 and keys[:3] == keys[3:]


LOGGED = {
    "text": lambda image: "What?",
    "messages": lambda image: [{"role": "user", "content": "What?"}],
    "places": lambda image: asks(None, "What?"),
    "parts": lambda image: asks(image, "What?"),
    "a part and a place": lambda image: asks(PILLOWS["red"], None, "What?"),
}


@pytest.mark.parametrize("columns", ["image", "images"])
@pytest.mark.parametrize("checklist", [["Is it?"], None])
@pytest.mark.parametrize("mode", ["show", "ignore"])
@pytest.mark.parametrize("shape", LOGGED)
def test_rows_of_a_log_have_one_prompt_where_their_images_are_equal(tmp_path, shape, mode, checklist, columns):
    given = [PILLOWS["green"], PILLOWS["green"].copy(), PILLOWS["blue"], PILLOWS["blue"].copy()]
    prompts = [LOGGED[shape](image) for image in given]
    column = [[image] for image in given] if columns == "images" else given
    reward = rewarded(Seeing(), images=mode, log=tmp_path / "log.jsonl")
    reward(prompts, ["Red."] * 4, [checklist] * 4, **{columns: column})
    keys = [text.prompt_key for text in ScoredFile(tmp_path / "log.jsonl", unscored=True)]
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_the_images_of_rows_without_a_checklist_are_not_read(tmp_path):
    reward = rewarded(Seeing(), log=tmp_path / "log.jsonl", shaping=["centred"])
    checklists, prompts = [["Is it?"], None, None], [ASKED, ASKED, asks("gone.png", ASKED)]
    assert reward(prompts, ["Red."] * 3, checklists, image=[PILLOWS["red"], "gone.png", None]) == [0.0, None, None]
    first, second, third = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert [each["hash"] for each in first["images"]] == [RED.key] and "images" not in third
    assert second["images"][0].startswith("<image, sha256 ")


def test_the_error_of_a_checklist_names_its_prompt_without_marks():
    with pytest.raises(ChecklistError, match=r"row 1 of the batch \(prompt '\[image\]What colour is it\?'\)"):
        rewarded(Seeing())([asks(PILLOWS["red"], ASKED)], ["Red."], [3])
