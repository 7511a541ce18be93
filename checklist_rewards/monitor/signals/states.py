"""Signals from the states of completions: how many have no answer, and how many were cut in their answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from checklist_rewards.monitor.detectors import Sums, reached
from checklist_rewards.monitor.seen import Observation, Seen
from checklist_rewards.monitor.signals.base import Signal, over
from checklist_rewards.scores import NO_ANSWER_STATES

_CUT = frozenset({"cut"})


def share(states: Collection[str]) -> Callable[[Observation], Sums | None]:
    """The measure that is the share of completions with one of these states, among those whose state is recorded."""
    return over(lambda one: None if one.state is None else float(one.state in states))


def _counted(states: Collection[str], what: str) -> Callable[[Observation], str]:
    """The sentence that counts the completions of a step with one of these states."""

    def sentence(observation: Observation) -> str:
        known = Counter(one.state for one in observation.seen if one.state is not None)
        found = [(state, count) for state, count in known.most_common() if state in states]
        each = ", ".join(f"{count} {state}" for state, count in found) if len(states) > 1 else ""
        total = sum(count for _, count in found)
        return f"{total} of {known.total()} completions of this step {what}{': ' if each else ''}{each}."

    return sentence


def _without_answer(one: Seen) -> float | None:
    return 1.0 if one.state in NO_ANSWER_STATES else None


def _cut(one: Seen) -> float | None:
    return float(one.words) if one.state in _CUT else None


SIGNALS = (
    Signal(
        "no_answer",
        "training",
        "Many completions have no answer: they are empty, were cut in their thought, or end with a tool call.",
        share(NO_ANSWER_STATES),
        _without_answer,
        "has no answer",
        size=reached(),
        relative=False,
        found=_counted(NO_ANSWER_STATES, "have no answer"),
    ),
    Signal(
        "cut",
        "training",
        "Many completions reach the length limit in their answer, so the judge reads texts without an end.",
        share(_CUT),
        _cut,
        "words before the cut",
        size=reached(),
        relative=False,
        found=_counted(_CUT, "were cut in their answer"),
    ),
)
