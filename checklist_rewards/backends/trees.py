"""Prompts as a prefix tree: tokens with which several prompts start are in a row, and computed, once.

    rules               r r r r                     positions 0 1 2 3
    target 1            . . . . a a                 positions         4 5
    question 1          . . . . . . p p             positions             6 7
    question 2          . . . . . .     q q         positions             6 7
    target 2, question  . . . .             b b b   positions         4 5 6

Each token attends to the tokens before it in its own prompt, at its position there, so every answer is that of a
separate prompt. Reading (`transformers.py`) and training (`distill/adapter.py`) use the same rows. The number of
tokens of a tree is the least that has to be computed for its prompts: the floor of every engine ([`floor_tokens`]).

A tree is kept as *segments*: runs of tokens between two places where prompts part.

A row of several prompts computes attention over all pairs of its tokens, also where the tree mask hides them. With 8
targets of 225 tokens below rules and an input of 600 tokens, that is 2,400 x 2,400 pairs. If the 600 tokens are
computed first and kept as a cache of keys and values, each target is a row of its own: a third of the pairs, with the
same tokens computed. [`keep_prefixes`] decides by estimated cost ([`Costs`]) which beginnings of prompts are kept.
Several may follow each other: the rules of a judge, and below them each input.
`recipes/studies/benchmarks/gpu.py` measures passes on a device and fits the figures to them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from checklist_rewards.backends.tokens import TokenGroup
from checklist_rewards.validation import np

T = TypeVar("T")

Branch = tuple[Sequence[int], Sequence[tuple[Sequence[int], T]]]
"""Token ids with which some prompts start, and the rest of each prompt with what belongs to it."""


MAX_BATCH_TOKENS = 8192
"""Default of `max_batch_tokens`, on all devices. It limits memory; it was not chosen for speed."""


class Costs(NamedTuple):
    """Estimated cost of forward passes, in tokens whose matrices take as long: of a device, or with [`of`] of a
    model."""

    even: float
    """Attention over a row of this many tokens takes as long as all matrices; of a device, of this many times the
    hidden size. A layer has about 12 x size^2 weights, so 24 x size^2 operations per token, and 4 x size per pair of
    tokens: 6 by this count."""
    one: float
    """A forward pass of its own costs as much as this many tokens, for the launch of its operations and reading the
    weights."""
    batch: int
    """Most tokens of a pass of label reads, with padding."""
    room: int = MAX_BATCH_TOKENS
    """`max_batch_tokens`: most tokens of a row, and most tokens, with those of the prefix, of the rows of a pass."""
    skipped: float = 256
    """A causal pass of n tokens without a mask computes about n x (n / 2 + `skipped`) pairs."""
    copied: float = 8
    """Copying a token of a kept prefix for a row takes as long as attention of this many tokens to it."""
    widest: int = 4096
    """Most tokens in a row of several targets: the mask of a row grows with the square of its width."""

    def of(self, size: int, room: int) -> Costs:
        """The costs of a model with this hidden size, and `max_batch_tokens`."""
        return self._replace(even=self.even * size, batch=min(room, self.batch), room=room)

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


CPU = Costs(even=4.5, one=32, batch=2048)
"""Measured on x86 cores in single precision, with one thread and SmolLM2-135M: `even` 4.4; `one` 21, and 40 with the
pocket model; `skipped`: all pairs at 512 tokens, 0.6 of them at 2,650; `copied` 6 for a prefix of 570 tokens, 8 for
2,170. Batches larger than `batch` do not fit into the caches and are slower. `widest` was chosen for memory: a mask of
4,096 x 4,096 in single precision has 64 MiB.
"""
GPU = CPU._replace(one=2048, batch=2**31)
"""All other devices. Not measured: `even`, `skipped` and `copied` are those of a CPU, and `one` was chosen high, so
that only long prefixes are kept.

No single `one` is right for all models: the launch of a pass takes time per layer, which is worth more tokens the
faster a token is. With 0.5 ms per layer and 400 TFLOP/s (assumed), it is 6,700 tokens for Qwen2.5-0.5B and 430 for
Qwen2.5-7B. `gpu.py` measures it, the figures that fit, and what the planner chooses with them.
"""


class TreeRow(NamedTuple, Generic[T]):
    """A row of several prompts."""

    ids: list[int]
    """Token ids."""
    starts: list[int]
    """The column in which each segment starts, ascending."""
    parents: list[int]
    """The segment before each segment in its prompts, or -1; always a lower number."""
    depths: list[int]
    """The position of the first token of each segment in its prompts."""
    answers: list[int]
    """The column of the last token of each prompt."""
    values: list[T]
    """What belongs to each prompt."""

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each segment."""
        return [end - start for start, end in zip(self.starts, [*self.starts[1:], len(self.ids)], strict=True)]

    def segments(self) -> np.ndarray:
        """The segment of each token, shape (width,)."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    def positions(self) -> np.ndarray:
        """The position of each token in its prompts, shape (width,)."""
        return np.arange(len(self.ids)) + np.repeat(np.subtract(self.depths, self.starts), self.lengths)

    def ancestors(self) -> np.ndarray:
        """Whether each segment attends to each segment (of the second axis), shape (segments, segments)."""
        seen = np.eye(len(self.starts), dtype=bool)
        for segment, parent in enumerate(self.parents):
            if parent >= 0:
                seen[segment] |= seen[parent]
        return seen

    def prompts(self) -> list[tuple[list[int], T]]:
        """The token ids of each prompt, and what belongs to it, in order."""
        prompts = []
        before = self.parent_columns().tolist()
        for column, value in zip(self.answers, self.values, strict=True):
            columns = [column]
            while (column := before[column]) >= 0:
                columns.append(column)
            prompts.append(([self.ids[place] for place in reversed(columns)], value))
        return prompts

    def halves(self) -> list[TreeRow[T]]:
        """Two rows with half of the prompts each, in order."""
        prompts: list[Branch[T]] = [(ids, [([], value)]) for ids, value in self.prompts()]
        middle = len(prompts) // 2
        return [row for some in (prompts[:middle], prompts[middle:]) for row in tree_rows(some, len(self.ids))]

    def visible(self) -> np.ndarray:
        """Whether each token attends to each token (of the second axis), shape (width, width)."""
        segments = self.segments()
        return np.tril(self.ancestors()[segments[:, None], segments[None, :]])

    def parent_columns(self) -> np.ndarray:
        """The column of the token before each token in its prompts, or -1: shape (width,)."""
        before = np.arange(-1, len(self.ids) - 1)
        ends = [*self.starts[1:], len(self.ids)]
        before[self.starts] = [-1 if parent < 0 else ends[parent] - 1 for parent in self.parents]
        return before


def tree_rows(
    branches: Iterable[Branch[T]], room: int, worth: Callable[[int, int, int], bool] | None = None
) -> Iterator[TreeRow[T]]:
    """Fill rows with prompts, in order; branches with tokens in common should be adjacent. Empty prompts are skipped.

    Args:
        branches (iterable of [`Branch`]): The prompts.
        room (`int`): Most tokens in a row of several prompts. A longer prompt gets a row of its own.
        worth (callable, *optional*): Whether a branch continues a row, of the width of the row, the tokens that it
            would add to the row, and its tokens in a row of its own. Defaults to always.
    """
    tree: PrefixTree[T] = PrefixTree()
    for prefix, tails in branches:
        alone = len(prefix) + sum(len(tail) for tail, _ in tails)
        if tree.values and worth is not None and not worth(len(tree.ids), alone - tree.known(prefix), alone):
            yield tree.row()
            tree = PrefixTree()
        node = None
        for tail, value in tails:
            if not len(prefix) + len(tail):
                continue
            new = len(tail) if node is not None else len(prefix) - tree.known(prefix) + len(tail)
            if tree.values and len(tree.ids) + new > room:
                yield tree.row()
                tree, node = PrefixTree(), None
            node = tree.add(prefix) if node is None else node
            tree.finish(tree.add(tail, node), value)
    if tree.values:
        yield tree.row()


def branches_of(groups: Sequence[TokenGroup], limit: int) -> list[Branch[int]]:
    """The prompts that fit, with one token for the answer, into `limit` tokens, each with its number among all. Groups
    that start with the same tokens are adjacent."""
    keys = [array("q", group.prefix).tobytes() for group in groups]
    first = [0, *accumulate(len(group.tails) for group in groups)]
    branches: list[Branch[int]] = []
    for number in sorted(range(len(groups)), key=keys.__getitem__):
        group = groups[number]
        room = limit - len(group.prefix)
        fitting = [(tail, place) for place, tail in enumerate(group.tails, first[number]) if len(tail) < room]
        if fitting and group.refused is None:
            branches.append((group.prefix, fitting))
    return branches


def floor_tokens(branches: Iterable[Branch[Any]]) -> tuple[int, int]:
    """The number of tokens of all prompts, each by itself, and of their tree."""
    separate, tree = 0, PrefixTree[None]()
    for prefix, tails in branches:
        separate += len(prefix) * len(tails) + sum(len(tail) for tail, _ in tails)
        if tails:
            node = tree.add(prefix)
            for tail, _ in tails:
                tree.add(tail, node)
    return separate, len(tree.ids)


@dataclass(slots=True, eq=False)
class _Node:
    """A segment of a tree that grows: the tokens from `start` on, `length` of them."""

    start: int
    length: int
    parent: _Node | None
    depth: int
    children: dict[int, _Node] = field(default_factory=dict)


class PrefixTree(Generic[T]):
    """A row to which prompts are added."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.values: list[T] = []
        self._answers: list[int] = []
        self.root = _Node(0, 0, None, 0)
        self._nodes: list[_Node] = []

    def known(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens of a prompt the tree has."""
        node, at = self.root, 0
        while at < len(tokens) and (child := node.children.get(tokens[at])) is not None:
            shared = self._shared(child, tokens, at)
            node, at = child, at + shared
            if shared < child.length:
                break
        return at

    def add(self, tokens: Sequence[int], after: _Node | None = None) -> _Node:
        """Add tokens after the end of a segment, by default at the start of a prompt. Returns the segment that ends
        with them. It stays whole while tokens are only added after it."""
        node, at = after or self.root, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                child = _Node(len(self.ids), len(tokens) - at, node, node.depth + node.length)
                self.ids.extend(tokens[at:])
                self._nodes.append(child)
                node.children[tokens[at]] = child
                return child
            shared = self._shared(child, tokens, at)
            if shared < child.length:
                self._part(child, shared)
            node, at = child, at + shared
        return node

    def finish(self, node: _Node, value: T) -> None:
        """End a prompt with the last token of a segment."""
        self._answers.append(node.start + node.length - 1)
        self.values.append(value)

    def segments(self) -> list[_Node]:
        """All segments, each after the one before it in its prompts."""
        return sorted(self._nodes, key=attrgetter("start"))

    def path(self, node: _Node) -> list[int]:
        """The tokens of a prompt up to the end of a segment."""
        parts = []
        at: _Node | None = node
        while at is not None:
            parts.append(self.ids[at.start : at.start + at.length])
            at = at.parent
        return [token for part in reversed(parts) for token in part]

    def row(self) -> TreeRow[T]:
        """The prompts as a row."""
        nodes = self.segments()
        number = {id(node): place for place, node in enumerate(nodes)}
        return TreeRow(
            self.ids,
            [node.start for node in nodes],
            [number.get(id(node.parent), -1) for node in nodes],
            [node.depth for node in nodes],
            self._answers,
            self.values,
        )

    def _shared(self, node: _Node, tokens: Sequence[int], at: int) -> int:
        most = min(node.length, len(tokens) - at)
        ours, theirs = self.ids[node.start : node.start + most], tokens[at : at + most]
        if ours == theirs:
            return most
        return next(place for place, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)

    def _part(self, node: _Node, length: int) -> None:
        """Cut a segment in two after its first tokens; `node` keeps these."""
        rest = _Node(node.start + length, node.length - length, node, node.depth + length)
        rest.children = node.children
        for child in rest.children.values():
            child.parent = rest
        self._nodes.append(rest)
        node.length, node.children = length, {self.ids[rest.start]: rest}


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


def keep_prefixes(branches: Sequence[Branch[T]], costs: Costs, above: Sequence[int] = ()) -> Kept[T]:
    """Decide which beginnings of prompts are computed once and kept, and which rows are below them.

    Together, the prefixes that are kept at the same time have at most half of `room` tokens. Branches with tokens in
    common should be adjacent; empty tails are not allowed. The tokens `above`, with which all prompts start, are kept
    at any cost, and the branches are without them.
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
    root = Kept[T](list(above), 0)
    holders: dict[int, tuple[Kept[T], int]] = {id(tree.root): (root, len(above))}
    for node in tree.segments():
        kept, held = holders[id(node.parent)]
        end, start = len(above) + node.depth + node.length, len(kept.prefix)
        fits = held + end <= costs.room // 2
        if fits and costs.keeps(end - start, own[id(node)], count[id(node)], start):
            longer = Kept[T]([*above, *tree.path(node)], start)
            kept.below.append(longer)
            kept, held = longer, held + end
        holders[id(node)] = kept, held
    for node, (prefix, tails) in zip(nodes, branches, strict=True):
        kept, _ = holders[id(node)]
        kept.branches.append((prefix[len(kept.prefix) - len(above) :], tails))
    return root
