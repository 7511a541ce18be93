"""Batched sampling with a separate random generator for each row.

`generate` of transformers samples a whole batch with one global generator, so a reply depends on the other prompts in
the batch. [`RowSampler`] adds noise from a generator per row instead (the Gumbel-max trick: the argmax of logits /
temperature + Gumbel noise is a sample from the softmax), and `generate` takes the argmax. Up to floating-point noise,
a reply therefore depends only on its prompt and its seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import LogitsProcessor

from checklist_rewards.backends.base import Sampling


class RowSampler(LogitsProcessor):
    """Converts greedy decoding to sampling. Pass it in `logits_processor` with `do_sample=False`.

    Args:
        seeds (sequence of `int`): One seed per row, in [0, 2**63).
        sampling ([`Sampling`]): The temperature (greater than 0) and top_p.
        device (`torch.device`): The device of the model.
    """

    def __init__(self, seeds: Sequence[int], sampling: Sampling, device: torch.device):
        self.temperature, self.top_p = sampling.temperature, sampling.top_p
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return noisy scores of shape (rows, vocabulary). Their argmax is the sampled token."""
        logits = scores.float() / self.temperature
        if self.top_p < 1:
            logits = nucleus(logits, self.top_p)
        noise = torch.empty_like(logits)
        for row, generator in zip(noise, self.generators, strict=True):
            row.exponential_(generator=generator)  # its negative logarithm is Gumbel noise
        return logits - noise.log()


def nucleus(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """Set all logits to -inf except those of the most probable tokens of each row that together reach `top_p`."""
    ordered, places = logits.sort(descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    outside = probabilities.cumsum(-1) - probabilities >= top_p  # the more probable tokens already reach top_p
    return logits.masked_fill(outside.scatter(-1, places, outside), float("-inf"))
