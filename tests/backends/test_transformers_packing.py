"""The self-check of packed reads, and the bound of LongRoPE."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, Llama4TextConfig, MistralConfig

from checklist_rewards.backends import inputs as packing
from checklist_rewards.backends.inputs import Layers, cache_argument, keeps_exactly, packs_exactly, rope_boundary

SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
WIDE = 4096  # far longer than the prompts of the check
CONFIGS = {
    "sliding_window": lambda: MistralConfig(**SMALL, **HEADS, sliding_window=WIDE),
    "attention_chunk_size": lambda: Llama4TextConfig(
        **SMALL,
        **HEADS,
        attention_chunk_size=WIDE,
        intermediate_size_mlp=48,
        num_local_experts=2,
        layer_types=["chunked_attention", "full_attention"],
    ),
}


@pytest.mark.parametrize("width", CONFIGS)
def test_a_mask_that_ignores_windows_is_found_out_by_prompts_that_are_shorter_than_them(width, monkeypatch):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[width]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(5.0)  # what the model attends to changes its logits

    def logits(inputs):
        given = {cache_argument(model): inputs.past, "position_ids": inputs.positions, "attention_mask": inputs.mask}
        with torch.inference_mode():
            out = model(input_ids=inputs.ids, use_cache=inputs.past is not None, **given).logits
        return out[inputs.answers[:, 0], inputs.answers[:, 1]]

    def checked():
        arguments = model, Layers.of(model), logits, torch.device("cpu")
        packs, keeps = packs_exactly(*arguments), keeps_exactly(*arguments)
        assert packs == keeps
        return packs

    assert checked()
    monkeypatch.setattr(packing, "_within", lambda *_: torch.ones((), dtype=torch.bool))
    assert not checked()
    assert getattr(model.config, width) == WIDE


@pytest.mark.parametrize(
    ("config", "bound"),
    [
        ({}, None),
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 64}}, 64),
        ({"rope_parameters": {"rope_type": "longrope"}, "original_max_position_embeddings": 128}, 128),
        (
            {
                "rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 64},
                "original_max_position_embeddings": 128,
            },
            64,
        ),
        ({"rope_parameters": {"rope_type": "longrope"}}, None),
        ({"rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 64}}, None),
        ({"rope_parameters": {"rope_type": "default"}, "original_max_position_embeddings": 128}, None),
        (
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 256},
                    "sliding_attention": {"rope_type": "longrope", "original_max_position_embeddings": 32},
                    "other_attention": {"rope_type": "yarn", "original_max_position_embeddings": 8},
                }
            },
            32,
        ),
    ],
)
def test_only_longrope_has_a_bound_and_it_may_be_in_either_place(config, bound):
    assert rope_boundary(SimpleNamespace(**config)) == bound
