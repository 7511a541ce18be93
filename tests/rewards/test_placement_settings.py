"""`model="reference"` with the settings that users have: what it reads, how exactly, and that it changes no loss."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from checklist_rewards.backends import pocket_dir
from tests.ranks import on_two_ranks
from tests.rewards.flash import flash_kernels
from tests.rewards.placement_settings import (
    LORA,
    Setting,
    by_code,
    difference,
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


def base(dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=dtype)


def two_adapters() -> object:
    """A policy with two adapters, of which the first is trained."""
    model = get_peft_model(base(), LORA)
    model.add_adapter("other", LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    return model


def loading(**kwargs) -> dict:
    return {"model_init_kwargs": kwargs}


SETTINGS = {  # settings that do not act on each other share a training
    "the defaults of TRL": Setting(),
    "float32, no checkpointing, two adapters": Setting(
        {"bf16": False, "gradient_checkpointing": False}, two_adapters, "float32"
    ),
    "fp16, reentrant checkpoints": Setting(
        {"fp16": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}}, precision="fp16"
    ),
    "weights in bf16, flash attention, two iterations": Setting(
        {"num_iterations": 2, "steps_per_generation": 2}
        | loading(dtype="bfloat16", attn_implementation="flash_attention_2")
    ),
    "weights in fp16, eager attention": Setting(
        {"bf16": False, **loading(dtype="float16", attn_implementation="eager")}, precision="fp16"
    ),
    # Graphs are captured, but not compiled by a C++ compiler, which takes minutes.
    "compiled, one layer": Setting(
        {"torch_compile": True, "torch_compile_backend": "eager", "gradient_checkpointing": False}
        | loading(num_hidden_layers=1)
    ),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_reference_reads_the_floor_and_changes_no_loss(setting, tmp_path, flash_kernels):
    figures = measured(setting, tmp_path)
    assert figures.receipt <= 1.05
    assert figures.separate <= SAME[setting.precision] and figures.float32 <= FLOAT32[setting.precision]
    plain = trained([by_code], setting, tmp_path, len(figures.losses))
    assert figures.losses == losses(plain)


def test_qlora_reads_the_floor(tmp_path):
    pytest.importorskip("bitsandbytes")  # 0.50 computes 4-bit weights on a CPU
    quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    figures = measured(Setting(loading(quantization_config=quantized)), tmp_path)
    assert figures.receipt <= 1.05 and figures.separate <= SAME["bf16"]


def test_two_ranks_read_the_floor(tmp_path):
    """With the weights on each rank, and with parts of them. One start of the ranks is all kinds."""
    kinds = ("ddp", "fsdp1", "fsdp2")
    logs = on_two_ranks("rewards/placement_ranks.py", tmp_path, *kinds)
    for kind, log in ((kind, log[kind]) for kind in kinds for log in logs):
        assert log["sharded"] == (kind != "ddp")
        assert log["receipt"] <= (1.15 if log["sharded"] else 1.05)  # with parts of the weights, nothing is kept
        for dtype, most in ((torch.bfloat16, SAME["bf16"]), (torch.float32, FLOAT32["bf16"])):
            assert difference(log["given"], probabilities(base(dtype), None, log["prompts"])) <= most, kind
