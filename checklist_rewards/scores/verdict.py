"""The verdict: the outcome of one read (one item answered about one target by one judge).

A verdict has probabilities over the item's labels, or a plain answer, or it is *unanswered* with a reason. `score.py`
computes scores from verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.scores.reasons import Outcome, Unanswered

Method = Literal["logprobs", "top_logprobs", "thought", "decision", "word", "reply", "votes", "panel", "check"]

DEFAULT_THRESHOLD = 0.6
ROUNDING = 1e-3
"""How far the numbers of a file may be from their range, for probabilities that somebody has rounded."""


def _fraction(value: float) -> float:
    if not -ROUNDING <= value <= 1 + ROUNDING:  # also NaN
        raise ValueError("it must be a number from 0 to 1")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("it must be a finite number")
    return value


def _at_most_one(value: float) -> float:
    if not value <= 1 + ROUNDING or not math.isfinite(value):
        raise ValueError("it must be a number up to 1")
    return value


def _distribution(probabilities: dict[str, float]) -> dict[str, float]:
    total = math.fsum(probabilities.values())
    if abs(total - 1) > 10 * ROUNDING:
        raise ValueError(f"the probabilities of all labels must sum to 1, not {total:.4g}")
    return probabilities


Fraction = Annotated[float, AfterValidator(_fraction)]
"""A number from 0 to 1; tested when a file is read."""
Finite = Annotated[float, AfterValidator(_finite)]
"""A finite number; tested when a file is read."""
AtMostOne = Annotated[float, AfterValidator(_at_most_one)]
"""A finite number up to 1; tested when a file is read."""
Probabilities = Annotated[dict[str, Fraction], AfterValidator(_distribution)]
"""P(label) of each label, summing to 1; tested when a file is read."""


@dataclass(frozen=True, slots=True)
class Verdict(Outcome):
    """The outcome of one read: one item answered about one target by one judge."""

    probabilities: Mapping[str, float] | None = None
    """P(label) of each of the item's labels, summing to 1; None if the judge returns text only."""
    answer: str | None = None
    """The label that the judge named. None for judges that return probabilities: [`score_checklist`] applies the
    threshold."""
    mass: float | None = None
    """Label mass: the probability that the judge's next token is any of the labels, in [0, 1]."""
    unanswered: Unanswered | None = None
    """Why the answer is missing: a [`Reason`] with its details, or a word of the judge's own. Text ("reason" or
    "reason: detail") is converted."""
    reasoning: str | None = None
    judge: str | None = None
    method: Method | None = None
    """How the answer was obtained:

    - `logprobs`: log-probabilities of the labels from the full vocabulary;
    - `top_logprobs`: log-probabilities from a server's list of the most likely tokens;
    - `thought`: log-probabilities of the labels after a thought, averaged if there are several;
    - `decision`: probabilities from a server's Decisions API, which renders the question itself;
    - `word`: the label as text, from a server that returned no log-probabilities;
    - `reply`: parsed from a written reply;
    - `panel`: combined probabilities of several judges;
    - `check`: a code check;
    - `votes`: the votes of several replies or judges. The threshold does not apply to their answer.
    """
    quality: int | None = None
    """Grade of the whole target from 1 to 5, if the judge returned one with this answer."""
    votes: tuple[Verdict, ...] = ()
    """The verdicts of the individual judges of a panel or cascade, including failed ones."""
    uncalibrated: Mapping[str, float] | None = None
    """The judge's own probabilities, if `probabilities` are calibrated."""


def answer_of(item: ChecklistItem, verdict: Verdict, threshold: float = DEFAULT_THRESHOLD) -> str:
    """The answer of a verdict that is not unanswered.

    A yes/no item is answered yes if P(yes) >= `threshold`. An item with options is answered with the most probable
    one. If the options are yes, no and an abstention and the abstention is not the most probable, the threshold
    applies to P(yes) / (P(yes) + P(no)).

    Raises:
        ValueError: If the verdict has labels that the item does not have.
    """
    values = item.values
    if verdict.probabilities is not None and verdict.probabilities.keys() != values.keys():
        raise ValueError(
            f"judge returned probabilities of {list(verdict.probabilities)} for item {item.id}, expected "
            f"{list(values)}"
        )
    if verdict.probabilities is None or verdict.method == "votes":
        if verdict.answer not in values:
            raise ValueError(f"judge answered {verdict.answer!r} for item {item.id}, expected one of {list(values)}")
        return verdict.answer
    if item.options is None:
        return YES if verdict.probabilities[YES] >= threshold else NO
    best = max(values, key=verdict.probabilities.__getitem__)
    if item.yes_no and values[best] is not None:  # the judge does not abstain, so the threshold applies
        yes, no = verdict.probabilities[YES], verdict.probabilities[NO]
        return YES if yes >= threshold * (yes + no) else NO
    return best


@dataclass(frozen=True, slots=True)
class Vote(Outcome):
    """The verdict of one of several judges, as stored in a score. An abstention is an answer; a failure is
    `unanswered`."""

    judge: str | None = None
    answer: str | None = None
    probabilities: Probabilities | None = None
    mass: Fraction | None = None
    unanswered: Unanswered | None = None
    reasoning: str | None = None
    method: Method | None = None
    uncalibrated: Probabilities | None = None

    def verdict(self) -> Verdict:
        """Convert the vote back to a verdict."""
        return Verdict(
            self.probabilities,
            self.answer,
            self.mass,
            self.unanswered,
            self.reasoning,
            self.judge,
            self.method,
            uncalibrated=self.uncalibrated,
        )


def vote_of(item: ChecklistItem, verdict: Verdict, threshold: float = DEFAULT_THRESHOLD) -> Vote:
    """Convert a verdict to a vote."""
    return Vote(
        judge=verdict.judge,
        answer=None if verdict.unanswered is not None else answer_of(item, verdict, threshold),
        probabilities=None if verdict.probabilities is None else dict(verdict.probabilities),
        mass=verdict.mass,
        unanswered=verdict.unanswered,
        reasoning=verdict.reasoning,
        method=verdict.method,
        uncalibrated=None if verdict.uncalibrated is None else dict(verdict.uncalibrated),
    )
