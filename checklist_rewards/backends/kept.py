"""Prefixes that are computed once and kept as a cache of keys and values for the rows of prompts below them.

A row of several prompts computes attention over all pairs of its tokens, also where the tree mask hides them. With 8
targets of 225 tokens below rules and an input of 600 tokens, that is 2,400 x 2,400 pairs. If the 600 tokens are
computed first and kept, each target is a row of its own whose tokens attend to 600 + 225 tokens, and the prefix
attends causally to itself: a third of the pairs, with the same tokens computed.

[`keep_prefixes`] decides by estimated cost ([`Costs`]) which beginnings of prompts are kept. Several may follow each
other: the rules of a judge, and below them each input. It returns a tree of [`Kept`] with the rows below each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from checklist_rewards.backends.trees import Branch, PrefixTree, TreeRow, tree_rows

T = TypeVar("T")

_WIDEST = 4096
"""Most tokens in a row of several targets: the mask of a row grows with the square of its width."""
EVEN = 4.5
"""Attention over a row of this many tokens, times the hidden size, takes as long as all matrices. A layer has about
12 x size^2 weights, so 24 x size^2 operations per token, and 4 x size per pair of tokens: 6 by this count, and 4.4 as
measured with SmolLM2 on a CPU, where attention makes fewer operations per second."""
_SKIPPED = 256
"""A causal pass of n tokens without a mask computes about n x (n / 2 + 256) pairs: all at 512 tokens, 0.6 of them at
2,650, as measured on a CPU."""
_COPY = 8
"""Copying a token of a kept prefix for a row takes as long as attention of this many tokens to it: 6 for 570 tokens, 8
for 2,170, as measured with the sizes of SmolLM2 on a CPU."""
PASS = {"cpu": 32}
"""A forward pass of its own costs as much as this many tokens, for the launch of its operations and reading the
weights. 40 for the pocket model on a CPU and 21 for SmolLM2, as measured with one thread."""
PASS_GPU = 2048
"""The same on other devices. Not measured: chosen high, so that only long prefixes are kept there."""


class Costs(NamedTuple):
    """Estimated cost of forward passes, in tokens whose matrices take as long."""

    even: float
    """Width of a row in which attention takes as long as all matrices."""
    one: float
    """Cost of a pass, whatever its size."""
    room: int
    """`max_batch_tokens`: most tokens of a row, and most tokens, with those of the prefix, of the rows of a pass."""
    batch: int
    """Most tokens of a pass in practice."""

    def row(self, width: int, past: int = 0) -> float:
        """A row of several prompts below `past` kept tokens. Rows share their passes."""
        shared = self.one * min(1.0, (past + width) / self.batch) if past else 0.0
        return width + (width * (past + width) + _COPY * past) / self.even + shared

    def prefix(self, width: int, past: int) -> float:
        """A pass of tokens that are kept."""
        pairs = width * (width + past) if past else width * (width / 2 + _SKIPPED)
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
        return longer <= _WIDEST and self.row(longer, past) - self.row(width, past) <= self.row(alone, past)

    def keeps(self, shared: int, own: int, count: int, past: int) -> bool:
        """Whether `shared` tokens with which `count` branches start should be computed once and kept."""
        kept = self.prefix(shared, past) + self.rows(0, own, count, past + shared)
        return kept < self.rows(shared, own, count, past)


@dataclass(slots=True)
class Kept(Generic[T]):
    """Tokens that are computed once, and the rows below them. The root of a plan has no tokens."""

    prefix: list[int]
    """The first tokens of all prompts below."""
    depth: int
    """How many of them are kept above."""
    branches: list[Branch[T]] = field(default_factory=list)
    """The prompts below, without the prefix, if they are not below a longer one."""
    below: list[Kept[T]] = field(default_factory=list)
    """Longer prefixes that start with this one."""

    @property
    def ids(self) -> list[int]:
        """Token ids to compute, without those that are kept above."""
        return self.prefix[self.depth :]

    def rows(self, costs: Costs) -> list[TreeRow[T]]:
        """The prompts in rows, longest first to minimize padding."""
        end = len(self.prefix)
        rows = tree_rows(
            self.branches, max(costs.room - end, 1), lambda width, new, alone: costs.saves(width, new, alone, end)
        )
        return sorted(rows, key=lambda row: -len(row.ids))

    def prompts(self) -> list[Branch[T]]:
        """All prompts below, with the prefix."""
        own = [(self.prefix + list(rest), tails) for rest, tails in self.branches]
        return own + [branch for kept in self.below for branch in kept.prompts()]


def keep_prefixes(branches: Sequence[Branch[T]], costs: Costs) -> Kept[T]:
    """Decide which beginnings of prompts are computed once and kept, and which rows are below them.

    Together, the prefixes that are kept at the same time have at most half of `room` tokens.

    Args:
        branches (sequence of [`Branch`]): The prompts; branches with tokens in common should be adjacent. Empty tails
            are not allowed.
        costs ([`Costs`]): The costs, and the room.
    """
    tree = PrefixTree[None]()
    for prefix, _ in branches:
        tree.add(prefix)
    nodes = [tree.add(prefix) for prefix, _ in branches]  # again, because adding a prefix may cut a segment in two
    own: dict[int, int] = {}
    count: dict[int, int] = {}
    for node, (_, tails) in zip(nodes, branches, strict=True):
        own[id(node)] = own.get(id(node), 0) + sum(len(tail) for tail, _ in tails)
        count[id(node)] = count.get(id(node), 0) + 1
    for node in reversed(tree.segments()):  # children before their parents
        if node.parent is not None:
            up = id(node.parent)
            own[up] = own.get(up, 0) + node.length + own.get(id(node), 0)
            count[up] = count.get(up, 0) + count.get(id(node), 0)
    root = Kept[T]([], 0)
    above: dict[int, tuple[Kept[T], int]] = {id(tree.root): (root, 0)}
    for node in tree.segments():
        kept, held = above[id(node.parent)]
        end, start = node.depth + node.length, len(kept.prefix)
        fits = held + end <= costs.room // 2
        if fits and costs.keeps(end - start, own[id(node)], count[id(node)], start):
            longer = Kept[T](tree.path(node), start)
            kept.below.append(longer)
            kept, held = longer, held + end
        above[id(node)] = kept, held
    for node, (prefix, tails) in zip(nodes, branches, strict=True):
        kept, _ = above[id(node)]
        kept.branches.append((prefix[len(kept.prefix) :], tails))
    return root


class Past:
    """Keys and values of a kept prefix, of all layers.

    Args:
        cache (`Cache`): A cache in which a forward pass has put the tokens of one prompt.

    Raises:
        TypeError: If a layer of the cache does not keep all tokens.
    """

    def __init__(self, cache: Any):
        self._layers = [(layer.keys, layer.values) for layer in cache.layers]
        self.length = int(self._layers[0][0].shape[-2])
        """The number of tokens."""
        if any(tensor.shape[0] != 1 or tensor.shape[-2] != self.length for pair in self._layers for tensor in pair):
            raise TypeError(f"{type(cache).__name__} does not keep all tokens of a prompt")

    @staticmethod
    def empty() -> Any:
        """A cache for the first prefix. All layers keep all tokens, also those with a sliding window."""
        return DynamicCache()

    def longer(self) -> Any:
        """A cache to which the tokens of one row are added."""
        return self._cache(DynamicLayer)

    def shown(self) -> Any:
        """A cache that all rows of a pass see, and to which nothing is added."""
        return self._cache(_Shown)

    def _cache(self, kind: type[Any]) -> Any:
        layers = []
        for keys, values in self._layers:
            layer = kind()
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            layer.dtype, layer.device = keys.dtype, keys.device
            layers.append(layer)
        return Cache(layers=layers)


class _Shown(DynamicLayer):
    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        rows = key_states.shape[0]
        return (
            torch.cat([self.keys.expand(rows, -1, -1, -1), key_states], dim=-2),
            torch.cat([self.values.expand(rows, -1, -1, -1), value_states], dim=-2),
        )
