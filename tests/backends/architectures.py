"""Tiny random models of many architectures, with the pocket tokenizer: what reads must be exact on.

Windows are 16 tokens wide, so prompts of 48 tokens and more lie well beyond them. The weights are drawn wider than a
model's own initialisation: with the usual ones all attention is nearly uniform, and a wrong mask hardly shows.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import AutoModelForCausalLM, AutoTokenizer

from checklist_rewards.backends import Answer
from checklist_rewards.backends.models import pocket_dir
from checklist_rewards.backends.transformers import TransformersBackend
from tests.conftest import REPO

DOCUMENT = REPO / "docs" / "compatibility.md"
WINDOW = 16
_SIZE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
_MOE: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
_LAYERS = ["sliding_attention", "full_attention"] * 2
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
_MLA = {
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "head_dim": 8,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [3.0] * 8,
    "original_max_position_embeddings": 64,
}

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", {}),
    "Qwen2": ("Qwen2Config", {}),
    "Qwen2, sliding": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2}),
    "Qwen3": ("Qwen3Config", {}),
    "Qwen3-MoE": ("Qwen3MoeConfig", {**_MOE, "num_experts": 8}),
    "Mistral": ("MistralConfig", {"sliding_window": None}),
    "Mistral, sliding": ("MistralConfig", {"sliding_window": WINDOW}),
    "Mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "Ministral": ("MinistralConfig", {"sliding_window": WINDOW, "layer_types": _LAYERS}),
    "Doge": ("DogeConfig", {"keep_window_size": 80}),  # wider than the prompts of the checks while loading
    "Gemma 2": (
        "Gemma2Config",
        {"sliding_window": WINDOW, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 1.0, "layer_types": _LAYERS},
    ),
    "Gemma 3": ("Gemma3TextConfig", {"sliding_window": WINDOW, "query_pre_attn_scalar": 16, "layer_types": _LAYERS}),
    "Gemma 4": (
        "Gemma4TextConfig",
        {
            "sliding_window": WINDOW,
            "layer_types": _LAYERS,
            "global_head_dim": 16,
            "num_global_key_value_heads": 2,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 8,
        },
    ),
    "Phi-3": ("Phi3Config", {"sliding_window": None}),
    "Phi-3, sliding": ("Phi3Config", {"sliding_window": WINDOW}),
    "Phi-3, LongRoPE": (
        "Phi3Config",
        {"sliding_window": None, "rope_parameters": _LONGROPE, "original_max_position_embeddings": 64},
    ),
    "OLMo 2": ("Olmo2Config", {}),
    "OLMo 3": ("Olmo3Config", {"sliding_window": WINDOW, "layer_types": _LAYERS}),
    "gpt-oss": (
        "GptOssConfig",
        {"sliding_window": WINDOW, "layer_types": _LAYERS, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "Granite": ("GraniteConfig", {"logits_scaling": 2.0, "attention_multiplier": 0.3}),
    "GLM-4": ("Glm4Config", {}),
    "Cohere 2": ("Cohere2Config", {"sliding_window": WINDOW, "layer_types": _LAYERS}),
    "SmolLM3": ("SmolLM3Config", {}),
    "DeepSeek-V3": ("DeepseekV3Config", {**_MOE, **_MLA}),
    "Llama 4": (
        "Llama4TextConfig",
        {
            "attention_chunk_size": WINDOW,
            "intermediate_size_mlp": 96,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "layer_types": ["chunked_attention", "full_attention"] * 2,
        },
    ),
    "GPT-2": ("GPT2Config", {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512}),
    "Bloom (ALiBi)": ("BloomConfig", {"n_layer": 4, "n_head": 4}),
    "Qwen3-Next": ("Qwen3NextConfig", {**_MOE, **_DELTA, "num_experts": 4, "shared_expert_intermediate_size": 32}),
    "Qwen3.5": ("Qwen3_5TextConfig", _DELTA),
    "Mamba 2": ("Mamba2Config", {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1, "chunk_size": 16}),
    "Falcon-H1": (
        "FalconH1Config",
        {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 16},
    ),
    "RecurrentGemma": (
        "RecurrentGemmaConfig",
        {"attention_window_size": WINDOW, "lru_width": 64, "block_types": ["recurrent", "attention"]},
    ),
}
"""Name to config class of transformers and the settings that make it small."""


def build(name: str, folder: Path) -> str:
    """Save a random model of this architecture, with its tokenizer, and give its folder."""
    kind, settings = ARCHITECTURES[name]
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    special = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = getattr(transformers, kind)(**{**_SIZE, "vocab_size": len(tokenizer), **special, **settings})
    return saved(AutoModelForCausalLM, config, tokenizer, folder)


def saved(kind: Any, config: Any, tokenizer: Any, folder: Path) -> str:
    """Save a random model of a class with its tokenizer, and give the folder."""
    torch.manual_seed(0)
    model = kind.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def made_once(build: Callable[[str, Path], str]) -> tuple[Callable[[str], str], Callable[[str], TransformersBackend]]:
    """The folder and the engine of an architecture by its name, made at the first call."""

    @functools.cache
    def root() -> tempfile.TemporaryDirectory:  # of this process, not of that which has forked it
        return tempfile.TemporaryDirectory(prefix="checklist-rewards-architectures-")

    @functools.cache
    def folder_of(name: str) -> str:
        return build(name, Path(root().name) / re.sub("[ ,/]+", "_", name))

    @functools.cache
    def engine_of(name: str) -> TransformersBackend:
        return TransformersBackend(folder_of(name))

    return folder_of, engine_of


def check_table(mark: str, table: str) -> None:
    """This is the table of this name in the documentation. If asked for, it is written."""
    text = DOCUMENT.read_text(encoding="utf-8")
    start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->\n"
    before, _, rest = text.partition(start)
    shown, _, after = rest.partition(end)
    if os.environ.get("CHECKLIST_REWARDS_WRITE_DOCS"):
        DOCUMENT.write_text(before + start + table + end + after, encoding="utf-8")
    else:
        assert shown == table


def label_logprobs(logits: torch.Tensor, forms: Sequence[tuple[int, ...]]) -> torch.Tensor:
    """ln P(label) after one prompt, from the model's logits for it."""
    last = logits[0, -1].log_softmax(-1)
    return torch.stack([last[list(form)].logsumexp(-1) for form in forms])


def farthest(answers: Sequence[Answer], expected: Sequence[torch.Tensor]) -> float:
    """The largest difference of a read's log-probabilities from those expected."""
    read = [torch.tensor(answer.logprobs) for answer in answers]
    return max((ours - theirs).abs().max().item() for ours, theirs in zip(read, expected, strict=True))


def in_autocast(model: Any) -> Any:
    """A model whose forward pass a trainer with TRL's default bf16=True has wrapped."""
    AcceleratorState._reset_state()  # of other trainers in this process, as each new one does
    try:
        return Accelerator(cpu=True, mixed_precision="bf16").prepare(model)
    finally:
        AcceleratorState._reset_state()
