"""Images from TRL to the judge: a trainer of a vision-language policy, with columns and with parts of messages."""

import json
import warnings

import pytest
import torch
from datasets import Dataset
from PIL import Image as Pillow

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, pocket_dir
from checklist_rewards.errors import SampleError
from checklist_rewards.images import image_of
from checklist_rewards.rewards.integrations.labelled import labelled_sample
from checklist_rewards.rewards.trl import ChecklistReward
from tests.rewards.test_trl_trainers import ON_CPU
from tests.test_images import BLUE, COLOURS, IMAGES, PILLOWS, RED, Seeing, asks, asks_by

ASKED = "What colour is it?"
_LLAVA = (
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}"
    "{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.fixture(scope="module")
def policy():
    """A tiny random LLaVA with the pocket tokenizer, as a function that builds it anew, and its processor."""
    from transformers import AutoModelForImageTextToText, AutoTokenizer, LlavaConfig, LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tokens = AutoTokenizer.from_pretrained(pocket_dir(), extra_special_tokens={"image_token": "<image>"})
    tokens.chat_template = _LLAVA
    pixels = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    of_vision = {"vision_feature_select_strategy": "default"}
    processor = LlavaProcessor(
        pixels, tokens, patch_size=14, num_additional_image_tokens=1, chat_template=_LLAVA, **of_vision
    )
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"eos_token_id": tokens.eos_token_id, "pad_token_id": tokens.pad_token_id, "bos_token_id": None}
    config = LlavaConfig(
        text_config={"model_type": "llama", **small, "vocab_size": len(tokens), **ends},
        vision_config={"model_type": "clip_vision_model", **small, "image_size": 28, "patch_size": 14},
        image_token_index=tokens.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        **of_vision,
    )

    def build():
        torch.manual_seed(0)
        return AutoModelForImageTextToText.from_config(config, dtype=torch.float32)

    return build, processor


def place(image=None):
    return {"type": "image"} if image is None else {"type": "image", "image": image}


ROWS = {
    "image": lambda a, b: ({"prompt": [{"role": "user", "content": ASKED}], "image": a}, f"{{a}}{ASKED}"),
    "images": lambda a, b: ({"prompt": [{"role": "user", "content": ASKED}], "images": [a, b]}, f"{{a}}{{b}}{ASKED}"),
    "places": lambda a, b: (
        {
            "prompt": [{"role": "user", "content": [place(), {"type": "text", "text": ASKED}, place()]}],
            "images": [a, b],
        },
        f"{{a}}{ASKED}{{b}}",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("trainer", "columns"), [("GRPO", "places"), ("GRPO", "image"), ("RLOO", "images")])
def test_the_judge_sees_the_images_of_each_row_in_order(policy, tmp_path, trainer, columns):
    import trl

    build, processor = policy
    backend = Seeing()
    reward = ChecklistReward(ChecklistScorer(Engine(backend=backend), store=False), log=tmp_path / "log.jsonl")
    pairs = [(COLOURS[n], COLOURS[n - 1]) for n in range(len(COLOURS))]
    data = [{**ROWS[columns](PILLOWS[a], PILLOWS[b])[0], "checklist": ["Is it right?"]} for a, b in pairs]
    expected = {
        ROWS[columns](None, None)[1].format(a=IMAGES[a].mark, b=IMAGES[b].mark): (IMAGES[a], IMAGES[b])
        for a, b in pairs
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = getattr(trl, f"{trainer}Config")(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=8,
            num_generations=2,
            max_completion_length=4,
            max_steps=1,
            remove_unused_columns=False,
            **ON_CPU,
        )
        run = getattr(trl, f"{trainer}Trainer")(
            model=build(),
            processing_class=processor,
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_list(data),
        )
        run.train()
    assert len(reward.last.samples) == 8
    inputs = [sample.input for sample in reward.last.samples]
    assert set(inputs) == set(expected) and inputs[::2] == inputs[1::2]
    for sample, images in ((sample, expected[sample.input]) for sample in reward.last.samples):
        assert sample.images == (images[:1] if columns == "image" else images)
    for keys in backend.shown:  # one read per different completion
        assert keys in [[image.key for image in sample.images] for sample in reward.last.samples]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    found = [part["image"] for part in logged[0]["prompt"][0]["content"] if part["type"] == "image"]
    assert found == [{"hash": image.key} for image in reward.last.samples[0].images]
    assert sorted(logged[0]["prompt"][0]["content"][0]) == ["image", "type"]


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
