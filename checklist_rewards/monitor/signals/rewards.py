"""Signals from the rewards alone: variance, saturation, flat groups, change points."""

from __future__ import annotations

from checklist_rewards.monitor.detectors import Sums, lost, reached, spread
from checklist_rewards.monitor.seen import Observation, Seen
from checklist_rewards.monitor.signals.base import Signal, mean_of, over

_FULL = 0.99
_FLAT = 1e-3


def _rewards(observation: Observation) -> list[list[float]]:
    return [[one.reward or 0.0 for one in group] for group in observation.rewarded]


def _spread(observation: Observation) -> Sums | None:
    return mean_of(map(spread, _rewards(observation)))


def _flat(observation: Observation) -> Sums | None:
    return mean_of(float(max(group) - min(group) < _FLAT) for group in _rewards(observation))


def reward(one: Seen) -> float | None:
    """The reward of a completion."""
    return one.reward


SIGNALS = (
    Signal(
        "variance_loss",
        "training",
        "The rewards of a group differ much less than at the start.",
        _spread,
        reward,
        "reward",
        size=lost(),
    ),
    Signal(
        "saturation",
        "training",
        "Almost all completions get the full score, so the checklist no longer separates them.",
        over(lambda one: None if one.score is None or not one.answered else float(one.score >= _FULL)),
        lambda one: one.score,
        "score",
        size=reached(),
        relative=False,
    ),
    Signal(
        "flat_groups",
        "training",
        "Most groups have no variance, so they teach nothing.",
        _flat,
        reward,
        "reward",
        size=reached(),
        relative=False,
    ),
    Signal(
        "reward_jump",
        "training",
        "The mean reward jumps: a change point (CUSUM).",
        over(reward),
        reward,
        "reward",
        size=None,
    ),
)
