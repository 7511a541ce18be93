"""From rewards and gold to figures: best of N, pairs in the right order, and one scale for all rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pstdev
from typing import Any

Table = Sequence[Sequence[float]]
"""One value per candidate of each prompt."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from a reward to the scale of gold.

    It is fitted on completions of the start policy, where mapped rewards have the mean and the standard deviation of
    gold. So a mapped reward and gold start equal, and a difference that appears in training is over-optimisation.
    """

    slope: float
    offset: float

    @classmethod
    def of(cls, rewards: Table, gold: Table) -> Scale:
        flat, golds = _flat(rewards), _flat(gold)
        spread = pstdev(flat)
        slope = pstdev(golds) / spread if spread > 1e-9 else 0.0  # a constant reward is mapped to the mean gold
        return cls(slope, fmean(golds) - slope * fmean(flat))

    def __call__(self, reward: float) -> float:
        return self.slope * reward + self.offset


def best_of(rewards: Table, gold: Table, n: int) -> dict[str, float]:
    """Mean reward and gold of the best of the first `n` candidates by reward. Gold of ties is averaged."""
    picked = [
        (top, fmean(g for r, g in zip(line[:n], golds[:n], strict=True) if r == top))
        for line, golds in zip(rewards, gold, strict=True)
        for top in [max(line[:n])]
    ]
    return {"proxy": fmean(top for top, _ in picked), "gold": fmean(found for _, found in picked)}


def ordered(rewards: Table, gold: Table) -> float:
    """Fraction of the pairs of candidates of one prompt with different gold that the reward puts in the right order.

    A pair with equal rewards counts as half.
    """
    right = [
        0.5 if r[i] == r[j] else float((r[i] > r[j]) == (g[i] > g[j]))
        for r, g in zip(rewards, gold, strict=True)
        for i, j in combinations(range(len(g)), 2)
        if g[i] != g[j]
    ]
    return fmean(right)


def sizes(n: int) -> list[int]:
    """1, 2, 4 ... and `n`."""
    return sorted({*(2**k for k in range(n.bit_length()) if 2**k < n), n})


def chosen(rewards: Table, gold: Table) -> dict[str, Any]:
    """All figures of a reward on shared candidates. `gap` is the mapped reward minus gold of the best candidate."""
    scale = Scale.of(rewards, gold)
    n = len(gold[0])
    curve = {size: best_of(rewards, gold, size) for size in sizes(n)}
    return {
        "ordered": ordered(rewards, gold),
        "best_of": {size: found["gold"] for size, found in curve.items()},
        "gold": curve[n]["gold"],
        "gap": scale(curve[n]["proxy"]) - curve[n]["gold"],
        "scale": {"slope": scale.slope, "offset": scale.offset},
    }


def _flat(table: Table) -> list[float]:
    return [value for line in table for value in line]
