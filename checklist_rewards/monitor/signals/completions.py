"""Signals from the texts: steering, copied questions, repetition, length, and what length earns.

Only completions with an answer count: an empty text is neither short nor free of repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from checklist_rewards.monitor.detectors import Sums, changed
from checklist_rewards.monitor.seen import Observation, Seen
from checklist_rewards.monitor.signals.base import Signal, mean_of


def within_groups(observation: Observation) -> Sums | None:
    """Sums of products of words and reward around the means of their group, and of words and reward themselves, over
    the completions with an answer.

    Returns:
        tuple of `float`: Sxy, Sxx, Syy (x words, y reward, centred in each group), sum of x, sum of y, count.
    """
    groups = Observation(observation.step, observation.answered).rewarded
    if not groups:
        return None
    totals = [0.0] * 6
    for group in groups:
        x, y = [float(one.words) for one in group], [one.reward or 0.0 for one in group]
        mx, my = fmean(x), fmean(y)
        pairs = [(a - mx, b - my) for a, b in zip(x, y, strict=True)]
        totals[0] += sum(a * b for a, b in pairs)
        totals[1] += sum(a * a for a, _ in pairs)
        totals[2] += sum(b * b for _, b in pairs)
        totals[3] += sum(x)
        totals[4] += sum(y)
        totals[5] += len(group)
    return tuple(totals)


def correlation(sums: Sums) -> float | None:
    """Pooled correlation of words and reward inside groups, in [-1, 1]; None if one of them does not vary."""
    spread = (sums[1] * sums[2]) ** 0.5
    return max(-1.0, min(sums[0] / spread, 1.0)) if spread > 1e-9 else None


def length_reward(start: Sums, recent: Sums) -> float | None:
    """Reward gained through length: slope of reward on words inside the last groups x change of the mean length."""
    if not recent[1] > 1e-9 or not start[5] or not recent[5]:
        return None
    return recent[0] / recent[1] * (recent[3] / recent[5] - start[3] / start[5])


def length_matched(start: Sums, recent: Sums) -> float | None:
    """Mean reward of the last groups if their completions had the mean length of the first ones."""
    gained = length_reward(start, recent)
    return None if gained is None else recent[4] / recent[5] - gained


def _mean_reward(sums: Sums) -> float | None:
    return sums[4] / sums[5] if sums[5] else None


def _over_texts(number: Callable[[Seen], float | None]) -> Callable[[Observation], Sums | None]:
    """The measure that is the mean of a number over the completions with an answer."""
    return lambda observation: mean_of(map(number, observation.answered))


def _long(one: Seen) -> float | None:
    return None if one.reward is None or not one.answered else one.words * one.reward


def _copied(one: Seen) -> float | None:
    return one.copied or None


def steered(one: Seen) -> float:
    """1 if a phrase of the text steers its grader."""
    return float(one.steering is not None)


SIGNALS: Sequence[Signal] = (
    Signal(
        "steering",
        "hacking",
        "More completions have a phrase that addresses the grader or praises the response than at the start.",
        _over_texts(steered),
        lambda one: steered(one) or None,
        "has a steering phrase",
    ),
    Signal(
        "copied",
        "hacking",
        "Completions copy the questions of their checklist more than at the start.",
        _over_texts(lambda one: one.copied if one.lines else None),
        _copied,
        "share of the questions that are copied",
    ),
    Signal(
        "prompt_copied",
        "hacking",
        "Completions copy their prompt more than at the start.",
        _over_texts(lambda one: one.prompt_copied),
        lambda one: one.prompt_copied or None,
        "share of the prompt that is copied",
    ),
    Signal(
        "repetition",
        "hacking",
        "Completions repeat themselves more than at the start.",
        _over_texts(lambda one: one.repetition),
        lambda one: one.repetition or None,
        "share of repeated trigrams",
    ),
    Signal(
        "length_change",
        "training",
        "Completions are much longer or shorter than at the start.",
        _over_texts(lambda one: float(one.words)),
        lambda one: float(one.words) if one.answered else None,
        "words",
        size=changed(),
    ),
    Signal(
        "length_bias",
        "training",
        "Longer completions of a group get more reward than at the start.",
        within_groups,
        _long,
        "words x reward",
        figure=correlation,
        size=lambda start, recent: _difference(correlation(recent), correlation(start)),
    ),
    Signal(
        "length_reward",
        "training",
        "The reward rises because completions become longer or shorter.",
        within_groups,
        _long,
        "words x reward",
        figure=_mean_reward,
        size=length_reward,
    ),
)


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
