"""What forward passes cost on a device: the figures by which prefix trees are planned, and where each was measured.

A pass is estimated in tokens whose matrices take as long ([`Costs`]). The figures depend on the device
([`DeviceCosts`]); the model adds its hidden size. `recipes/studies/benchmarks/gpu.py` measures passes on a device and
fits the figures to them.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_BATCH_TOKENS = 8192
"""Default of `max_batch_tokens`, on all devices. It limits memory; it was not chosen for speed."""


class DeviceCosts(NamedTuple):
    """The figures of a device, for all models."""

    even: float
    """Attention over a row of this many tokens, times the hidden size, takes as long as all matrices. A layer has
    about 12 x size^2 weights, so 24 x size^2 operations per token, and 4 x size per pair of tokens: 6 by this
    count."""
    one: float
    """A forward pass of its own costs as much as this many tokens, for the launch of its operations and reading the
    weights."""
    skipped: float
    """A causal pass of n tokens without a mask computes about n x (n / 2 + `skipped`) pairs."""
    copied: float
    """Copying a token of a kept prefix for a row takes as long as attention of this many tokens to it."""
    widest: int
    """Most tokens in a row of several targets: the mask of a row grows with the square of its width."""
    batch: int | None
    """Most tokens of a pass of label reads, with padding. None for `max_batch_tokens`."""

    def of(self, size: int, room: int) -> Costs:
        """The costs of a model.

        Args:
            size (`int`): The hidden size of the model.
            room (`int`): `max_batch_tokens`.
        """
        batch = room if self.batch is None else min(room, self.batch)
        return Costs(self.even * size, self.one, room, batch, self.skipped, self.copied, self.widest)


CPU = DeviceCosts(even=4.5, one=32, skipped=256, copied=8, widest=4096, batch=2048)
"""Measured on x86 cores in single precision, with one thread.

- `even`: 4.4 with SmolLM2-135M, where attention makes fewer operations per second than matrices.
- `one`: 40 with the pocket model, 21 with SmolLM2.
- `skipped`: all pairs are computed at 512 tokens, 0.6 of them at 2,650, with SmolLM2.
- `copied`: 6 for a prefix of 570 tokens, 8 for 2,170, with the sizes of SmolLM2.
- `widest`: chosen for memory, not measured: a mask of 4,096 x 4,096 in single precision has 64 MiB.
- `batch`: larger batches do not fit into the caches and are slower.
"""
GPU = CPU._replace(one=2048, batch=None)
"""All other devices. Not measured: `even`, `skipped` and `copied` are those of a CPU, and `one` was chosen high, so
that only long prefixes are kept.

No single `one` can be right for all models. On a GPU, a pass costs the time in which its kernels are launched. This
time grows with the number of layers and not with their width, and it is worth more tokens the faster a token is: one =
layers x launch time of a layer / (2 x weights that a token meets / operations per second). With 0.5 ms per layer and
400 TFLOP/s (assumed), this is 6,700 tokens for Qwen2.5-0.5B and 430 for Qwen2.5-7B. Launching also overlaps with
computing, so it counts only if a pass is too short to hide it. The constant stays until the launch time is measured:
`gpu.py` reports it, the figures that fit, and what the planner chooses with them.
"""


def device_costs(kind: str) -> DeviceCosts:
    """The figures of a device by its type in torch: "cpu", "cuda" ..."""
    return CPU if kind == "cpu" else GPU


class Costs(NamedTuple):
    """Estimated cost of forward passes of a model, in tokens whose matrices take as long."""

    even: float
    """Width of a row in which attention takes as long as all matrices."""
    one: float
    """Cost of a pass, whatever its size."""
    room: int
    """`max_batch_tokens`: most tokens of a row, and most tokens, with those of the prefix, of the rows of a pass."""
    batch: int
    """Most tokens of a pass of label reads in practice, with padding."""
    skipped: float = CPU.skipped
    copied: float = CPU.copied
    widest: int = CPU.widest
    """As in [`DeviceCosts`], like the two before."""

    def row(self, width: int, past: int = 0) -> float:
        """A row of several prompts below `past` kept tokens. Rows share their passes."""
        shared = self.one * min(1.0, (past + width) / self.batch) if past else 0.0
        return width + (width * (past + width) + self.copied * past) / self.even + shared

    def prefix(self, width: int, past: int) -> float:
        """A pass of tokens that are kept."""
        pairs = width * (width + past) if past else width * (width / 2 + self.skipped)
        return self.one + width + pairs / self.even

    def rows(self, shared: int, own: int, count: int, past: int) -> float:
        """`count` branches with `own` tokens together, in rows that start with `shared` tokens more."""
        cheapest, most = float("inf"), 1
        while True:
            rows = -(-count // most)
            cheapest = min(cheapest, rows * self.row(shared + -(-own // rows), past))
            if most >= count:
                return cheapest
            most *= 2

    def saves(self, width: int, new: int, alone: int, past: int = 0) -> bool:
        """Whether `new` tokens more in a row of `width` cost less than `alone` tokens in a row of their own."""
        longer = width + new
        return longer <= self.widest and self.row(longer, past) - self.row(width, past) <= self.row(alone, past)

    def keeps(self, shared: int, own: int, count: int, past: int) -> bool:
        """Whether `shared` tokens with which `count` branches start should be computed once and kept."""
        kept = self.prefix(shared, past) + self.rows(0, own, count, past + shared)
        return kept < self.rows(shared, own, count, past)
