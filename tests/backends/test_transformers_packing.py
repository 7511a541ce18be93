"""The self-check of packed reads, the precision and the attention of a model, and the bound of LongRoPE."""

import logging
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    Llama4TextConfig,
    MistralConfig,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import flash_attention_mask

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends import inputs as packing
from checklist_rewards.backends.inputs import (
    Layers,
    Precision,
    agree,
    cache_argument,
    keeps_exactly,
    packs_exactly,
    rope_boundary,
)
from checklist_rewards.backends.live import LiveBackend
from checklist_rewards.backends.models import pocket_dir
from checklist_rewards.backends.transformers import TransformersBackend

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


LONG, AT_64 = {"rope_type": "longrope"}, {"original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("rope", "others", "bound"),
    [
        (None, {}, None),
        (LONG, {}, None),
        (LONG | AT_64, {"original_max_position_embeddings": 128}, 64),
        (LONG, {"original_max_position_embeddings": 128}, 128),
        ({"rope_type": "yarn"}, {"original_max_position_embeddings": 128}, None),
        ({"full": LONG | {"original_max_position_embeddings": 256}, "sliding": LONG | AT_64}, {}, 64),
    ],
)
def test_only_longrope_has_a_bound_and_it_may_be_in_either_place(rope, others, bound):
    given = {} if rope is None else {"rope_parameters": rope}
    assert rope_boundary(SimpleNamespace(**given, **others)) == bound


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_logits_agree_if_they_differ_by_rounding_and_not_if_they_differ_by_more(dtype, scale):
    exact = torch.randn(5, 200, generator=torch.Generator().manual_seed(0)) * scale
    step = Precision().rounding(torch.device("cpu")) if dtype == FP32 else torch.finfo(dtype).eps
    assert agree(exact.to(dtype), exact, step)
    wrong = exact.clone()
    wrong[1:] += torch.randn(4, 200, generator=torch.Generator().manual_seed(1)) * scale * max(step, 1e-4) * 8
    assert not agree(wrong, exact, step)
    wrong[1:] = exact[1:].roll(1, 0)  # the answers to other prompts
    assert not agree(wrong, exact, step)


def test_one_prompt_with_other_experts_is_let_pass_in_low_precision_only():
    exact = torch.randn(5, 200, generator=torch.Generator().manual_seed(0))
    other = exact.clone()
    other[3] = exact[2]
    assert agree(other, exact, torch.finfo(BF16).eps) and not agree(other, exact, torch.finfo(FP32).eps)
    assert not agree(other[2:], exact[2:], torch.finfo(BF16).eps)


class Products(TorchFunctionMode):
    """A device whose products of matrices in single precision keep some bits of the mantissa, as TF32 (10) or bf16."""

    def __init__(self, bits: int):
        super().__init__()
        self.bits = bits

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
            args = [torch.round(matrix * 2**self.bits) / 2**self.bits for matrix in args]
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("bits", [7, 10, 23])
def test_the_rounding_of_products_on_a_device_is_noticed(bits):
    with Products(bits):
        assert Precision().rounding(torch.device("cpu")) == 2**-bits


def test_the_precision_is_that_of_what_modules_return():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    for autocast, dtype in ((None, FP32), (FP16, FP16), (BF16, BF16)):
        with Precision.of(model) as precision, torch.autocast("cpu", autocast, enabled=autocast is not None):
            model(torch.ones(2, 4))
        assert precision.dtype == dtype
    with Precision.of(model.bfloat16()) as precision:
        model(torch.ones(2, 4, dtype=BF16))
    assert precision.dtype == BF16 and not any(module._forward_hooks for module in model.modules())


def without_masks(module, query, key, value, attention_mask, **kwargs):
    """Attention that stands in for flash attention and kernels from the Hub: it refuses masks of other shapes."""
    if attention_mask is not None and attention_mask.dim() != 2:
        raise ValueError("this attention takes no masks of any shape")
    return sdpa_attention_forward(module, query, key, value, None, **kwargs)


def of_its_own(module, query, key, value, attention_mask, **kwargs):
    """Attention that is not that of sdpa."""
    return without_masks(module, query * 3, key, value, attention_mask, **kwargs)


GROUPS = [ReadGroup("You judge.", target * 6, ("Is it short?", "Is it red?")) for target in ("A text. ", "Words. ")]


def with_attention(function):
    name = function.__name__
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, flash_attention_mask)
    return AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=FP32, attn_implementation=name)


@pytest.mark.parametrize(
    "engine_of",
    [LiveBackend, lambda model: TransformersBackend("pocket", attn_implementation=model.config._attn_implementation)],
)
def test_a_model_with_attention_that_takes_no_masks_reads_with_sdpa_and_keeps_its_own(engine_of):
    model = with_attention(without_masks)
    engine = engine_of(model)
    result, of_sdpa = (each.read(GROUPS, ("yes", "no")) for each in (engine, TransformersBackend("pocket")))
    assert engine.attention == "sdpa" and result == of_sdpa and result[1].separate == 0
    assert engine.model.config._attn_implementation == "without_masks"
    assert engine.model.model.layers[0].self_attn.config._attn_implementation == "without_masks"


def test_attention_that_nothing_else_computes_reads_separate_prompts_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        engine = LiveBackend(with_attention(of_its_own))
    assert engine.attention == "of_its_own" and engine.read(GROUPS, ("yes", "no"))[1].separate == 4
    [record] = [record for record in caplog.records if "read separately" in record.message]
    assert "(attn_implementation='of_its_own') cannot read several questions" in record.message


def test_reads_compile_nothing():
    compiled = []

    def backend(graph, _):
        compiled.append(graph)
        return graph.forward

    model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype=FP32)
    policy, ids = torch.compile(model, backend=backend), torch.arange(20)[None]
    policy(ids)
    before = len(compiled)
    for engine in (LiveBackend(policy), LiveBackend(model)):
        assert engine.read(GROUPS, ("yes", "no")) == TransformersBackend("pocket").read(GROUPS, ("yes", "no"))
    policy(ids)
    assert len(compiled) == before > 0
