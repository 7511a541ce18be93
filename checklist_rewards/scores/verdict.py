"""The verdict: the outcome of one read, and the answer it stands for.

A verdict has probabilities over the item's labels, or a plain answer, or is *unanswered* with the reason. What it
counts for is decided in `scores.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from checklist_rewards.checklists import NO, YES, ChecklistItem

Method = Literal["logprobs", "top_logprobs", "word", "reply", "votes", "panel", "check"]

DEFAULT_THRESHOLD = 0.6


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one read: one item answered about one target by one judge."""

    probabilities: Mapping[str, float] | None = None
    """P(label) over the item's labels, summing to 1; None where the judge gives words only."""
    answer: str | None = None
    """The label the judge named. Judges that read probabilities leave it to `score_checklist`, which has the
    threshold."""
    mass: float | None = None
    """Probability that the judge's next token is a label at all, in [0, 1]."""
    unanswered: str | None = None
    """Why there is no answer: a reason ("too_long", "off_label", "backend_error"), optionally ": detail"."""
    reasoning: str | None = None
    judge: str | None = None
    method: Method | None = None
    """How it was read: `logprobs` of the labels out of the full vocabulary; `top_logprobs` out of a server's list of
    the most likely tokens; the label as a `word`, where a server that was asked for log-probabilities gave none; from
    a written `reply`; by a `panel` whose probabilities were put together; by a code `check`; or by the `votes` of
    several replies or judges, whose answer stands whatever the threshold."""
    quality: int | None = None
    """Grade from 1 to 5 of the whole target, where it came with this answer."""
    votes: tuple[Verdict, ...] = ()
    """What the judges said whose answers were put together, or tried one after the other; failures included."""
    uncalibrated: Mapping[str, float] | None = None
    """The judge's own probabilities, where `probabilities` are calibrated ones (`calibration.py`)."""


def answer_of(item: ChecklistItem, verdict: Verdict, threshold: float = DEFAULT_THRESHOLD) -> str:
    """The label that an answered verdict names: of yes and no by the threshold, of options the most probable one.
    Where yes and no stand beside an abstention that is not the most probable: by the threshold, on P(yes) of the two.

    Raises:
        ValueError: for labels that the item does not have.
    """
    values = item.values
    if verdict.probabilities is not None and verdict.probabilities.keys() != values.keys():
        raise ValueError(
            f"judge gave probabilities of {list(verdict.probabilities)} for item {item.id}, expected {list(values)}"
        )
    if verdict.probabilities is None or verdict.method == "votes":
        if verdict.answer not in values:
            raise ValueError(f"judge answered {verdict.answer!r} for item {item.id}, expected one of {list(values)}")
        return verdict.answer
    if item.options is None:
        return YES if verdict.probabilities[YES] >= threshold else NO
    best = max(values, key=verdict.probabilities.__getitem__)
    if item.yes_no and values[best] is not None:  # the judge does not abstain, so the threshold decides
        yes, no = verdict.probabilities[YES], verdict.probabilities[NO]
        return YES if yes >= threshold * (yes + no) else NO
    return best


@dataclass(frozen=True, slots=True)
class Vote:
    """One judge's part in a verdict, as a score keeps it. An abstention is an answer; a failure is `unanswered`."""

    judge: str | None = None
    answer: str | None = None
    probabilities: dict[str, float] | None = None
    mass: float | None = None
    unanswered: str | None = None
    reasoning: str | None = None
    method: Method | None = None
    uncalibrated: dict[str, float] | None = None

    def verdict(self) -> Verdict:
        """The verdict that this vote was."""
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
    """The vote that a judge casts with its verdict."""
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
