"""Sampling in which every row draws from a generator of its own.

`generate` of transformers draws a batch's tokens from one global generator, so that a reply depends on the prompts
beside it. [`RowSampler`] draws each row's noise from the row's own seed instead (the Gumbel-max trick: the argmax of
logits / temperature + Gumbel noise is a sample of the softmax), and `generate` then only takes the argmax. A reply so
depends on its prompt and its seed, whatever the batch; floating-point noise aside.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LogitsProcessor

from checklist_rewards.backends.base import Sampling


class RowSampler(LogitsProcessor):
    """Turns greedy decoding into sampling: pass it in `logits_processor` with `do_sample=False`.

    Args:
        seeds (sequence of `int`): one per row, in [0, 2**63).
        sampling ([`Sampling`]): temperature (above 0) and top_p.
        device (`torch.device`): of the model.
    """

    def __init__(self, seeds: Sequence[int], sampling: Sampling, device: torch.device):
        self.temperature, self.top_p = sampling.temperature, sampling.top_p
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Noisy scores, (rows, vocabulary), whose argmax is the sampled token."""
        logits = scores.float() / self.temperature
        if self.top_p < 1:
            logits = nucleus(logits, self.top_p)
        noise = torch.empty_like(logits)
        for row, generator in zip(noise, self.generators, strict=True):
            row.exponential_(generator=generator)  # minus its logarithm is Gumbel noise
        return logits - noise.log()


def nucleus(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """`logits` with -inf for all but the most probable tokens of each row that reach `top_p` together."""
    ordered, places = logits.sort(descending=True, stable=True)
    shares = ordered.softmax(-1)
    outside = shares.cumsum(-1) - shares >= top_p  # what comes before a token reaches it already
    return logits.masked_fill(outside.scatter(-1, places, outside), float("-inf"))
