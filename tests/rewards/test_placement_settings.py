"""`model="reference"` with the settings that users have: what it reads, how exactly, and the table in the docs."""

import json
import os

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from checklist_rewards.backends import pocket_dir, resolve_model
from tests.conftest import REPO
from tests.ranks import run
from tests.rewards.flash import NAMES, flash_kernels
from tests.rewards.placement_settings import (
    LORA,
    TIMED,
    Setting,
    by_code,
    difference,
    documented,
    line,
    losses,
    measured,
    probabilities,
    trained,
)

pytestmark = pytest.mark.slow
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


QLORA = "QLoRA: 4-bit weights (bitsandbytes), compared with unquantized weights"
LARGER = "SmolLM2-135M, `bf16=False`"
RANKS = {"DDP": "ddp", "FSDP 2": "fsdp2", "FSDP 1": "fsdp1", "ZeRO-3": "zero3"}
"""What two ranks on CPUs can be, and the argument of their script."""
COMPILED = {"torch_compile_backend": "eager", "gradient_checkpointing": False}
"""Graphs are captured, but not compiled by a C++ compiler, which takes minutes."""
SETTINGS = [
    Setting("TRL's defaults: bf16 by autocast, gradient checkpointing"),
    Setting("`bf16=False`", {"bf16": False}, precision="float32"),
    Setting("`fp16=True`", {"fp16": True}, precision="fp16"),
    Setting('policy loaded in bf16 (`"dtype": "bfloat16"`)', loading(dtype="bfloat16")),
    Setting("policy loaded in fp16, `bf16=False`", {"bf16": False, **loading(dtype="float16")}, precision="fp16"),
    Setting("`gradient_checkpointing=False`", {"gradient_checkpointing": False}),
    Setting("reentrant checkpoints", {"gradient_checkpointing_kwargs": {"use_reentrant": True}}),
    Setting("`num_iterations=2`, `steps_per_generation=2`", {"num_iterations": 2, "steps_per_generation": 2}),
    Setting("`dataloader_num_workers=1`", {"dataloader_num_workers": 1}),
    Setting("`torch_compile=True`, one layer", {"torch_compile": True, **COMPILED, **loading(num_hidden_layers=1)}),
    Setting("two adapters", policy=adapters),
    Setting("an adapter that is trained further, `beta=0.1`", {"beta": 0.1}, policy=further),
    Setting("`attn_implementation`: eager", loading(attn_implementation="eager")),
    *(
        Setting(f"`attn_implementation`: {name}", loading(attn_implementation=name, dtype="bfloat16"))
        for name in NAMES
    ),
]


def test_qlora_reads_the_floor(tmp_path):
    pytest.importorskip("bitsandbytes")  # 0.50 computes 4-bit weights on a CPU
    quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    figures = measured(Setting(QLORA, loading(quantization_config=quantized)), tmp_path)
    assert figures.receipt <= 1.05 and figures.separate <= SAME["bf16"]
    same(QLORA, line(QLORA, figures.receipt, figures.separate, figures.float32, figures.times))


def test_the_own_part_of_a_step_of_a_larger_model(tmp_path):
    if not TIMED:
        pytest.skip("set CHECKLIST_REWARDS_WRITE_DOCS to measure times")
    model = resolve_model("smollm2")
    figures = measured(Setting(LARGER, {"bf16": False}, precision="float32"), tmp_path, model)
    same(LARGER, line(LARGER, figures.receipt, figures.separate, figures.float32, figures.times))


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_reference_reads_the_floor_and_changes_no_loss(setting, tmp_path, flash_kernels):
    figures = measured(setting, tmp_path)
    assert figures.receipt <= setting.most
    assert figures.separate <= SAME[setting.precision] and figures.float32 <= FLOAT32[setting.precision]
    same(setting.name, line(setting.name, figures.receipt, figures.separate, figures.float32, figures.times))
    plain, _ = trained([by_code], setting, tmp_path, len(figures.losses))
    assert figures.losses == losses(plain)


@pytest.mark.parametrize("name", RANKS)
def test_two_ranks_read_the_floor(name, tmp_path):
    if name == "ZeRO-3":
        pytest.importorskip("deepspeed")
    script = REPO / "tests/rewards/placement_ranks.py"
    paths = os.pathsep.join([str(REPO), str(REPO / "recipes"), os.environ.get("PYTHONPATH", "")])
    run(["-m", "tests.zygote", "2", str(script), str(tmp_path), RANKS[name]], ACCELERATE_USE_CPU="1", PYTHONPATH=paths)
    exact = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.float32)
    coarse = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=torch.bfloat16)
    for rank in (0, 1):
        log = json.loads((tmp_path / f"{rank}.json").read_text())
        assert log["sharded"] == (name != "DDP")
        assert log["receipt"] <= (1.15 if log["sharded"] else 1.05)  # with parts of the weights, nothing is kept
        separate = difference(log["given"], probabilities(coarse, None, log["prompts"]))
        float32 = difference(log["given"], probabilities(exact, None, log["prompts"]))
        assert separate <= SAME["bf16"] and float32 <= FLOAT32["bf16"]
    same(name, line(name, log["receipt"], separate, float32, None))


def same(name: str, ours: str) -> None:
    """The page says how many tokens a setting computes."""
    found = documented(name, ours)
    assert found is not None and found.split("|")[:3] == ours.split("|")[:3]
