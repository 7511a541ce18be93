"""Images in the calls of a reward: prompts, columns, results of tools, and the log."""

import json

import pytest
from PIL import Image as Pillow

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.errors import SampleError
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
