"""Signals from the items of a checklist: held-out items, the shadow judge, items without variance, dominance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean

from checklist_rewards.evolving.buffer import EVOLVING_CATEGORY
from checklist_rewards.monitor.detectors import Sums, fallen, reached
from checklist_rewards.monitor.seen import Line, Observation, Seen
from checklist_rewards.monitor.signals.base import Signal, mean_of, over
from checklist_rewards.scores import item_keys

_LEAST_ITEMS = 3


def credit(one: Seen, held_out: bool) -> float | None:
    """Mean credit of the held-out, or of the rewarded, items of a completion. Items that the checklist got during
    training are left out, so all steps are compared on the same items."""
    known = [
        line.credit
        for line in one.lines
        if line.held_out == held_out and line.credit is not None and line.category != EVOLVING_CATEGORY
    ]
    return fmean(known) if known else None


def held_out_gap(one: Seen) -> float | None:
    """Mean credit of rewarded items - mean credit of held-out items, in [-1, 1]."""
    rewarded, held_out = credit(one, False), credit(one, True)
    return None if rewarded is None or held_out is None else rewarded - held_out


def shadow_gap(one: Seen) -> float | None:
    """Score of the judge - score of the shadow judge, in [-1, 1]."""
    return None if one.shadow is None else one.shadow.own - one.shadow.shadow


def kappa(sums: Sums) -> float | None:
    """Cohen's kappa (1960) from the counts of [`Shadowed.agreement`]; None if both judges always answer the same."""
    both, own, other, neither = sums
    total = both + own + other + neither
    if not total:
        return None
    chance = ((both + own) * (both + other) + (other + neither) * (own + neither)) / total**2
    return None if chance >= 1 else ((both + neither) / total - chance) / (1 - chance)


def dominance(one: Seen, of: Callable[[Line], str | None] = lambda line: line.id) -> float | None:
    """Largest share of the earned weight that comes from one item, or one category; None below three."""
    earned: dict[str, float] = {}
    for line in one.lines:
        name = of(line)
        if line.weight > 0 and line.credit is not None and not line.held_out and name is not None:
            earned[name] = earned.get(name, 0.0) + line.weight * line.credit
    total = sum(earned.values())
    return max(earned.values()) / total if len(earned) >= _LEAST_ITEMS and total > 0 else None


def _dominance(one: Seen) -> float | None:
    shares = [dominance(one), dominance(one, lambda line: line.category)]
    return max((share for share in shares if share is not None), default=None)


def _disagreements(observation: Observation) -> Sums | None:
    tables = [one.shadow.agreement for one in observation.seen if one.shadow is not None]
    return tuple(map(float, map(sum, zip(*tables, strict=True)))) if tables else None


def _disagreement(one: Seen) -> float | None:
    return None if one.shadow is None else one.shadow.agreement[1] + one.shadow.agreement[2]


def _alike(passed: bool) -> Callable[[Observation], Sums | None]:
    return lambda observation: mean_of(
        float(all(answer == passed for answer in answers))
        for group in observation.groups.values()
        for answers in _answers(group)
    )


def _answers(group: Iterable[Seen]) -> list[list[bool]]:
    """The answers to each item that two completions of a group have an answer to."""
    answers: dict[str, list[bool]] = {}
    for one in group:
        for key, line in zip(item_keys(one.lines), one.lines, strict=True):
            if line.passed is not None:
                answers.setdefault(key, []).append(line.passed)
    return [each for each in answers.values() if len(each) > 1]


def _reward(one: Seen) -> float | None:
    return one.reward


SIGNALS = (
    Signal(
        "held_out_gap",
        "hacking",
        "Rewarded items improve and held-out items do not: the policy learns the items, not the task.",
        over(held_out_gap),
        held_out_gap,
        "credit of rewarded items - credit of held-out items",
    ),
    Signal(
        "shadow_gap",
        "hacking",
        "The judge gives more than at the start, and the shadow judge does not agree.",
        over(shadow_gap),
        shadow_gap,
        "score of the judge - score of the shadow judge",
    ),
    Signal(
        "shadow_disagreement",
        "hacking",
        "Judge and shadow judge agree on fewer items than at the start.",
        _disagreements,
        _disagreement,
        "items on which the judges disagree",
        figure=kappa,
        size=fallen(kappa),
    ),
    Signal(
        "passed_by_all",
        "training",
        "Almost all items are passed by all completions of a group, so they teach nothing.",
        _alike(True),
        _reward,
        "reward",
        size=reached(),
        relative=False,
    ),
    Signal(
        "failed_by_all",
        "training",
        "Almost all items are failed by all completions of a group, so they teach nothing.",
        _alike(False),
        lambda one: None if one.reward is None or not one.lines else -one.reward,
        "-reward",
        size=reached(),
        relative=False,
    ),
    Signal(
        "dominance",
        "training",
        "One item or category brings almost all of the reward.",
        over(_dominance),
        _dominance,
        "share of one item or category",
        size=reached(),
        relative=False,
    ),
)
