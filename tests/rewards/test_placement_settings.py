"""`model="reference"` with the settings that users have: what it reads, how exactly, and the table in the docs."""

from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from checklist_rewards.backends import pocket_dir
from checklist_rewards.validation import missing
from tests.ranks import on_two_ranks
from tests.rewards.flash import NAMES, flash_kernels
from tests.rewards.placement_settings import (
    LORA,
    Setting,
    by_code,
    difference,
    documented,
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


def adapters() -> object:
    """A policy with two adapters, of which the first is trained."""
    model = get_peft_model(base(), LORA)
    model.add_adapter("other", LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    return model


def further() -> object:
    """A policy whose adapter has been trained before."""
    return get_peft_model(base(), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))


def loading(**kwargs) -> dict:
    return {"model_init_kwargs": kwargs}


QLORA = "QLoRA: 4-bit weights (bitsandbytes), compared with unquantized weights"
RANKS = {"DDP": "ddp", "FSDP 2": "fsdp2", "FSDP 1": "fsdp1", "ZeRO-3": "zero3"}
"""What two ranks on CPUs can be, and the argument of their script."""
COMPILED = {"torch_compile_backend": "eager", "gradient_checkpointing": False}
"""Graphs are captured, but not compiled by a C++ compiler, which takes minutes."""


def attention(name: str) -> Setting:
    """A setting with an implementation of attention. The kernels compute 16 bits only."""
    dtype = {} if name == "eager" else {"dtype": "bfloat16"}
    return Setting(f"`attn_implementation`: {name}", loading(attn_implementation=name, **dtype))


TRAININGS = [
    [Setting("TRL's defaults: bf16 by autocast, gradient checkpointing")],
    [
        Setting("`bf16=False`", {"bf16": False}, precision="float32"),
        Setting("`gradient_checkpointing=False`", {"gradient_checkpointing": False}),
        Setting("two adapters", policy=adapters),
    ],
    [
        Setting("`fp16=True`", {"fp16": True}, precision="fp16"),
        Setting("reentrant checkpoints", {"gradient_checkpointing_kwargs": {"use_reentrant": True}}),
    ],
    [
        Setting('policy loaded in bf16 (`"dtype": "bfloat16"`)', loading(dtype="bfloat16")),
        Setting("`num_iterations=2`, `steps_per_generation=2`", {"num_iterations": 2, "steps_per_generation": 2}),
        attention(NAMES[0]),
    ],
    [
        Setting("policy loaded in fp16, `bf16=False`", {"bf16": False, **loading(dtype="float16")}, precision="fp16"),
        attention("eager"),
    ],
    [attention(NAMES[1]), Setting("`dataloader_num_workers=1`", {"dataloader_num_workers": 1})],
    [attention(NAMES[2])],
    [Setting("`torch_compile=True`, one layer", {"torch_compile": True, **COMPILED, **loading(num_hidden_layers=1)})],
    [Setting("an adapter that is trained further, `beta=0.1`", {"beta": 0.1}, policy=further)],
]
"""The rows of the table that one process measures. Settings that do not act on each other share a training."""


def together(settings: list[Setting]) -> Setting:
    """One setting with the options of several, in the precision of the first."""
    first, *others = settings
    for other in others:
        options = {**first.options, **other.options}
        kwargs = (each.options.get("model_init_kwargs", {}) for each in (first, other))
        if kwargs := {name: value for each in kwargs for name, value in each.items()}:
            options["model_init_kwargs"] = kwargs
        first = replace(first, options=options, policy=first.policy or other.policy)
    return first


def test_qlora_reads_the_floor(tmp_path):
    pytest.importorskip("bitsandbytes")  # 0.50 computes 4-bit weights on a CPU
    quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    figures = measured(Setting(QLORA, loading(quantization_config=quantized)), tmp_path)
    assert figures.receipt <= 1.05 and figures.separate <= SAME["bf16"]
    assert documented(QLORA) == f"{figures.receipt:.2f}"


@pytest.mark.parametrize("settings", TRAININGS, ids=lambda settings: "; ".join(each.name for each in settings))
def test_a_reference_reads_the_floor_and_changes_no_loss(settings, tmp_path, flash_kernels):
    setting = together(settings)
    figures = measured(setting, tmp_path)
    assert figures.receipt <= 1.05
    assert figures.separate <= SAME[setting.precision] and figures.float32 <= FLOAT32[setting.precision]
    assert {documented(each.name) for each in settings} == {f"{figures.receipt:.2f}"}
    plain = trained([by_code], setting, tmp_path, len(figures.losses))
    assert figures.losses == losses(plain)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """What each of two ranks has read, by kind. One start of the ranks is all kinds."""
    kinds = [kind for kind in RANKS.values() if kind != "zero3" or not missing("deepspeed")]
    return on_two_ranks("rewards/placement_ranks.py", tmp_path_factory.mktemp("ranks"), *kinds)


@pytest.mark.parametrize("name", RANKS)
def test_two_ranks_read_the_floor(name, logs):
    if RANKS[name] not in logs[0]:
        pytest.skip("deepspeed is not installed")
    for log in (each[RANKS[name]] for each in logs):
        assert log["sharded"] == (name != "DDP")
        assert log["receipt"] <= (1.15 if log["sharded"] else 1.05)  # with parts of the weights, nothing is kept
        for dtype, most in ((torch.bfloat16, SAME["bf16"]), (torch.float32, FLOAT32["bf16"])):
            assert difference(log["given"], probabilities(base(dtype), None, log["prompts"])) <= most
    assert documented(name) == f"{log['receipt']:.2f}"
