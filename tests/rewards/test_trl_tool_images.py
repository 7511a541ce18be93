"""Images that tools of a real TRL trainer return: what the judge sees, and where.

The policy is a tiny random vision-language model, which cannot write a tool call. So the first turn of each completion
is scripted where TRL samples it (`_generate_single_turn`). Everything else is TRL's: it parses the call, runs the
tool, renders its result with the image, samples the next turn from the policy, which sees the image, calls the reward
and takes the step.
"""

import asyncio
import json
import warnings
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForImageTextToText

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine
from checklist_rewards.backends.vision import load_processor
from checklist_rewards.images import parts
from checklist_rewards.rewards.trl import ChecklistReward
from tests.backends.vision_architectures import build
from tests.rewards.test_trl_trainers import ON_CPU
from tests.test_images import BLUE, IMAGES, PILLOWS, RED, Seeing

ASKED = "What colour is it?"
CALL = '<tool_call>\n{"name": "look", "arguments": {"place": "%s"}}\n</tool_call><|im_end|>'
CHECKLIST = ["Is it right?", {"question": "Does it show blue?", "scope": "any_tool_result"}]
RESULT = {"left": "green", "right": "blue"}


def seen(place: str) -> list:
    return [
        {"type": "text", "text": "Here: "},
        {"type": "image", "image": PILLOWS[RESULT[place]]},
        {"type": "text", "text": "Seen."},
    ]


def look(place: str) -> list:
    """Look at a place.

    Args:
        place: Where to look.

    Returns:
        What is there.
    """
    return seen(place)


async def look_slowly(place: str) -> list:
    """Look at a place.

    Args:
        place: Where to look.

    Returns:
        What is there.
    """
    return seen(place)


look_slowly.__name__ = "look"


def photograph(place: str):
    """Look at a place.

    Args:
        place: Where to look.

    Returns:
        An image, which TRL takes for a text because it is not in a list.
    """
    return PILLOWS[RESULT[place]]


photograph.__name__ = "look"


class Room:
    """An environment whose first observation and whose tool are images."""

    def reset(self, **row) -> list:
        return [{"type": "text", "text": " Now: "}, {"type": "image", "image": PILLOWS["white"]}]

    def look(self, place: str) -> list:
        """Look at a place.

        Args:
            place: Where to look.

        Returns:
            What is there.
        """
        return seen(place)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A tiny random Qwen3-VL with the chat template of TRL that has tools."""
    from trl.chat_template_utils import qwen3_vl_chat_template

    folder = build("Qwen3-VL", tmp_path_factory.mktemp("qwen"))

    def load():
        processor = load_processor(folder)
        processor.chat_template = processor.tokenizer.chat_template = qwen3_vl_chat_template
        return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32), processor

    return load


def scripted(trainer, tokens, texts):
    """Replace the first turns of a step by texts. The policy samples the turns after them."""
    sample, turns = trainer._generate_single_turn, iter([texts])

    def generate(prompt_ids, *args, **kwargs):
        given = next(turns, None)
        if given is None:
            return sample(prompt_ids, *args, **kwargs)
        return [tokens(text, add_special_tokens=False)["input_ids"] for text in given], None

    trainer._generate_single_turn = generate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "columns", "input"),
    [
        ({"tools": [look]}, {"image": PILLOWS["red"]}, f"{RED.mark}{ASKED}"),
        ({"tools": [look_slowly]}, {}, ASKED),
        ({"environment_factory": Room}, {}, f"{ASKED} Now: {IMAGES['white'].mark}"),
        ({"tools": [photograph]}, {}, ASKED),
    ],
    ids=["a tool and a column", "an async tool", "an environment", "an image that is not a part"],
)
def test_the_judge_sees_the_image_of_a_tool_result_in_its_place(policy, settings, columns, input, tmp_path):
    import trl

    model, processor = policy()
    backend = Seeing()
    reward = ChecklistReward(ChecklistScorer(Engine(backend=backend), store=False), judged="transcript")
    row = {"prompt": [{"role": "user", "content": ASKED}], "checklist": json.dumps(CHECKLIST)} | columns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trl.GRPOTrainer(
            model=model,
            processing_class=processor,
            reward_funcs=reward,
            args=trl.GRPOConfig(
                output_dir=str(tmp_path),
                max_steps=1,
                per_device_train_batch_size=4,
                num_generations=2,
                max_completion_length=250 if columns == {} else 150,  # of a call, its result and an answer
                max_tool_calling_iterations=1,
                remove_unused_columns=False,
                **ON_CPU,
            ),
            train_dataset=Dataset.from_list([row] * 4),
            **settings,
        )
        places = ["left", "right", "right", "left"]
        scripted(trainer, processor.tokenizer, [CALL % place for place in places])
        trainer.train()
    samples = reward.last.samples
    assert [sample.input for sample in samples] == [input] * 4
    of_input = [part.key for part in parts(input) if not isinstance(part, str)]
    for place, sample in zip(places, samples, strict=True):
        image = IMAGES[RESULT[place]]
        begins = f'assistant calls look(place="{place}")\n\ntool look: '
        if settings.get("tools") == [photograph]:
            assert sample.target.startswith(f"{begins}<PIL.Image.Image image mode=RGB size=8x8")
            assert not sample.target_images
            continue
        assert sample.target.startswith(f"{begins}Here: {image.mark}Seen.\n\nassistant: ")
        assert sample.target_images == (image,) and [m.role for m in sample.messages][:2] == ["assistant", "tool"]
        for asked, keys in zip(backend.asked, backend.shown, strict=True):
            if sample.target in asked[0] or ("Does it show" in asked[1] and image.mark in asked[0]):
                assert keys == [*of_input, image.key]
    assert {len(keys) for keys in backend.shown} == {len(of_input) + (settings.get("tools") != [photograph])}
    assert all(score.primary_score == 0.75 for score in reward.last.scores)


def test_by_default_items_with_a_scope_see_the_images_of_tools_and_no_others():
    """The answer is judged, in which the images of tools are not."""
    backend = Seeing()
    reward = ChecklistReward(ChecklistScorer(Engine(backend=backend), store=False))
    completion = [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]},
        {"role": "tool", "name": "look", "content": seen("right")},
        {"role": "assistant", "content": "It is blue."},
    ]
    assert reward([[{"role": "user", "content": ASKED}]], [completion], [CHECKLIST]) == [0.75]
    shown = {"Does it show blue?" in tail: keys for (_, tail), keys in zip(backend.asked, backend.shown, strict=True)}
    assert shown == {False: [], True: [BLUE.key]}


def test_async_grpo_makes_a_text_of_every_tool_result():
    """What its workers pass on, which have no images either (`async_rollout_worker.py`)."""
    worker = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
    counts = SimpleNamespace(_counters=Counter(), _rates=defaultdict(lambda: [0, 0]), _tool_pool=None)
    call = {"type": "function", "function": {"name": "look", "arguments": {"place": "right"}}}
    run = worker._AsyncRolloutLoop._execute_tool_calls(counts, [call], {"look": look})
    [message], calls, failures = asyncio.run(run)
    assert (calls, failures) == (1, 0) and message["content"] == str(seen("right"))
    reward = ChecklistReward(ChecklistScorer(Engine(backend=Seeing()), store=False), judged="transcript")
    completion = [{"role": "assistant", "tool_calls": [call]}, message, {"role": "assistant", "content": "Blue."}]
    assert reward([[{"role": "user", "content": ASKED}]], [completion], [["Is it right?"]]) == [0.75]
    [sample] = reward.last.samples
    assert "'image': <PIL.Image.Image" in sample.target and not sample.target_images


@pytest.mark.slow
def test_online_dpo_has_one_image_per_prompt_and_no_tools(tmp_path):
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    folder = build("LLaVA", tmp_path / "llava")
    reward = ChecklistReward(ChecklistScorer(Engine(backend=Seeing()), store=False))
    colours = ["red", "blue"]
    rows = [
        {"prompt": [{"role": "user", "content": ASKED}], "image": PILLOWS[c], "checklist": ["Is it right?"]}
        for c in colours
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        OnlineDPOTrainer(
            model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
            processing_class=load_processor(folder),
            reward_funcs=reward,
            args=OnlineDPOConfig(
                output_dir=str(tmp_path),
                max_steps=1,
                per_device_train_batch_size=2,
                max_new_tokens=4,
                remove_unused_columns=False,
                **{name: value for name, value in ON_CPU.items() if name != "beta"},
            ),
            train_dataset=Dataset.from_list(rows),
        ).train()
    inputs = [sample.input for sample in reward.last.samples]
    assert inputs[:2] == inputs[2:] and set(inputs) == {f"{IMAGES[c].mark}{ASKED}" for c in colours}
