"""Computes scores from verdicts. All aggregates of one target are defined here (those of a batch are in `tally.py`).

A [`Verdict`] is the outcome of one read: probabilities over the item's labels, or a plain answer, or *unanswered* with
a reason. [`score_checklist`] aggregates the verdicts of one target into a [`Score`]. This is pure arithmetic, so a
stored run can be scored again with other weights, gates or thresholds without a judge.

A judge failure is never a score. Unanswered items are removed from numerator and denominator. `answered_weight` is the
share that was answered. `lower` and `upper` are the scores that would result if all missing answers were bad or good.
If `answered_weight` is below `min_answered`, the primary score is None.

Item i has weight w and value v in [0, 1] (yes 1, no 0, or the chosen option's value). Its *soft* value is the sum over
labels of P(label) x value. Its credit is v if w >= 0 else 1 - v; it passes when its credit is at least 0.5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict

from checklist_rewards.checklists import YES, Checklist, ChecklistItem
from checklist_rewards.scores.verdict import DEFAULT_THRESHOLD, Method, Verdict, Vote, answer_of, vote_of

PrimaryMetric = Literal["pass", "weighted", "expected", "normalized", "quality"]
Abstention = Literal["skip", "zero", "partial", "fail"]

PRIMARY_METRICS: tuple[str, ...] = get_args(PrimaryMetric)
ABSTENTIONS: tuple[str, ...] = get_args(Abstention)
DEFAULT_MIN_ANSWERED = 0.5
PARTIAL_CREDIT = 0.5
PASS_CREDIT = 0.5
LEAST_QUALITY, BEST_QUALITY = 1, 5
_LEVELS = ((0.2, "no_10"), (0.4, "no_30"), (0.6, "unsure"), (0.8, "yes_70"))


class Aggregation(BaseModel):
    """The settings with which verdicts are aggregated; see [`score_checklist`]. Weights and gates belong to the
    checklist."""

    model_config = ConfigDict(frozen=True)

    primary_metric: PrimaryMetric = "expected"
    threshold: float = DEFAULT_THRESHOLD
    min_answered: float = DEFAULT_MIN_ANSWERED
    abstention: Abstention = "skip"


@dataclass(frozen=True, slots=True)
class ItemScore:
    """The answer to one item and its contribution to the score. Numbers that do not exist are None."""

    id: str
    question: str
    answer: str | None = None
    """ "yes", "no" or an option's label; None if unanswered."""
    value: float | None = None
    """Hard value in [0, 1]; None if unanswered or if the abstention is skipped."""
    passed: bool | None = None
    """Whether the credit of the hard answer is at least 0.5. A penalty passes if the answer is no."""
    confidence: float | None = field(init=False, default=None)
    """P(answer), in [0, 1]: the entry of `answer` in `probabilities` (with several votes, the share of votes). P(yes)
    is `probabilities["yes"]`. Computed from `probabilities`; the value in a file is ignored."""
    level: str | None = None
    """P(yes) in words: no_10 < .2 <= no_30 < .4 <= unsure < .6 <= yes_70 < .8 <= yes_90. Yes/no items only."""
    mass: float | None = None
    probabilities: dict[str, float] | None = None
    unanswered: str | None = None
    reasoning: str | None = None
    judge: str | None = None
    method: Method | None = None
    """How the answer was obtained; see [`Verdict`]."""
    category: str | None = None
    votes: tuple[Vote, ...] | None = None
    """The votes of the individual judges, including failed ones."""
    agreement: float | None = None
    """Share of the answered votes that agree with `answer`."""
    uncalibrated: dict[str, float] | None = None
    """The judge's own probabilities, if `probabilities` are calibrated."""

    def __post_init__(self) -> None:
        if self.answer is not None and self.probabilities is not None:
            object.__setattr__(self, "confidence", self.probabilities.get(self.answer))

    def verdict(self) -> Verdict:
        """Convert back to a verdict, to score it again."""
        return Verdict(
            self.probabilities,
            self.answer,
            self.mass,
            self.unanswered,
            self.reasoning,
            self.judge,
            self.method,
            votes=tuple(vote.verdict() for vote in self.votes or ()),
            uncalibrated=self.uncalibrated,
        )


class Score(BaseModel):
    """All verdicts of one target and their aggregates. Files and reward logs contain `model_dump()`."""

    model_config = ConfigDict(frozen=True)

    primary_score: float | None
    """The aggregate named by `primary_metric`, in [0, 1]; 0 if a required item failed; None if too few items were
    answered."""
    primary_metric: str
    pass_rate: float | None
    """passed / answered."""
    weighted_score: float | None
    """clip(sum w v / sum of positive w, 0, 1); for a checklist of penalties only clip(1 + sum w v / sum |w|, 0, 1)."""
    expected_score: float | None
    """`weighted_score` with soft values."""
    normalized_score: float | None
    """Mean soft credit, unweighted (RocketEval). Equals `pass_rate` if there are neither probabilities nor options."""
    raw_score: float | None
    """sum w v, unclipped."""
    quality: float | None = None
    """Grade from 1 to 5 of the checklist-guided quality judge, if it ran."""
    answered: int
    total: int
    answered_weight: float
    """Share of sum |w| that was answered, in [0, 1]."""
    lower: float | None
    """`primary_score` if every missing answer were bad."""
    upper: float | None
    """`primary_score` if every missing answer were good."""
    required_passed: bool | None = None
    """True if all required items passed, False if one failed. None if there are no required items, or if one is
    unanswered and none failed."""
    aggregation: Aggregation | None = None
    """The settings with which the score was computed; None in files from before they were recorded."""
    items: tuple[ItemScore, ...]

    @property
    def scaled_score_1_5(self) -> float | None:
        """4 x pass_rate + 1."""
        return None if self.pass_rate is None else 4 * self.pass_rate + 1

    @property
    def mean_agreement(self) -> float | None:
        """Mean `agreement` of the items that were answered by several judges."""
        known = [item.agreement for item in self.items if item.agreement is not None]
        return ratio(math.fsum(known), len(known))

    @property
    def category_pass_rates(self) -> dict[str, float | None]:
        """passed / answered of each category, in order of first appearance; None if nothing was answered."""
        passed: dict[str, list[bool]] = {}
        for item in self.items:
            if item.category is not None:
                passed.setdefault(item.category, []).extend([] if item.passed is None else [item.passed])
        return {category: ratio(sum(known), len(known)) for category, known in passed.items()}

    @property
    def unanswered(self) -> Counter[str]:
        """Number of unanswered items by reason (without details)."""
        return Counter(item.unanswered.partition(":")[0] for item in self.items if item.unanswered is not None)


class _Counted(NamedTuple):
    """The numbers of one item that enter the aggregates."""

    weight: float
    value: float
    soft: float
    required: bool


def score_checklist(
    checklist: Checklist,
    verdicts: Sequence[Verdict],
    *,
    primary_metric: PrimaryMetric = "expected",
    threshold: float = DEFAULT_THRESHOLD,
    min_answered: float = DEFAULT_MIN_ANSWERED,
    abstention: Abstention = "skip",
    quality: float | None = None,
) -> Score:
    """Aggregate the verdicts of one target.

    Args:
        checklist ([`Checklist`]): The questions.
        verdicts (sequence of [`Verdict`]): One per item, in the checklist's order.
        primary_metric (`str`, *optional*, defaults to `"expected"`): The aggregate to use as `primary_score`: "pass",
            "weighted", "expected", "normalized", or "quality" (mapped to [0, 1] as (quality - 1) / 4).
        threshold (`float`, *optional*, defaults to `0.6`): A yes/no item is answered yes if P(yes) is at least this.
        min_answered (`float`, *optional*, defaults to `0.5`): Share of sum |w| that must be answered, in [0, 1].
            Below it, `primary_score` is None.
        abstention (`str`, *optional*, defaults to `"skip"`): How to count the answer "cannot assess". "skip": the item
            does not count. "zero": value 0. "partial": value 0.5 for a positive item, 0 for a penalty. "fail": the
            lowest option's value for a positive item, the highest for a penalty.
        quality (`float`, *optional*): Grade of the whole target, from 1 to 5. Defaults to the grade in the verdicts,
            if any.

    Returns:
        [`Score`]: All aggregates and the answer to each item.
    """
    if len(verdicts) != len(checklist.items):
        raise ValueError(f"got {len(verdicts)} verdicts for {len(checklist.items)} items")
    lines: list[ItemScore] = []
    counted: list[_Counted] = []
    missing: list[ChecklistItem] = []
    any_probabilities = False
    for item, verdict in zip(checklist.items, verdicts, strict=True):
        if verdict.unanswered is not None:
            lines.append(_unanswered(item, verdict, threshold))
            missing.append(item)
            continue
        answer = answer_of(item, verdict, threshold)
        value = _value(item, answer, abstention)
        passed = None
        if value is not None:
            soft = value if verdict.probabilities is None else _soft(item, verdict.probabilities, abstention, value)
            passed = _credit(item.weight, value) >= PASS_CREDIT
            any_probabilities |= verdict.probabilities is not None
            counted.append(_Counted(item.weight, value, soft, item.required))
        lines.append(_answered(item, verdict, answer, value, passed, threshold))

    if quality is None:
        quality = next((verdict.quality for verdict in verdicts if verdict.quality is not None), None)
    metrics = _metrics(counted, checklist.only_penalties, any_probabilities, quality)
    primary = _gated(metrics[primary_metric], counted)
    lower, upper = (
        _gated(_metrics(full, checklist.only_penalties, any_probabilities, bound)[primary_metric], full)
        for full, bound in (
            (counted + [_filled(item, credit) for item in missing], grade if quality is None else quality)
            for credit, grade in ((0.0, LEAST_QUALITY), (1.0, BEST_QUALITY))
        )
    )
    all_weight = math.fsum(abs(item.weight) for item in checklist.items)
    answered_weight = 1 - math.fsum(abs(item.weight) for item in missing) / all_weight
    answered_weight = min(1.0, max(0.0, answered_weight))
    enough = len(missing) < len(checklist.items) and answered_weight >= min_answered
    return Score(
        primary_score=primary if enough else None,
        primary_metric=primary_metric,
        pass_rate=metrics["pass"],
        weighted_score=metrics["weighted"],
        expected_score=metrics["expected"],
        normalized_score=metrics["normalized"],
        raw_score=math.fsum(c.weight * c.value for c in counted) if counted else None,
        quality=quality,
        answered=len(checklist.items) - len(missing),
        total=len(checklist.items),
        answered_weight=answered_weight,
        lower=lower,
        upper=upper,
        required_passed=_required_passed(counted, missing),
        aggregation=Aggregation(
            primary_metric=primary_metric, threshold=threshold, min_answered=min_answered, abstention=abstention
        ),
        items=tuple(lines),
    )


def rescore(
    checklist: Checklist,
    score: Score,
    *,
    primary_metric: PrimaryMetric = "expected",
    threshold: float = DEFAULT_THRESHOLD,
    min_answered: float = DEFAULT_MIN_ANSWERED,
    abstention: Abstention = "skip",
) -> Score:
    """Aggregate the verdicts of a stored score again with other weights, gates or settings, without a judge.

    Verdicts are matched to `checklist` by item id. Items that the stored score does not contain are unanswered, with
    the reason "not_read".
    """
    reads = {line.id: line.verdict() for line in score.items}
    verdicts = [reads.get(item.id, Verdict(unanswered="not_read")) for item in checklist.items]
    return score_checklist(
        checklist,
        verdicts,
        primary_metric=primary_metric,
        threshold=threshold,
        min_answered=min_answered,
        abstention=abstention,
        quality=score.quality,
    )


def level(yes: float) -> str:
    """P(yes) in words: no_10, no_30, unsure, yes_70 or yes_90."""
    return next((name for bound, name in _LEVELS if yes < bound), "yes_90")


def ratio(numerator: float, denominator: float) -> float | None:
    """`numerator / denominator`, or None if the denominator is 0."""
    return numerator / denominator if denominator else None


def _metrics(
    counted: Sequence[_Counted], only_penalties: bool, any_probabilities: bool, quality: float | None
) -> dict[str, float | None]:
    passed = sum(_credit(c.weight, c.value) >= PASS_CREDIT for c in counted)
    pass_rate = ratio(passed, len(counted))
    soft_credit = ratio(math.fsum(_credit(c.weight, c.soft) for c in counted), len(counted))
    return {
        "pass": pass_rate,
        "weighted": _weighted([(c.weight, c.value) for c in counted], only_penalties),
        "expected": _weighted([(c.weight, c.soft) for c in counted], only_penalties),
        "normalized": soft_credit if any_probabilities else pass_rate,
        "quality": None if quality is None else (quality - LEAST_QUALITY) / (BEST_QUALITY - LEAST_QUALITY),
    }


def _weighted(pairs: Sequence[tuple[float, float]], only_penalties: bool) -> float | None:
    # The formula depends on the checklist, not on which items were answered. Otherwise a mixed checklist whose
    # positive items are all unanswered would be scored as penalties only, and get 1.
    total = math.fsum(w * v for w, v in pairs)
    scale = math.fsum(abs(w) if only_penalties else max(w, 0.0) for w, _ in pairs)
    if scale == 0:
        return None
    return min(1.0, max(0.0, total / scale + only_penalties))


def _gated(metric: float | None, counted: Sequence[_Counted]) -> float | None:
    failed = any(c.required and _credit(c.weight, c.value) < PASS_CREDIT for c in counted)
    return 0.0 if failed and metric is not None else metric


def _required_passed(counted: Sequence[_Counted], missing: Sequence[ChecklistItem]) -> bool | None:
    gates = [_credit(c.weight, c.value) >= PASS_CREDIT for c in counted if c.required]
    if not all(gates):
        return False
    return True if gates and not any(item.required for item in missing) else None


def _filled(item: ChecklistItem, credit: float) -> _Counted:
    value = _credit(item.weight, credit)
    return _Counted(item.weight, value, value, item.required)


def _credit(weight: float, value: float) -> float:
    return value if weight >= 0 else 1 - value


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


def _unanswered(item: ChecklistItem, verdict: Verdict, threshold: float) -> ItemScore:
    return ItemScore(
        id=item.id,
        question=item.question,
        mass=verdict.mass,
        probabilities=_plain(verdict.probabilities),
        unanswered=verdict.unanswered,
        reasoning=verdict.reasoning,
        judge=verdict.judge,
        method=verdict.method,
        category=item.category,
        votes=_votes(item, verdict, threshold),
        uncalibrated=_plain(verdict.uncalibrated),
    )


def _answered(
    item: ChecklistItem, verdict: Verdict, answer: str, value: float | None, passed: bool | None, threshold: float
) -> ItemScore:
    probabilities = _plain(verdict.probabilities)
    votes = _votes(item, verdict, threshold)
    named = [vote.answer for vote in votes or () if vote.answer is not None]
    return ItemScore(
        id=item.id,
        question=item.question,
        answer=answer,
        value=value,
        passed=passed,
        level=level(probabilities[YES]) if probabilities is not None and item.options is None else None,
        mass=verdict.mass,
        probabilities=probabilities,
        reasoning=verdict.reasoning,
        judge=verdict.judge,
        method=verdict.method,
        category=item.category,
        votes=votes,
        agreement=ratio(named.count(answer), len(named)),
        uncalibrated=_plain(verdict.uncalibrated),
    )


def _plain(probabilities: Mapping[str, float] | None) -> dict[str, float] | None:
    return None if probabilities is None else dict(probabilities)


def _votes(item: ChecklistItem, verdict: Verdict, threshold: float) -> tuple[Vote, ...] | None:
    return tuple(vote_of(item, vote, threshold) for vote in verdict.votes) or None
