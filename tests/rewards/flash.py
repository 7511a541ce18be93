"""A stand-in for the flash attention kernels, which need a GPU.

transformers' own code around the kernels runs as it is: the choice of the implementation, its two-dimensional masks,
sequences packed by their positions, and the cast to 16 bits. Only the two functions that the kernels offer are
plain torch here. As the kernels, they accept no mask.
"""

import pytest
import torch
import torch.nn.functional as F
from transformers import modeling_flash_attention_utils
from transformers.modeling_utils import PreTrainedModel


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, **_):
    """Attention over tensors of shape (rows, tokens, heads, width); the last query sees the last key."""
    assert q.dtype in (torch.bfloat16, torch.float16), "FlashAttention only supports fp16 and bf16"
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if causal:
        seen = seen.tril(k.shape[2] - q.shape[2])
    many = q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(q, k, v, seen, dropout_p, scale=softmax_scale, enable_gqa=many)
    return out.transpose(1, 2)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, **settings):
    """Attention over several sequences that follow each other, of shape (tokens, heads, width)."""
    queries, keys = (bounds.diff().tolist() for bounds in (cu_seqlens_q, cu_seqlens_k))
    parts = zip(q.split(queries), k.split(keys), v.split(keys), strict=True)
    return torch.cat([flash_attn_func(*(part[None] for part in each), **settings)[0] for each in parts])


@pytest.fixture
def flash_kernels(monkeypatch):
    """Models can be loaded with `attn_implementation="flash_attention_2"` on a CPU."""

    def load(name, wrapper=None, allow_all_kernels=False):
        utils = modeling_flash_attention_utils
        return flash_attn_func, flash_attn_varlen_func, None, utils._pad_input, utils._unpad_input

    monkeypatch.setattr(modeling_flash_attention_utils, "_lazy_imports", load)
    monkeypatch.setattr(modeling_flash_attention_utils, "_loaded_implementation", None)
    monkeypatch.setattr(PreTrainedModel, "_flash_attn_can_dispatch", lambda *_, **__: True)
