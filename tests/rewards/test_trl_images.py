"""Images from TRL to the judge: a trainer of a vision-language policy, with columns and with parts of messages."""

import pytest
import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForImageTextToText
from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

from checklist_rewards.backends.vision import load_processor
from checklist_rewards.rewards.callback import ChecklistEvalCallback
from checklist_rewards.rewards.trl import ChecklistReward
from tests.backends.vision_architectures import build
from tests.rewards.fakes import reward_by, scorer_by, user
from tests.rewards.test_reward_images import ASKED, place
from tests.rewards.test_trl_trainers import ON_CPU
from tests.test_images import COLOURS, IMAGES, PILLOWS, Seeing

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny random LLaVA with the pocket tokenizer."""
    return build("LLaVA", tmp_path_factory.mktemp("llava"))


def trainer_of(algorithm, policy, rewards, rows, folder, *, template=None, more=None, **options):
    """A trainer of a vision-language policy. `more` has further arguments of the trainer."""
    settings = dict(output_dir=str(folder), max_steps=1, remove_unused_columns=False, **ON_CPU)
    if algorithm == "OnlineDPO":
        kind, config = OnlineDPOTrainer, OnlineDPOConfig
        del settings["beta"]
        sizes = dict(per_device_train_batch_size=2, max_new_tokens=4)
    else:
        kind, config = getattr(trl, f"{algorithm}Trainer"), getattr(trl, f"{algorithm}Config")
        sizes = dict(per_device_train_batch_size=8, num_generations=2, max_completion_length=4)
    processor = load_processor(policy)
    if template is not None:
        processor.chat_template = processor.tokenizer.chat_template = template
    return kind(
        model=AutoModelForImageTextToText.from_pretrained(policy, dtype=torch.float32),
        processing_class=processor,
        reward_funcs=rewards,
        args=config(**{**settings, **sizes, **options}),
        train_dataset=Dataset.from_list(rows),
        **more or {},
    )


def test_held_out_prompts_of_a_policy_with_a_processor_are_those_of_the_trainer(folder, tmp_path, monkeypatch):
    """Templates of SmolVLM, Idefics 3 and LLaVA-NeXT read parts only, and leave out a string."""
    parts = [{"type": "image"}, {"type": "text", "text": ASKED}]
    held_out = [{"prompt": [{"role": "user", "content": c}], "checklist": ["Is it?"]} for c in (ASKED, parts)]
    trainer = trainer_of("GRPO", folder, reward_by(), [{"prompt": user(ASKED)}] * 8, tmp_path, template=PARTS_ONLY)
    trainer.processing_class.tokenizer.chat_template = None  # older models keep the template with the processor
    callback = ChecklistEvalCallback(trainer, scorer_by(), held_out, every=1, images="ignore")
    callback.generation.max_new_tokens = 2
    given, generate = [], trainer.model.generate
    monkeypatch.setattr(
        trainer.model, "generate", lambda **inputs: given.extend(inputs["input_ids"].tolist()) or generate(**inputs)
    )
    callback.evaluate()
    assert given == trainer._tokenize_prompts([user(ASKED)] * 2)[0]


PARTS_ONLY = (
    "{% for m in messages %}{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}\n"
    "{% endfor %}"
)
TEXT = {"type": "text", "text": ASKED}
ROWS = {
    "image": lambda a, b: {"prompt": user(ASKED), "image": a},
    "images": lambda a, b: {"prompt": user(ASKED), "images": [a, b]},
    "places": lambda a, b: {"prompt": [{"role": "user", "content": [place(), TEXT, place()]}], "images": [a, b]},
}
SHOWN = {"image": f"{{a}}{ASKED}", "images": f"{{a}}{{b}}{ASKED}", "places": f"{{a}}{ASKED}{{b}}"}
"""Rows of two images, and what the judge sees of them."""


@pytest.mark.parametrize(("algorithm", "columns"), [("GRPO", "places"), ("RLOO", "images"), ("OnlineDPO", "image")])
def test_the_judge_sees_the_images_of_each_row_in_order(folder, tmp_path, algorithm, columns):
    reward = reward_by(Seeing())
    pairs = [(COLOURS[n], COLOURS[n - 1]) for n in range(2 if algorithm == "OnlineDPO" else len(COLOURS))]
    data = [{**ROWS[columns](PILLOWS[a], PILLOWS[b]), "checklist": ["Is it right?"]} for a, b in pairs]
    expected = {}
    for a, b in ((IMAGES[a], IMAGES[b]) for a, b in pairs):
        expected[SHOWN[columns].format(a=a.mark, b=b.mark)] = (a,) if columns == "image" else (a, b)
    trainer_of(algorithm, folder, reward, data, tmp_path).train()
    samples = reward.last.samples
    inputs = [sample.input for sample in samples]
    assert set(inputs) == set(expected) and all(sample.images == expected[sample.input] for sample in samples)
    if algorithm == "OnlineDPO":  # it has one image per prompt and no tools
        assert len(samples) == 4 and inputs[:2] == inputs[2:]
    else:
        assert len(samples) == 8 and inputs[::2] == inputs[1::2]


def test_the_base_of_a_lora_policy_that_sees_rewards_like_a_separate_copy(folder, tmp_path):
    """Two steps: in the second, the adapter has other weights than the base that judges."""
    shared = {"mass_floor": 0.0, "store": tmp_path / "store"}
    rewards = [
        ChecklistReward(model="reference", name="own", **shared),
        ChecklistReward(model=str(folder), backend="transformers", name="copy", **shared),
    ]
    data = [ROWS["places"](PILLOWS[a], PILLOWS["red"]) | {"checklist": ["Is it red?"]} for a in COLOURS]
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
    options = {"max_steps": 2, "learning_rate": 0.1, "more": {"peft_config": lora}}
    trainer_of("GRPO", folder, rewards, data, tmp_path, **options).train()
    own, copy = ([score.primary_score for score in reward.last.scores] for reward in rewards)
    assert own == copy and len(set(own)) > 1 and rewards[0].last.samples[0].images
    asked = [reward.scorer.receipt.asked for reward in rewards]
    assert asked[0] > 0 and asked[1] == 0  # every read was in the store: one identity
