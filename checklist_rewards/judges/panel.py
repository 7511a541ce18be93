"""A panel: several judges answer every item, and one verdict is made of their answers.

    >>> panel = PanelJudge([LogprobJudge("org/one"), LogprobJudge("org/two")], weights=[2, 1])
    >>> ChecklistScorer(judge=panel).score(...)  # doctest: +SKIP

A judge that fails has no vote, and never counts as no. If less than `quorum` of the panel's weight answered, the item
is unanswered("quorum: 1 of 3 judges answered"), or with the reason in front of it where asking again may make the
quorum ("quorum: timeout: 1 of 3 judges answered"). If so many have a server that is not there at all, that is an
error. A judge that *abstains* (an option such as "cannot assess") did answer: where at least half of the answers
abstain the panel abstains, otherwise these votes are left out. Every vote is kept in the score, with failures and
abstentions, and so is the share of the votes that agree with the outcome.

Rules that put probabilities together. Words without probabilities count as certain:

| rule | outcome |
|---|---|
| mean | weighted mean of the judges' probabilities (a linear opinion pool) |
| median | the verdict in the middle by soft value; of an even number the mean of the two |
| min, max | the verdict with the lowest, the highest soft value |

Rules that count hard answers; their probabilities are the shares of the votes:

| rule | outcome |
|---|---|
| majority | what most of the judges say, by heads; among options more than half must say it |
| weighted | what most of the weight says |
| mode | what is said most often |
| unanimous | yes only if all say yes; options that differ are unanswered("disagreement") |
| any | yes if one says yes; yes/no items only |

A tie goes to the answer that is worth least to the target: the lowest value of a positive item, the highest of a
penalty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal, get_args

from checklist_rewards.backends.base import is_transient, transient_reason
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import ChecklistError, NoServerError, SampleError
from checklist_rewards.judges.base import Judge, Progress, Read
from checklist_rewards.judges.several import Several, ask, share, silence
from checklist_rewards.scores import DEFAULT_THRESHOLD, Verdict, answer_of

Rule = Literal["mean", "median", "min", "max", "majority", "weighted", "mode", "unanimous", "any"]
RULES: tuple[str, ...] = get_args(Rule)
SOFT_RULES = ("mean", "median", "min", "max")
DEFAULT_QUORUM = 0.5
QUORUM, NO_MAJORITY, DISAGREEMENT = "quorum", "no_majority", "disagreement"


class PanelJudge(Several):
    """Several judges as one.

    Args:
        judges (sequence of [`Judge`]): two or more. They are asked one after the other, each with all reads.
        rule (`str`, *optional*, defaults to `"mean"`): how an outcome is made of their answers; see the module.
        weights (sequence of `float`, *optional*): of the judges, above 0; equal ones if absent. They count for the
            quorum and for the rules mean and weighted.
        quorum (`float`, *optional*, defaults to `0.5`): share of the weight that must have answered, in [0, 1]. With
            1 a single failure leaves the item unanswered.
        threshold (`float`, *optional*, defaults to `0.6`): a judge's hard answer is yes from this P(yes) up.

    Raises:
        SampleError: for settings that cannot be used.
    """

    def __init__(
        self,
        judges: Sequence[Judge],
        *,
        rule: Rule = "mean",
        weights: Sequence[float] | None = None,
        quorum: float = DEFAULT_QUORUM,
        threshold: float = DEFAULT_THRESHOLD,
    ):
        super().__init__(judges, "panel")
        if rule not in RULES:
            raise SampleError(f"rule={rule!r} is not known; allowed: {', '.join(RULES)}.")
        weights = [1.0] * len(judges) if weights is None else list(weights)
        if len(weights) != len(judges) or not all(math.isfinite(weight) and weight > 0 for weight in weights):
            raise SampleError(
                f"weights={weights} is not allowed; one number above 0 for each of {len(judges)} judges."
            )
        share("quorum", quorum)
        share("threshold", threshold)
        self.rule: Rule = rule
        self.weights = weights
        self.quorum = quorum
        self.threshold = threshold
        self.name = f"{rule} of {', '.join(judge.name for judge in judges)}"

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Refuse an item that one of the judges cannot answer, or the rule. Raises [`ChecklistError`]."""
        if self.rule == "any" and item.options is not None:
            raise ChecklistError(f"{where}: item {item.id} has options, and the panel's rule any is for yes and no.")
        super().check_item(item, where)

    def judge(self, reads: Sequence[Read], progress: Progress | None = None) -> list[Verdict]:
        """Answer every read, in order."""
        shared = None if progress is None else Shared(progress, len(self.judges))
        said = [ask(judge, reads, shared) for judge in self.judges]
        gone = [answers for answers in said if isinstance(answers, NoServerError)]
        if gone and not quorate(self.weights, [isinstance(answers, list) for answers in said], self.quorum):
            raise gone[0]
        votes = [
            [silence(judge, answers)] * len(reads) if isinstance(answers, NoServerError) else answers
            for judge, answers in zip(self.judges, said, strict=True)
        ]
        return [self._outcome(read.item, [answers[index] for answers in votes]) for index, read in enumerate(reads)]

    def _outcome(self, item: ChecklistItem, votes: Sequence[Verdict]) -> Verdict:
        return combine(
            item,
            votes,
            rule=self.rule,
            weights=self.weights,
            quorum=self.quorum,
            threshold=self.threshold,
            judge=self.name,
        )


def combine(
    item: ChecklistItem,
    votes: Sequence[Verdict],
    *,
    rule: Rule = "mean",
    weights: Sequence[float] | None = None,
    quorum: float = DEFAULT_QUORUM,
    threshold: float = DEFAULT_THRESHOLD,
    judge: str | None = None,
) -> Verdict:
    """One verdict of several about the same item; see the module for the rules.

    Args:
        item ([`ChecklistItem`]): what was asked. The sign of its weight decides ties.
        votes (sequence of [`Verdict`]): one per judge.
        rule, weights, quorum, threshold: see [`PanelJudge`].
        judge (`str`, *optional*): the panel's name.
    """
    weights = [1.0] * len(votes) if weights is None else weights
    judge = f"panel of {len(votes)}" if judge is None else judge
    kept = tuple(votes)
    answered = [(vote, weight) for vote, weight in zip(votes, weights, strict=True) if vote.unanswered is None]
    if not quorate(weights, [vote.unanswered is None for vote in votes], quorum):
        detail = f"{len(answered)} of {len(votes)} judges answered"
        passing = [is_transient(vote.unanswered) for vote in votes]
        there = [vote.unanswered is None or passes for vote, passes in zip(votes, passing, strict=True)]
        if any(passing) and quorate(weights, there, quorum):  # asked again, they may make the quorum
            cause = next(str(vote.unanswered) for vote, passes in zip(votes, passing, strict=True) if passes)
            detail = f"{transient_reason(cause)}: {detail}"
        return Verdict(unanswered=f"{QUORUM}: {detail}", judge=judge, votes=kept)
    named = [(answer_of(item, vote, threshold), vote, weight) for vote, weight in answered]
    abstained = [entry for entry in named if item.values[entry[0]] is None]
    if 2 * len(abstained) >= len(named):
        return _voted(_winner(item, abstained, by_weight=False), named, item, judge, kept)
    named = [entry for entry in named if item.values[entry[0]] is not None]
    if rule in SOFT_RULES:
        return Verdict(_pool(item, named, rule), judge=judge, method="panel", votes=kept)
    answers = {answer for answer, _, _ in named}
    if rule == "unanimous" and len(answers) > 1 and item.options is not None:
        return Verdict(unanswered=f"{DISAGREEMENT}: {', '.join(sorted(answers))}", judge=judge, votes=kept)
    if rule in ("unanimous", "any"):
        winner = answers.pop() if len(answers) == 1 else (NO if rule == "unanimous" else YES)
    else:
        winner = _winner(item, named, by_weight=rule == "weighted")
        heads = sum(answer == winner for answer, _, _ in named)
        if rule == "majority" and item.options is not None and 2 * heads <= len(named):
            reason = f"{NO_MAJORITY}: {heads} of {len(named)} say {winner!r}"
            return Verdict(unanswered=reason, judge=judge, votes=kept)
    return _voted(winner, named, item, judge, kept)


def quorate(weights: Sequence[float], answered: Sequence[bool], quorum: float) -> bool:
    """Whether judges of at least this share of the weight answered, and one at all."""
    there = math.fsum(weight for weight, did in zip(weights, answered, strict=True) if did)
    # Weights such as 0.1 do not add up exactly, and half of them is a quorum of a half.
    return any(answered) and there / math.fsum(weights) >= quorum - 1e-9


Named = Sequence[tuple[str, Verdict, float]]
"""The answer, the verdict and the weight of every judge that counts."""


def _winner(item: ChecklistItem, named: Named, *, by_weight: bool) -> str:
    support: dict[str, float] = {}
    for answer, _, weight in named:
        support[answer] = support.get(answer, 0.0) + (weight if by_weight else 1.0)
    most = max(support.values())
    tied = [label for label in item.values if label in support and support[label] >= most - 1e-9]
    # The least that the target can get from it; an abstention has no value, and there the first option stands.
    return min(tied, key=lambda label: (item.values[label] or 0.0) * (1 if item.weight >= 0 else -1))


def _voted(winner: str, named: Named, item: ChecklistItem, judge: str, votes: tuple[Verdict, ...]) -> Verdict:
    shares = {label: sum(answer == label for answer, _, _ in named) / len(named) for label in item.values}
    reasoning = next((vote.reasoning for answer, vote, _ in named if answer == winner and vote.reasoning), None)
    return Verdict(shares, winner, reasoning=reasoning, judge=judge, method="votes", votes=votes)


def _pool(item: ChecklistItem, named: Named, rule: str) -> Mapping[str, float]:
    ranked = sorted(named, key=lambda entry: _soft(item, entry))
    middle = len(ranked) // 2
    pooled = {
        "mean": named,
        "min": ranked[:1],
        "max": ranked[-1:],
        "median": ranked[middle : middle + 1] if len(ranked) % 2 else ranked[middle - 1 : middle + 1],
    }[rule]
    weights = [weight if rule == "mean" else 1.0 for _, _, weight in pooled]
    each = [_distribution(item, entry) for entry in pooled]
    return {label: fmean([one[label] for one in each], weights) for label in item.values}


def _distribution(item: ChecklistItem, entry: tuple[str, Verdict, float]) -> Mapping[str, float]:
    answer, vote, _ = entry
    return vote.probabilities or {label: float(label == answer) for label in item.values}


def _soft(item: ChecklistItem, entry: tuple[str, Verdict, float]) -> float:
    """Expected value over the options that have one."""
    known = [(p, item.values[label]) for label, p in _distribution(item, entry).items()]
    assessed = math.fsum(p for p, value in known if value is not None)
    return math.fsum(p * value for p, value in known if value is not None) / assessed if assessed else 0.0


class Shared:
    """Progress of several judges over the same reads: each one's work counts as its share of them."""

    def __init__(self, progress: Progress, judges: int):
        self.progress, self.judges, self.done, self.told = progress, judges, 0, 0

    def __call__(self, count: int) -> None:
        """Told how many reads one of the judges has answered."""
        self.done += count
        whole = self.done // self.judges - self.told
        self.told += whole
        self.progress(whole)
