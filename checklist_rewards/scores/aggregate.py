"""Computes scores from verdicts: an [`ItemScore`] for every item, aggregated by [`Score.of`]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from checklist_rewards.checklists import YES, Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.scores.reasons import Reason, TargetState, Unanswered
from checklist_rewards.scores.score import (
    PARTIAL_CREDIT,
    PASS_CREDIT,
    Abstention,
    Aggregation,
    ItemScore,
    Score,
    credit_of,
    item_keys,
    ratio,
)
from checklist_rewards.scores.verdict import Verdict, Vote, answer_of, vote_of
from checklist_rewards.validation import one_of

Answers = Literal["soft", "hard"]

_LEVELS = ((0.2, "no_10"), (0.4, "no_30"), (0.6, "unsure"), (0.8, "yes_70"))


def score_checklist(
    checklist: Checklist,
    verdicts: Sequence[Verdict],
    aggregation: Aggregation | None = None,
    *,
    quality: float | None = None,
    state: TargetState = "answered",
) -> Score:
    """Aggregate the verdicts of one target.

    Args:
        checklist ([`Checklist`]):
            The questions.
        verdicts (sequence of [`Verdict`]):
            One per item, in the checklist's order.
        aggregation ([`Aggregation`], *optional*):
            The settings. Defaults to `Aggregation()`.
        quality (`float`, *optional*):
            Grade of the whole target, from 1 to 5. Defaults to the grade in the verdicts, if any.
        state (`str`, *optional*, defaults to `"answered"`):
            What the policy made of its turn.

    Returns:
        [`Score`]: All aggregates and the answer to each item.
    """
    if len(verdicts) != len(checklist.items):
        raise ValueError(f"got {len(verdicts)} verdicts for {len(checklist.items)} items")
    rules = aggregation or Aggregation()
    if quality is None:
        quality = next((verdict.quality for verdict in verdicts if verdict.quality is not None), None)
    lines = [_line(item, verdict, rules) for item, verdict in zip(checklist.items, verdicts, strict=True)]
    return Score.of(lines, rules, quality, state)


def rescore(checklist: Checklist, score: Score, aggregation: Aggregation | None = None) -> Score:
    """Aggregate the verdicts of a stored score again with other weights, gates or settings, without a judge.

    Verdicts are matched to `checklist` by item id; the copies of a repeated question by their order. Items that the
    stored score does not contain are unanswered, with the reason "not_read".

    Args:
        checklist ([`Checklist`]):
            The questions, with the weights and gates to use.
        score ([`Score`]):
            The stored score.
        aggregation ([`Aggregation`], *optional*):
            The settings. Defaults to those with which the score was computed.
    """
    reads = {key: line.verdict() for key, line in zip(item_keys(score.items), score.items, strict=True)}
    missing = Unanswered(Reason.NO_ANSWER, score.state) if score.no_answer else Unanswered(Reason.NOT_READ)
    verdicts = [reads.get(key, Verdict(unanswered=missing)) for key in item_keys(checklist.items)]
    return score_checklist(
        checklist, verdicts, aggregation or score.aggregation, quality=score.quality, state=score.state
    )


def item_credits(checklist: Checklist, score: Score, answers: Answers = "soft") -> list[float | None]:
    """Credit of every item, in [0, 1].

    Args:
        checklist ([`Checklist`]):
            Checklist of the score. Its weights apply.
        score ([`Score`]):
            Score of one target.
        answers (`str`, *optional*, defaults to `"soft"`):
            `"soft"`: v is the sum over labels of P(label) x value, if the judge returned probabilities. `"hard"`: v is
            the value of the answer.

    Returns:
        `list[float | None]`: One credit per item, in the order of the checklist; None for an item that is unanswered
        or, with `abstention="skip"`, answered by an abstention.

    Raises:
        SampleError: If the score belongs to another checklist.
    """
    one_of("answers", answers, get_args(Answers))
    if [item.id for item in checklist.items] != [line.id for line in score.items]:
        raise SampleError(
            f"the score has the items {[line.id for line in score.items]!r:.80}, but the checklist has "
            f"{[item.id for item in checklist.items]!r:.80}; pass the checklist that was scored."
        )
    if any(
        line.weight != item.weight or (line.value is not None and line.soft is None)
        for item, line in zip(checklist.items, score.items, strict=True)
    ):
        score = rescore(checklist, score)  # other weights, or a file from before weights and soft values were recorded
    return [line.credit(soft=answers == "soft") for line in score.items]


def level(yes: float) -> str:
    """P(yes) in words: no_10, no_30, unsure, yes_70 or yes_90."""
    return next((name for bound, name in _LEVELS if yes < bound), "yes_90")


def _value(item: ChecklistItem, answer: str, abstention: Abstention) -> float | None:
    value = item.values[answer]
    if value is not None or abstention == "skip":
        return value
    if abstention == "fail":
        known = [v for v in item.values.values() if v is not None]
        return min(known) if item.weight >= 0 else max(known)
    return PARTIAL_CREDIT if abstention == "partial" and item.weight >= 0 else 0.0


def _soft(item: ChecklistItem, probabilities: Mapping[str, float], abstention: Abstention, hard: float) -> float:
    weighed = [(p, _value(item, label, abstention)) for label, p in probabilities.items()]
    known = [(p, v) for p, v in weighed if v is not None]
    scale = math.fsum(p for p, _ in known)
    return min(1.0, max(0.0, math.fsum(p * v for p, v in known) / scale)) if scale > 0 else hard


def _line(item: ChecklistItem, verdict: Verdict, rules: Aggregation) -> ItemScore:
    probabilities = _plain(verdict.probabilities)
    votes = tuple(vote_of(item, vote, rules.threshold) for vote in verdict.votes) or None
    answer = value = soft = passed = agreement = None
    if verdict.unanswered is None:
        answer = answer_of(item, verdict, rules.threshold)
        value = _value(item, answer, rules.abstention)
        agreement = _agreement(answer, votes or ())
    elif verdict.unanswered.reason == Reason.NO_ANSWER and rules.no_answer == "lowest":
        known = [v for v in item.values.values() if v is not None]
        value = soft = min(known) if item.weight >= 0 else max(known)
        passed = credit_of(item.weight, value) >= PASS_CREDIT
    if value is not None and answer is not None:
        soft = value if probabilities is None else _soft(item, probabilities, rules.abstention, value)
        passed = credit_of(item.weight, value) >= PASS_CREDIT
    rated = answer is not None and probabilities is not None and item.options is None
    return ItemScore(
        id=item.id,
        question=item.question,
        answer=answer,
        value=value,
        soft=soft,
        weight=item.weight,
        required=item.required,
        passed=passed,
        level=level(probabilities[YES]) if rated and probabilities is not None else None,
        mass=verdict.mass,
        probabilities=probabilities,
        unanswered=verdict.unanswered,
        reasoning=verdict.reasoning,
        judge=verdict.judge,
        method=verdict.method,
        category=item.category,
        votes=votes,
        agreement=agreement,
        uncalibrated=_plain(verdict.uncalibrated),
    )


def _agreement(answer: str, votes: Sequence[Vote]) -> float | None:
    named = [vote.answer for vote in votes if vote.answer is not None]
    return ratio(named.count(answer), len(named))


def _plain(probabilities: Mapping[str, float] | None) -> dict[str, float] | None:
    return None if probabilities is None else dict(probabilities)
