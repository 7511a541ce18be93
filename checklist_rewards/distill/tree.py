"""Rows of prompts as a prefix tree: tokens with which several prompts start are in the row, and computed, once.

    rules               r r r r                     positions 0 1 2 3
    target 1            . . . . a a                 positions         4 5
    question 1          . . . . . . p p             positions             6 7
    question 2          . . . . . .     q q         positions             6 7
    target 2, question  . . . .             b b b   positions         4 5 6

Each token attends to the tokens before it in its own prompt, at its position there, so every answer is that of a
separate prompt. Engines share a target among its questions in the same way (`backends/transformers.py`); here several
targets also share the rules of the judge prompt and the input, which are most of the tokens of short targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from checklist_rewards.validation import np

T = TypeVar("T")


class TreeRow(NamedTuple, Generic[T]):
    """A row of several prompts."""

    ids: np.ndarray
    """Token ids, shape (width,)."""
    parents: np.ndarray
    """Column of the token before each token in its prompt, or -1: shape (width,). It is always a lower column."""
    answers: np.ndarray
    """Column of the last token of each prompt, shape (prompts,)."""
    values: list[T]
    """What belongs to each prompt."""


def tree_rows(prompts: Iterable[tuple[Sequence[int], T]], room: int) -> Iterator[TreeRow[T]]:
    """Fill rows with prompts, in order; prompts with tokens in common should be adjacent.

    Args:
        prompts (iterable of `(prompt, value)`): Token ids, and what belongs to the prompt. Empty prompts and prompts
            of more than `room` tokens are skipped.
        room (`int`): Maximum number of tokens in a row.
    """
    tree: _Tree[T] = _Tree()
    for prompt, value in prompts:
        if not 0 < len(prompt) <= room:
            continue
        if len(tree.ids) + tree.new_tokens(prompt) > room:
            yield tree.row()
            tree = _Tree()
        tree.add(prompt, value)
    if tree.values:
        yield tree.row()


def positions(parents: np.ndarray) -> np.ndarray:
    """Position of each token in its prompt, shape (width,)."""
    depth = np.zeros(len(parents), dtype=np.int64)
    for column, parent in enumerate(parents):
        depth[column] = 0 if parent < 0 else depth[parent] + 1
    return depth


def visible(parents: np.ndarray) -> np.ndarray:
    """Whether each token attends to each token (of the second axis): shape (width, width)."""
    seen = np.eye(len(parents), dtype=bool)
    for column, parent in enumerate(parents):
        if parent >= 0:
            seen[column] |= seen[parent]
    return seen


class _Tree(Generic[T]):
    """A row to which prompts are added."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.parents: list[int] = []
        self.answers: list[int] = []
        self.values: list[T] = []
        self._columns: dict[tuple[int, int], int] = {}

    def new_tokens(self, prompt: Sequence[int]) -> int:
        """The number of tokens that this prompt would add."""
        column = -1
        for depth, token in enumerate(prompt):
            if (column, token) not in self._columns:
                return len(prompt) - depth
            column = self._columns[column, token]
        return 0

    def add(self, prompt: Sequence[int], value: T) -> None:
        column = -1
        for token in prompt:
            if (column, token) not in self._columns:
                self._columns[column, token] = len(self.ids)
                self.ids.append(token)
                self.parents.append(column)
            column = self._columns[column, token]
        self.answers.append(column)
        self.values.append(value)

    def row(self) -> TreeRow[T]:
        ids, parents, answers = (np.array(of, dtype=np.int32) for of in (self.ids, self.parents, self.answers))
        return TreeRow(ids, parents, answers, self.values)
