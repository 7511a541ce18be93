"""The curriculum of the pocket model: the length and the mixture of rows of each stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pocket.data import VIOLATE


@dataclass(frozen=True)
class Stage:
    """One stage of the curriculum: the number of rows of each kind per step, and their difficulty."""

    name: str
    steps: int
    lr: float
    rows: Mapping[str, int]
    """The kinds are those of `train.py`. `revise` has as many from a checklist as from a critique."""
    max_sentences: int = 0
    questions: int = 8
    with_input: float = 0.0
    longest: int = 12
    """Maximum number of words of a bare list."""
    near: float = 0.25
    """In bare lists, the fraction of absent words that share a syllable with a present one."""
    violate: float = 0.0
    """Probability that a demonstration breaks a constraint: 0 until the skill is learned, then VIOLATE."""
    own: int = 0
    """Number of samples of the policy, drawn at the start of the stage, that are among the judge's targets."""


_WHOLE = {"max_sentences": 5, "questions": 16, "with_input": 0.5}
"""Whole texts, half of them with their instruction."""
_FULL = {"copy": 24, "judge": 8, "short": 8, "checklist": 2, "follow": 6}
_SENTENCES = {"judge": 10, "short": 8, "checklist": 2, "follow": 6}
_ECHO = {"judge": 3, "checklist": 2, "follow": 3, "echo": 20, "brief": 24}
_REPAIR = {"judge": 6, "checklist": 4, "follow": 4, "echo": 6, "brief": 8, "revise": 5, "critique": 5}
_BY_HAND = {"judge": 9, "checklist": 5, "follow": 12, "echo": 2, "brief": 4, "revise": 4, "critique": 4}
_BY_HAND |= {"hand": 3, "shown": 1, "unknown": 1}
STAGES = (
    Stage("words-apart", 350, 2e-3, {"bare": 48, "copy": 24}, longest=4, near=0.0),
    Stage("words-alike", 250, 2e-3, {"bare": 48, "copy": 24}, longest=10, near=0.25),
    Stage("bridge", 300, 1e-3, {"bare": 8, "copy": 16, "bridge": 16, "checklist": 4, "follow": 4}, longest=6),
    Stage(
        "one-sentence",
        300,
        1e-3,
        {"bridge": 4, "judge": 12, "short": 16, "checklist": 2, "follow": 4},
        max_sentences=1,
    ),
    Stage("sentences", 400, 1e-3, _SENTENCES, max_sentences=2, questions=18, with_input=0.2),
    Stage("full", 650, 1e-3, _FULL, longest=6, max_sentences=4, questions=16, with_input=0.5),
    Stage("follow", 450, 1e-3, {"judge": 8, "checklist": 2, "follow": 32}, **_WHOLE),
    Stage("skills", 1000, 8e-4, {"judge": 8, "checklist": 6, "follow": 40, "copy": 8}, **_WHOLE),
    Stage(
        "own-samples", 1500, 8e-4, {"judge": 12, "checklist": 10, "follow": 12}, violate=VIOLATE, own=3000, **_WHOLE
    ),
    Stage("echo", 200, 8e-4, _ECHO, violate=VIOLATE, **_WHOLE),
    Stage("repair", 520, 8e-4, _REPAIR, violate=VIOLATE, own=800, **_WHOLE),
    Stage("by-hand", 800, 8e-4, _BY_HAND, violate=VIOLATE, own=800, **_WHOLE | {"with_input": 0.4}),
)
