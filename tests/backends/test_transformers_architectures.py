"""Reads and replies of the transformers engine on every architecture are those of the model itself.

The reference has nothing of ours: a plain `model(input_ids)` per prompt, and `generate` on a single prompt. The
prompts reach far beyond the windows of 16 tokens. The table in `docs/compatibility.md` is this suite's; write it again
with `CHECKLIST_REWARDS_WRITE_DOCS=1 pytest tests/backends/test_transformers_architectures.py`.
"""

import functools
import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from checklist_rewards.backends import ReadGroup, Sampling
from checklist_rewards.backends.live import LiveBackend
from checklist_rewards.backends.transformers import TransformersBackend
from tests.backends.answers import LABELS, user
from tests.backends.architectures import (
    ARCHITECTURES,
    build,
    check_table,
    farthest,
    in_autocast,
    label_logprobs,
    made_once,
)

TAILS = ("Is it short?", "Is it long? Really?", "Is it red?", "Does it tell a story with many words in it? " * 2)
GROUPS = [
    ReadGroup("You judge.", "A short target. ", TAILS),
    ReadGroup("You judge.", "Some words are here. " * 9, TAILS),
    ReadGroup(None, "Other words stand there. " * 11, TAILS[1:]),
]
PROMPTS = [user("Write it down . " * count) for count in (1, 6, 14)]
# Recurrent layers carry a state through the row; ALiBi counts places instead of positions; Doge looks to its right.
SEPARATE = {"Bloom (ALiBi)", "Doge", "Qwen3-Next", "Qwen3.5", "Mamba 2", "Falcon-H1", "RecurrentGemma"}
# One for each kind of attention, of positions, of experts and of recurrent layers.
ONE_OF_A_KIND = ("Llama", "Mistral, sliding", "Doge", "Gemma 2", "Phi-3, LongRoPE", "gpt-oss", "DeepSeek-V3")
ONE_OF_A_KIND += ("Llama 4", "GPT-2", "Bloom (ALiBi)", "Qwen3.5", "Falcon-H1", "RecurrentGemma")
_BLOCKS = {"recurrent": "linear_attention", "attention": "sliding_attention"}  # those of RecurrentGemma before 5.24


folder_of, engine_of = made_once(build)


@functools.cache
def alone(name: str) -> list[torch.Tensor]:
    """ln P(label) of every read by the model itself, one prompt at a time."""
    engine = engine_of(name)
    config = engine.model.config.get_text_config()
    eager = getattr(config, "attn_logit_softcapping", None)  # which transformers' sdpa leaves out
    model = AutoModelForCausalLM.from_pretrained(
        folder_of(name), dtype=torch.float32, attn_implementation="eager" if eager else None
    ).eval()
    forms = engine.tokens.label_groups(LABELS)
    prompts = [group.prefix + tail for group in engine.tokens.groups(GROUPS) for tail in group.tails]
    with torch.inference_mode():
        return [label_logprobs(model(torch.tensor([prompt])).logits, forms) for prompt in prompts]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_reads_are_those_of_a_plain_forward_pass(name):
    engine = engine_of(name)
    engine.device_costs = engine.device_costs._replace(even=math.inf)  # rows of several targets, at any price
    answers, result = engine.read(GROUPS, LABELS)
    assert farthest(answers, alone(name)) < 1e-4 and result.cached == 0
    assert engine.packs == (name not in SEPARATE)
    assert result.separate == (0 if engine.packs else len(answers))
    if name == "Phi-3, LongRoPE":  # short and long prompts in rows of their own
        assert result.floor_tokens < result.computed_tokens < 1.05 * result.floor_tokens
    else:
        assert result.computed_tokens == (result.floor_tokens if engine.packs else result.prompt_tokens)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_reads_below_kept_prefixes_are_those_of_a_plain_forward_pass(name, monkeypatch):
    engine = engine_of(name)
    costs = engine.device_costs._replace(even=4.5, one=-1e9)  # keep every beginning of prompts, at any price
    monkeypatch.setattr(engine, "device_costs", costs)
    answers, result = engine.read(GROUPS, LABELS)
    assert farthest(answers, alone(name)) < 1e-4
    assert engine.keeps == engine.packs
    if name == "Phi-3, LongRoPE":  # prompts beyond its boundary are not below a prefix
        assert 0 < result.cached < len(answers)
    else:
        assert result.cached == (len(answers) if engine.keeps else 0)
        assert result.computed_tokens == (result.floor_tokens if engine.keeps else result.prompt_tokens)


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_replies_to_a_batch_are_those_to_single_prompts(name):
    engine, sampling = engine_of(name), Sampling(max_tokens=12)
    assert engine.generate(PROMPTS, sampling) == [engine.generate([prompt], sampling)[0] for prompt in PROMPTS]


PRECISIONS = [(name, precision) for name in ONE_OF_A_KIND for precision in ("bfloat16", "float16", "autocast")]


@pytest.mark.parametrize(("name", "precision"), PRECISIONS)
def test_what_is_packed_does_not_depend_on_the_precision(name, precision):
    if precision == "autocast":  # TRL's default: weights in single precision, whose forward pass is in bf16
        model = AutoModelForCausalLM.from_pretrained(folder_of(name), dtype=torch.float32)
        engine, dtype = LiveBackend(in_autocast(model)), torch.bfloat16
    else:
        engine, dtype = TransformersBackend(folder_of(name), dtype=precision), getattr(torch, precision)
    assert engine.packs == (name not in SEPARATE)
    if engine.packs:
        assert engine.layers.dtype == dtype and engine.pads
        # Rounding may choose other experts for a token; then the check cannot tell, and no prefix is kept.
        assert engine.keeps or getattr(engine.model.config, "num_local_experts", None)


def test_prompts_reach_beyond_every_window_and_beyond_the_boundary_of_longrope():
    lengths = [len(group.prefix) for group in engine_of("Llama").tokens.groups(GROUPS)]
    assert min(lengths) < 64 - 16 < 64 < 3 * 64 < max(lengths)


def test_the_table_in_the_documentation_is_this_suites():
    alike: dict[tuple[str, str], list[str]] = {}
    for name in ARCHITECTURES:
        engine = engine_of(name)
        config = engine.model.config.get_text_config()
        blocks = [_BLOCKS[block] for block in getattr(config, "layers_block_type", ()) if block in _BLOCKS]
        kinds = getattr(config, "layer_types", None) or blocks
        found = engine.layers.kinds if engine.layers is not None else sorted(set(kinds))
        shown = ", ".join(kind.removesuffix("_attention") for kind in found)
        alike.setdefault((shown, "packed" if engine.packs else "separate prompts"), []).append(name)
    rows = [f"| {shown} | {reads} | {'; '.join(names)} |" for (shown, reads), names in alike.items()]
    table = "\n".join(["| attention | reads | architectures |", "|---|---|---|", *rows, ""])
    check_table("architectures", table)
