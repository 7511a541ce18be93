"""`model="reference"` with the settings that users have: what it reads, how exactly, and the table in the docs."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from checklist_rewards.backends import pocket_dir
from tests.rewards.flash import NAMES, flash_kernels
from tests.rewards.placement_settings import LORA, Setting, by_code, losses, measured, trained

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trainers")]
__all__ = ["flash_kernels"]

SAME = {"float32": 1e-5, "fp16": 2e-3, "bf16": 0.02}
"""Most that P(yes) may differ from that of a separate prompt in the same precision."""
FLOAT32 = {"float32": 1e-5, "fp16": 5e-3, "bf16": 0.04}
"""Most that P(yes) may differ from that of the same weights in single precision."""


def adapters() -> object:
    """A policy with two adapters, of which the first is trained."""
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32), LORA)
    model.add_adapter("other", LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    return model


def further() -> object:
    """A policy whose adapter has been trained before."""
    base = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    return get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))


def loading(**kwargs) -> dict:
    return {"model_init_kwargs": kwargs}


SETTINGS = [
    Setting("TRL's defaults: bf16 by autocast, gradient checkpointing"),
    Setting("`bf16=False`", {"bf16": False}, precision="float32"),
    Setting("`fp16=True`", {"fp16": True}, precision="fp16"),
    Setting('policy loaded in bf16 (`"dtype": "bfloat16"`)', loading(dtype="bfloat16")),
    Setting('policy loaded in fp16, `bf16=False`', {"bf16": False, **loading(dtype="float16")}, precision="fp16"),
    Setting("`gradient_checkpointing=False`", {"gradient_checkpointing": False}),
    Setting("reentrant checkpoints", {"gradient_checkpointing_kwargs": {"use_reentrant": True}}),
    Setting("`num_iterations=2`, `steps_per_generation=2`", {"num_iterations": 2, "steps_per_generation": 2}),
    Setting("`dataloader_num_workers=1`", {"dataloader_num_workers": 1}),
    Setting("two adapters", policy=adapters),
    Setting("an adapter that is trained further, `beta=0.1`", {"beta": 0.1}, policy=further),
    Setting('`attn_implementation`: eager', loading(attn_implementation="eager")),
    *(
        Setting(f"`attn_implementation`: {name}", loading(attn_implementation=name, dtype="bfloat16"))
        for name in NAMES
    ),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_reference_reads_the_floor_and_changes_no_loss(setting, tmp_path, flash_kernels):
    figures = measured(setting, tmp_path)
    print(setting.name, figures)
    assert figures.receipt <= setting.most
    assert figures.separate <= SAME[setting.precision] and figures.float32 <= FLOAT32[setting.precision]
    plain, _ = trained([by_code], setting, tmp_path, 1)
    assert figures.losses == losses(plain)
