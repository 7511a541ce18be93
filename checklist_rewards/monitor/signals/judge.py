"""Signals about the judge itself: label mass, unanswered reads, and items that were read again."""

from __future__ import annotations

from collections.abc import Iterator

from checklist_rewards.checklists import YES
from checklist_rewards.monitor.detectors import Sums, fallen, reached
from checklist_rewards.monitor.seen import Observation, Retest, Seen
from checklist_rewards.monitor.signals.base import Signal, mean_of


def _retests(observation: Observation) -> Iterator[Retest]:
    return (retest for one in observation.seen for retest in one.retests)


def _mass(observation: Observation) -> Sums | None:
    return mean_of(line.mass for one in observation.seen for line in one.lines)


def _unanswered(observation: Observation) -> Sums | None:
    return mean_of(float(line.unanswered) for one in observation.seen for line in one.lines)


def _flips(observation: Observation) -> Sums | None:
    flips = [retest.flipped for retest in _retests(observation)]
    return mean_of(None if flip is None else float(flip) for flip in flips)


def judged_steering(one: Seen) -> float | None:
    """1 if the judge finds that the completion steers its grader, 0 if not; None if it was not asked."""
    answers = [retest.again for retest in one.retests if retest.how == "steering" and retest.again is not None]
    return float(answers[0] == YES) if answers else None


def _least_mass(one: Seen) -> float | None:
    masses = [line.mass for line in one.lines if line.mass is not None]
    return 1 - min(masses) if masses else None


SIGNALS = (
    Signal(
        "mass_loss",
        "judge",
        "The judge's next token is a label less often than at the start: it cannot read what the policy writes.",
        _mass,
        _least_mass,
        "1 - lowest label mass",
        size=fallen(),
    ),
    Signal(
        "unanswered",
        "judge",
        "More reads are unanswered than at the start.",
        _unanswered,
        lambda one: sum(line.unanswered for line in one.lines) or None,
        "unanswered items",
    ),
    Signal(
        "flips",
        "judge",
        "The judge changes its answer when the same question is reworded, or its labels are in another order.",
        _flips,
        lambda one: sum(bool(retest.flipped) for retest in one.retests) or None,
        "answers that changed",
        size=reached(),
        relative=False,
    ),
    Signal(
        "judged_steering",
        "judge",
        "The judge finds more completions that talk to their grader or praise themselves than at the start.",
        lambda observation: mean_of(map(judged_steering, observation.seen)),
        lambda one: judged_steering(one) or None,
        "the judge says yes",
    ),
)
