"""Images in the calls of a reward: prompts, columns, results of tools, and the log."""

import io

import pytest
from PIL import Image as Pillow

from checklist_rewards import images, keys
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import ChecklistError, SampleError
from checklist_rewards.evaluation.scored import ScoredFile
from checklist_rewards.images import image_of
from checklist_rewards.rewards.integrations.labelled import labelled_sample
from tests.jsonl import read_jsonl
from tests.rewards.fakes import assistant, call, reward_by, user
from tests.test_images import BLUE, PILLOWS, RED, Seeing, asks, asks_by, png

ASKED = "What colour is it?"
LOOKS = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}


def place(image=None):
    return {"type": "image"} if image is None else {"type": "image", "image": image}


def result(*parts):
    return {"role": "tool", "name": "look", "content": list(parts)}


def seen_by(backend=None, **options):
    return reward_by(backend or Seeing(), **options)


@pytest.mark.parametrize("judged", ["transcript", "answer"])
def test_images_that_tools_return_are_in_the_transcript_and_its_scopes(judged):
    """Where the answer is judged, an item with a scope sees them, and no other."""
    backend = Seeing()
    reward = seen_by(backend, judged=judged)
    completion = [LOOKS, result(place(PILLOWS["blue"]), {"type": "text", "text": "Seen."}), *assistant("It is blue.")]
    items = ["Is it blue?", {"question": "Does it show blue?", "scope": "any_tool_result"}]
    assert seen_by(judged=judged)(**call([completion], [asks(ASKED)])) == [0.75], "without an image in the prompt"
    assert reward(**call([completion], [asks(PILLOWS["red"], ASKED)], items=items)) == [0.75]
    [sample] = reward.last.samples
    shown = {"Does it show" in tail: keys for (_, tail), keys in zip(backend.asked, backend.shown, strict=True)}
    assert sample.images == (RED,) and shown[True] == [RED.key, BLUE.key] and len(backend.shown) == 2
    if judged == "transcript":
        assert sample.target == f"assistant calls look()\n\ntool look: {BLUE.mark}Seen.\n\nassistant: It is blue."
        assert sample.target_images == (BLUE,) and shown[False] == [RED.key, BLUE.key]
    else:
        assert sample.target == "It is blue." and shown[False] == [RED.key]


def test_prompts_are_strings_or_messages_and_rows_without_images_have_none():
    backend = Seeing()
    reward = seen_by(backend)
    prompts = ["What?", asks("What?"), user("What?")]
    assert reward(**call(["Red."] * 3, prompts), image=[PILLOWS["red"], None, None]) == [0.75] * 3
    assert [sample.input for sample in reward.last.samples] == [f"{RED.mark}What?", "What?", "What?"]
    assert backend.shown == [[RED.key], []]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"images": [[], [PILLOWS["red"]]]}, "row 2 of the batch: a prompt has 0 image parts without an image"),
        ({"image": [None, "gone.png"]}, "row 2 of the batch, 'image': 'gone.png' cannot be read"),
        ({"image": [PILLOWS["red"]]}, "expected one value of 'image' per prompt, got 1 for 2 prompts"),
    ],
)
def test_images_that_do_not_belong_to_a_prompt_are_refused_by_row(columns, message):
    with pytest.raises(SampleError, match=message):
        seen_by()(**call(["Red."] * 2, [asks("What?"), asks(PILLOWS["blue"], "What?")]), **columns)


def test_the_error_of_a_checklist_names_its_prompt_without_marks():
    with pytest.raises(ChecklistError, match=r"row 1 of the batch \(prompt '\[image\]What colour is it\?'\)"):
        seen_by()(**call(["Red."], [asks(PILLOWS["red"], ASKED)], [3]))


def test_completions_may_not_name_files(tmp_path):
    PILLOWS["red"].save(tmp_path / "red.png")
    completion = [{"role": "assistant", "content": [place(str(tmp_path / "red.png"))]}]
    with pytest.raises(SampleError, match="must be a data URL"):
        seen_by()(**call([completion]))
    with pytest.raises(SampleError, match="must be a data URL"):
        labelled_sample(["Is it?"], "Red.", asks_by("image", str(tmp_path / "red.png")), "row 1")
    assert labelled_sample(["Is it?"], "Red.", asks_by("url", RED.url), "row 1").images == (RED,)


# --- the log


def asked_again(path):
    """The samples of a log that is read again."""
    return [text.asked(Checklist.parse(["Is it?"])).to_judge for text in ScoredFile(path, images="show")]


def test_a_log_is_read_again_with_the_images_that_its_judge_saw_by_their_paths(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    path, log = tmp_path / "images" / "plum.png", tmp_path / "log.jsonl"
    Pillow.new("RGB", (9, 5), "plum").save(path)
    monkeypatch.chdir(tmp_path / "images")
    reward = seen_by(log=log)
    prompts = [asks(Pillow.open("plum.png"), ASKED), "What?", "Why?"]
    reward(**call(["Red."] * 3, prompts), image=[None, "plum.png", None])
    monkeypatch.chdir(tmp_path)
    messages, text, _ = read_jsonl(log)
    plum = image_of(path)
    logged = {"hash": plum.key, "path": str(path)}
    assert messages["prompt"][0]["content"][0] == {"type": "image", "image": logged}
    assert text["prompt"] == "What?" and text["images"] == [logged] and image_of(logged) is plum
    again = asked_again(log)
    assert [sample.input for sample in again] == [sample.input for sample in reward.last.samples]
    assert [len(sample.images) for sample in again] == [1, 1, 0]
    Pillow.new("RGB", (9, 5), "teal").save(path)
    with pytest.raises(SampleError, match=r"line 1, 'prompt': .*plum.png' has other pixels than the image that was"):
        asked_again(log)
    path.unlink()
    with pytest.raises(SampleError, match=r"line 1, 'prompt': .*plum.png' cannot be read: No such file"):
        asked_again(log)


def test_a_log_is_never_read_again_without_the_images_that_its_judge_saw(tmp_path):
    """Images of a policy or a tool have no path; those in a completion have no place in the log."""
    drawn = Pillow.new("RGB", (6, 6), "red")
    seen_by(log=tmp_path / "log.jsonl", judged="transcript")(**call(["Red."], [asks(drawn, ASKED)]))
    with pytest.raises(SampleError, match="line 1, 'prompt': image part 1 of a prompt was logged without a path"):
        asked_again(tmp_path / "log.jsonl")
    completion = [result(place(drawn)), *assistant("Red.")]
    seen_by(log=tmp_path / "tool.jsonl", judged="transcript")(**call([completion]))
    [line] = read_jsonl(tmp_path / "tool.jsonl")
    assert line["completion_images"] == [{"hash": image_of(drawn).key}]
    assert line["completion"].startswith("tool look: [image]")
    with pytest.raises(SampleError, match="line 1: the judge saw 1 images in the completion, which are not"):
        asked_again(tmp_path / "tool.jsonl")


def test_a_log_of_a_reward_that_ignored_images_is_read_without_them(tmp_path):
    PILLOWS["red"].save(tmp_path / "red.png")
    prompts = [asks_by("image", value) for value in (PILLOWS["red"], b"GIF89a", str(tmp_path / "red.png"))]
    reward = seen_by(log=tmp_path / "log.jsonl", images="ignore")
    reward(**call(["Red."] * 3, prompts), image=[PILLOWS["red"]] * 3)
    again = asked_again(tmp_path / "log.jsonl")
    assert len(again) == 3 and all(not sample.images and sample.input == "What?" for sample in again)


def test_an_image_that_cannot_be_read_is_logged_by_a_reward_that_ignores_images(tmp_path):
    """A data set may hold an image of which a part is there, or that was closed."""
    cut = Pillow.open(io.BytesIO(png(Pillow.effect_noise((64, 64), 50))[:999]))
    closed = Pillow.new("RGB", (4, 4))
    closed.close()
    reward = seen_by(images="ignore", log=tmp_path / "log.jsonl")
    for _ in range(2):  # the first call loads what is there
        assert reward(**call(["Red."] * 2, [asks_by("image", image) for image in (cut, closed)])) == [0.75] * 2
    shown = [row["prompt"][0]["content"][0]["image"] for row in read_jsonl(tmp_path / "log.jsonl")]
    assert shown == ["<image 64x64 L>", "<image 4x4 RGB>"] * 2


def test_the_images_of_rows_without_a_checklist_are_not_read(tmp_path):
    reward = seen_by(log=tmp_path / "log.jsonl", shaping=["centred"])
    batch = call(["Red."] * 3, [ASKED, ASKED, asks("gone.png", ASKED)], [["Is it?"], None, None])
    assert reward(**batch, image=[PILLOWS["red"], "gone.png", None]) == [0.0, None, None]
    first, second, third = read_jsonl(tmp_path / "log.jsonl")
    assert [each["hash"] for each in first["images"]] == [RED.key] and "images" not in third
    assert second["images"][0].startswith("<image, sha256 ")


LOGGED = {
    "text": lambda image: "What?",
    "messages": lambda image: user("What?"),
    "places": lambda image: asks(None, "What?"),
    "parts": lambda image: asks(image, "What?"),
    "a part and a place": lambda image: asks(PILLOWS["red"], None, "What?"),
}


@pytest.mark.parametrize("column", ["image", "images"])
@pytest.mark.parametrize("checklist", [["Is it?"], None])
@pytest.mark.parametrize("mode", ["show", "ignore"])
@pytest.mark.parametrize("shape", LOGGED)
def test_rows_of_a_log_have_one_prompt_where_their_images_are_equal(tmp_path, shape, mode, checklist, column):
    given = [PILLOWS["green"], PILLOWS["green"].copy(), PILLOWS["blue"], PILLOWS["blue"].copy()]
    columns = {column: [[image] for image in given] if column == "images" else given}
    reward = seen_by(images=mode, log=tmp_path / "log.jsonl")
    reward(**call(["Red."] * 4, [LOGGED[shape](image) for image in given], [checklist] * 4), **columns)
    keys = [text.prompt_key for text in ScoredFile(tmp_path / "log.jsonl", unscored=True)]
    assert keys[0] == keys[1] != keys[2] == keys[3]


# --- how often an image is read


def loaded(image):
    """As TRL's data loader passes an image file."""
    found = Pillow.open(io.BytesIO(png(image)))
    found.load()
    return found


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        ("show", loaded),
        ("show", lambda image: image.copy()),
        ("ignore", lambda image: image.convert("RGBA")),
        ("ignore", lambda image: {"bytes": png(image), "path": None}),
    ],
    ids=["loaded files", "copies", "ignored, transparent", "ignored, cells"],
)
def test_a_content_is_hashed_once_per_call(tmp_path, monkeypatch, mode, form):
    """With everything that compares prompts: groups, shaping, evolving checklists, log and monitor."""
    read = {"show": [], "ignore": []}  # decoded for the judge, or hashed for a key
    for name, module, function in (("show", images, "_opened"), ("ignore", keys, "_content")):
        real = getattr(module, function)
        monkeypatch.setattr(module, function, lambda value, n=name, r=real: read[n].append(value) or r(value))
    red, blue = (Pillow.effect_noise((40, 70), 50).convert("RGB") for _ in range(2))
    column = [[form(image)] for image in (red, blue) for _ in range(4)]
    prompts = [asks(image, ASKED) for [image] in column[:4]] + [ASKED] * 4
    reward = seen_by(images=mode, log=tmp_path / "log.jsonl", monitor={}, shaping=["centred"])
    assert reward(**call([f"Red {n}." for n in range(8)], prompts), images=column) == [0.0] * 8
    assert reward.monitor.alarms is not None and len(read_jsonl(tmp_path / "log.jsonl")) == 8
    other = "ignore" if mode == "show" else "show"
    assert len(read[mode]) == 2 and not read[other]


def test_images_that_differ_in_one_pixel_or_their_rotation_are_different():
    first = Pillow.effect_noise((300, 200), 50).convert("RGB")
    last, turned = first.copy(), first.copy()
    last.putpixel((299, 199), (1, 2, 3))
    turned.getexif()[0x0112] = 3
    reward = seen_by()
    reward(**call(["Red."] * 4, "What?"), images=[first, last, turned, first.copy()])
    found = [sample.images[0].key for sample in reward.last.samples]
    assert found == [image_of(image).key for image in (first, last, turned, first)] and len(set(found)) == 3
