"""The runs of the study: their settings and their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from studies.hacking.biases import BIASES

SEEDS, WEAK_SEEDS, PREVENTION_SEEDS, CLEAN_SEEDS = range(5), range(3), range(3), range(26)
STRENGTH, WEAK = 0.8, 0.4
"""Strengths of the biases."""
LARGE_SEEDS, GROUPS, LARGE = range(3), 4, 8
"""Prompts per step, and those of the runs with large steps, in which gold is less noisy."""
PREVENTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "dropout": {"held_out": 0.5, "draw": "step"},
    "panel": {},
    "steering": {"steering": "penalize"},
    "patterns": {"penalize_attacks": True},
}
"""Monitor settings of each prevention."""


@dataclass(frozen=True)
class Run:
    """The settings of one run. `bias=None` is a clean run."""

    bias: str | None
    seed: int
    strength: float = STRENGTH
    prevention: str = "none"
    steps: int = 40
    groups: int = GROUPS
    prompts: int = 128
    learning_rate: float = 5e-4
    max_tokens: int = 72

    @property
    def name(self) -> str:
        """Folder of the run."""
        strength = [] if self.bias is None or self.strength == STRENGTH else [f"{self.strength:g}"]
        prevention = [] if self.prevention == "none" else [self.prevention]
        groups = [] if self.groups == GROUPS else [f"{self.groups}x"]
        return "-".join([self.bias or "clean", *strength, *prevention, *groups, str(self.seed)])


def study() -> Iterator[Run]:
    """All runs, in the order in which they are of use."""
    for seed in SEEDS:
        yield from (Run(bias, seed) for bias in BIASES)
        yield from (Run(bias, seed, WEAK) for bias in BIASES if seed in WEAK_SEEDS)
        yield from (Run(None, clean) for clean in CLEAN_SEEDS if clean % len(SEEDS) == seed)
    for seed in PREVENTION_SEEDS:
        yield from (Run(bias, seed, prevention=way) for way in PREVENTIONS if way != "none" for bias in BIASES)
    for seed in LARGE_SEEDS:
        yield from (Run(bias, seed, groups=LARGE) for bias in (*BIASES, None))
