"""Images from TRL to the judge: a trainer of a vision-language policy, with columns and with parts of messages."""

import json
import warnings

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForImageTextToText

from checklist_rewards import ChecklistScorer, images
from checklist_rewards.backends import Engine
from checklist_rewards.backends.vision import load_processor
from checklist_rewards.rewards.trl import ChecklistReward
from tests.backends.vision_architectures import build
from tests.rewards.test_reward_images import ASKED, place
from tests.rewards.test_trl_trainers import ON_CPU
from tests.test_images import COLOURS, IMAGES, PILLOWS, Seeing


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A tiny random LLaVA with the pocket tokenizer, as a function that loads it anew, and its processor."""
    folder = build("LLaVA", tmp_path_factory.mktemp("llava"))
    return lambda: AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32), load_processor(folder)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return dict(
        output_dir=str(tmp_path_factory.mktemp("out")),
        per_device_train_batch_size=8,
        num_generations=2,
        max_completion_length=4,
        remove_unused_columns=False,
        **ON_CPU,
    )


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
def test_the_judge_sees_the_images_of_each_row_in_order(policy, settings, tmp_path, trainer, columns, monkeypatch):
    import trl

    load, processor = policy
    decoded, real = [], images._opened
    monkeypatch.setattr(images, "_opened", lambda content: decoded.append(content) or real(content))
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
        run = getattr(trl, f"{trainer}Trainer")(
            model=load(),
            processing_class=processor,
            reward_funcs=reward,
            args=getattr(trl, f"{trainer}Config")(max_steps=1, **settings),
            train_dataset=Dataset.from_list(data),
        )
        run.train()
    assert len(reward.last.samples) == 8
    column = [
        cell
        for row in reward.last.columns[columns.replace("places", "images")]
        for cell in (row if isinstance(row, list) else [row])
    ]
    assert len(set(map(id, column))) == len(column)  # the data set decodes the images of each completion anew
    assert len(decoded) == len({image for sample in reward.last.samples for image in sample.images})
    inputs = [sample.input for sample in reward.last.samples]
    assert set(inputs) == set(expected) and inputs[::2] == inputs[1::2]
    for sample, own in ((sample, expected[sample.input]) for sample in reward.last.samples):
        assert sample.images == (own[:1] if columns == "image" else own)
    for keys in backend.shown:  # one read per different completion
        assert keys in [[image.key for image in sample.images] for sample in reward.last.samples]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    found = [part["image"] for part in logged[0]["prompt"][0]["content"] if part["type"] == "image"]
    assert [image["hash"] for image in found] == [image.key for image in reward.last.samples[0].images]
    assert sorted(logged[0]["prompt"][0]["content"][0]) == ["image", "type"]


@pytest.mark.slow
def test_the_base_of_a_lora_policy_that_sees_rewards_like_a_separate_copy(policy, settings, tmp_path):
    """Two steps: in the second, the adapter has other weights than the base that judges."""
    import trl
    from peft import LoraConfig

    load, processor = policy
    shared = {"mass_floor": 0.0, "store": tmp_path / "store"}
    rewards = [
        ChecklistReward(model="reference", name="own", **shared),
        ChecklistReward(model=load().name_or_path, backend="transformers", name="copy", **shared),
    ]
    data = [ROWS["places"](PILLOWS[a], PILLOWS["red"])[0] | {"checklist": ["Is it red?"]} for a in COLOURS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trl.GRPOTrainer(
            model=load(),
            processing_class=processor,
            reward_funcs=rewards,
            args=trl.GRPOConfig(**{**settings, "max_steps": 2, "beta": 0.0, "learning_rate": 0.1}),
            train_dataset=Dataset.from_list(data),
            peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
        ).train()
    own, copy = ([score.primary_score for score in reward.last.scores] for reward in rewards)
    assert own == copy and len(set(own)) > 1 and rewards[0].last.samples[0].images
    asked = [reward.scorer.receipt.asked for reward in rewards]
    assert asked[0] > 0 and asked[1] == 0  # every read was in the store: one identity
