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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import pstdev
from typing import Annotated, Literal, NamedTuple, Protocol, get_args

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, model_validator

from checklist_rewards.errors import SampleError
from checklist_rewards.fields import check_fields
from checklist_rewards.scores.reasons import Outcome, Reason, TargetState, Unanswered
from checklist_rewards.scores.verdict import (
    DEFAULT_THRESHOLD,
    AtMostOne,
    Finite,
    Fraction,
    Method,
    Probabilities,
    Verdict,
    Vote,
)

PrimaryMetric = Literal["pass", "weighted", "expected", "normalized", "net", "quality"]
Abstention = Literal["skip", "zero", "partial", "fail"]
NoAnswer = Literal["lowest", "unscored", "judge"]

PRIMARY_METRICS: tuple[str, ...] = get_args(PrimaryMetric)
ABSTENTIONS: tuple[str, ...] = get_args(Abstention)
NO_ANSWER: tuple[str, ...] = get_args(NoAnswer)
PARTIAL_CREDIT = 0.5
PASS_CREDIT = 0.5
EQUAL = 1e-9
"""Scores that differ by less are equal: floating-point sums in another order differ in the last digit."""
LEAST_QUALITY, BEST_QUALITY = 1, 5


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """The settings with which verdicts are aggregated; see [`score_checklist`]. Weights and gates belong to the
    checklist.

    Raises:
        SampleError: For a value that is not allowed.
    """

    primary_metric: PrimaryMetric = "expected"
    """Metric to use as the primary score: `pass`, `weighted`, `expected`, `normalized`, `net` (as `weighted`, but not
    clipped: below 0 where penalties outweigh what is earned), or `quality` (the grade of mode `quality`, as
    (grade - 1) / 4)."""
    threshold: Annotated[float, Ge(0), Le(1)] = DEFAULT_THRESHOLD
    """Lowest P(yes), from 0 to 1, that counts as yes."""
    min_answered: Annotated[float, Ge(0), Le(1)] = 0.5
    """Fraction of the item weight that must be answered, from 0 to 1; below it the score is None."""
    abstention: Abstention = "skip"
    """How to score an item answered cannot_assess. `skip`: the item does not count. `zero`: value 0. `partial`: value
    0.5, for a penalty 0. `fail`: the lowest value of its options, for a penalty the highest."""
    no_answer: NoAnswer = "lowest"
    """How to score a target without an answer: an empty text, a thought that was cut, a tool call as the last turn.
    `lowest`: the lowest score that the checklist allows. `unscored`: no score. Neither asks the judge or runs a check.
    `judge`: it is judged like any other text."""

    def __post_init__(self) -> None:
        check_fields(self)


class Contribution(NamedTuple):
    """The numbers of one item that enter the aggregates."""

    weight: float
    value: float
    soft: float
    required: bool


@dataclass(frozen=True, slots=True)
class ItemScore(Outcome):
    """The answer to one item and its contribution to the score. Numbers that do not exist are None."""

    id: str
    question: str
    answer: str | None = None
    """ "yes", "no" or an option's label; None if unanswered."""
    value: Fraction | None = None
    """Hard value in [0, 1]; None if unanswered or if the abstention is skipped. The worst value, next to the reason
    `no_answer`, if the target has no answer and counts as the lowest."""
    soft: Fraction | None = None
    """Soft value in [0, 1]: the sum over labels of P(label) x value; the hard value where there are no
    probabilities. None where `value` is."""
    weight: Finite | None = None
    """The item's weight; None in files written before it was recorded."""
    required: bool = False
    passed: bool | None = None
    """Whether the credit of the hard answer is at least 0.5. A penalty passes if the answer is no."""
    confidence: float | None = field(init=False, default=None)
    """P(answer), in [0, 1]: the entry of `answer` in `probabilities` (with several votes, the share of votes). P(yes)
    is `probabilities["yes"]`. Computed from `probabilities`; the value in a file is ignored."""
    level: str | None = None
    """P(yes) in words: no_10 < .2 <= no_30 < .4 <= unsure < .6 <= yes_70 < .8 <= yes_90. Yes/no items only."""
    mass: Fraction | None = None
    probabilities: Probabilities | None = None
    unanswered: Unanswered | None = None
    reasoning: str | None = None
    judge: str | None = None
    method: Method | None = None
    """How the answer was obtained; see [`Verdict`]."""
    category: str | None = None
    votes: tuple[Vote, ...] | None = None
    """The votes of the individual judges, including failed ones."""
    agreement: Fraction | None = None
    """Share of the answered votes that agree with `answer`."""
    uncalibrated: Probabilities | None = None
    """The judge's own probabilities, if `probabilities` are calibrated."""

    def __post_init__(self) -> None:
        Outcome.__post_init__(self)  # slots=True leaves super() without its class
        if self.answer is not None and self.probabilities is not None:
            if self.answer not in self.probabilities:
                labels = ", ".join(self.probabilities)
                raise ValueError(f"the answer {self.answer!r:.60} is none of the labels with a probability: {labels}")
            object.__setattr__(self, "confidence", self.probabilities[self.answer])

    @property
    def spread(self) -> float | None:
        """Standard deviation of P(`answer`) over the answered votes that have probabilities, such as several thoughts
        of one judge; for a yes/no item that of P(yes). None for fewer than two such votes."""
        answered = [vote.probabilities for vote in self.votes or () if vote.unanswered is None and vote.probabilities]
        if self.answer is None or len(answered) < 2:
            return None
        return pstdev(probabilities[self.answer] for probabilities in answered)

    def counted(self, credit: float | None = None) -> Contribution:
        """The item as the aggregates use it; with `credit`, as if it had been answered with that credit."""
        weight = self.weight or 0.0
        if credit is not None:
            value = credit_of(weight, credit)
            return Contribution(weight, value, value, self.required)
        value = self.value or 0.0
        return Contribution(weight, value, value if self.soft is None else self.soft, self.required)

    def credit(self, soft: bool = True) -> float | None:
        """What the item earns, in [0, 1]: its value, for a penalty 1 - value. None if it has no value."""
        value = self.soft if soft and self.soft is not None else self.value
        return None if value is None else credit_of(self.weight or 0.0, value)

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

    primary_score: AtMostOne | None
    """The aggregate named by `primary_metric`, in [0, 1], or with `net` up to 1; at most 0 if a required item failed;
    None if too few items were answered."""
    primary_metric: PrimaryMetric
    pass_rate: Fraction | None
    """passed / answered."""
    weighted_score: Fraction | None
    """clip(sum w v / sum of positive w, 0, 1); for a checklist of penalties only clip(1 + sum w v / sum |w|, 0, 1)."""
    expected_score: Fraction | None
    """`weighted_score` with soft values."""
    normalized_score: Fraction | None
    """Mean soft credit, unweighted (RocketEval). Equals `pass_rate` if there are neither probabilities nor options."""
    raw_score: Finite | None
    """sum w v, unclipped."""
    quality: Annotated[float, Ge(LEAST_QUALITY), Le(BEST_QUALITY)] | None = None
    """Grade from 1 to 5 of the checklist-guided quality judge, if it ran."""
    state: TargetState = "answered"
    """What the policy made of its turn: `answered`, `cut` (at the length limit), or no answer: `cut_in_thought`,
    `unfinished`, `empty`."""
    answered: Annotated[int, Ge(0)]
    total: Annotated[int, Ge(0)]
    answered_weight: Fraction
    """Share of sum |w| that was answered, in [0, 1]."""
    lower: AtMostOne | None
    """`primary_score` if every missing answer were bad."""
    upper: AtMostOne | None
    """`primary_score` if every missing answer were good."""
    required_passed: bool | None = None
    """True if all required items passed, False if one failed. None if there are no required items, or if one is
    unanswered and none failed."""
    aggregation: Aggregation | None = None
    """The settings with which the score was computed; None in files from before they were recorded."""
    items: tuple[ItemScore, ...]

    @model_validator(mode="after")
    def _clipped_unless_net(self) -> Score:
        for name in ("primary_score", "lower", "upper") if self.primary_metric != "net" else ():
            value = getattr(self, name)
            if value is not None and value < -EQUAL:
                raise ValueError(f"{name}: it must be a number from 0 to 1, got {value}")
        return self

    @classmethod
    def of(
        cls,
        items: Sequence[ItemScore],
        aggregation: Aggregation,
        quality: float | None = None,
        state: TargetState = "answered",
    ) -> Score:
        """Aggregate item scores that have their weights.

        Args:
            items (sequence of [`ItemScore`]):
                One per item of the checklist, in its order.
            aggregation ([`Aggregation`]):
                The rules. The items' values already follow its threshold and abstention.
            quality (`float`, *optional*):
                Grade from 1 to 5 of the whole target.
            state (`str`, *optional*, defaults to `"answered"`):
                What the policy made of its turn.
        """
        counted = [line.counted() for line in items if line.value is not None]
        missing = [line for line in items if line.unanswered is not None]
        lowest = bool(missing) and all(line.value is not None for line in missing)  # the target has no answer
        if lowest:
            missing = []
            quality = LEAST_QUALITY if aggregation.primary_metric == "quality" else quality
        any_probabilities = any(line.value is not None and line.probabilities is not None for line in items)
        weights = [line.weight or 0.0 for line in items]
        only_penalties = not any(weight > 0 for weight in weights)
        metric = aggregation.primary_metric
        metrics = _metrics(counted, only_penalties, any_probabilities, quality)
        lower = upper = _gated(metrics[metric], counted)
        if missing or lower is None:
            lower, upper = (
                _gated(_metrics(full, only_penalties, any_probabilities, bound)[metric], full)
                for full, bound in (
                    (counted + [line.counted(credit) for line in missing], grade if quality is None else quality)
                    for credit, grade in ((0.0, LEAST_QUALITY), (1.0, BEST_QUALITY))
                )
            )
        all_weight = math.fsum(map(abs, weights))
        answered_weight = 1 - math.fsum(abs(line.weight or 0.0) for line in missing) / all_weight
        answered_weight = min(1.0, max(0.0, answered_weight))
        enough = len(missing) < len(items) and answered_weight >= aggregation.min_answered
        return cls(
            primary_score=_gated(metrics[metric], counted) if enough else None,
            primary_metric=metric,
            pass_rate=metrics["pass"],
            weighted_score=metrics["weighted"],
            expected_score=metrics["expected"],
            normalized_score=metrics["normalized"],
            raw_score=math.fsum(c.weight * c.value for c in counted) if counted else None,
            quality=quality,
            state=state,
            answered=0 if lowest else len(items) - len(missing),
            total=len(items),
            answered_weight=0.0 if lowest else answered_weight,
            lower=lower,
            upper=upper,
            required_passed=_required_passed(counted, missing),
            aggregation=aggregation,
            items=tuple(items),
        )

    def under(self, metric: PrimaryMetric) -> Score:
        """The same answers with another primary metric; other rules need the checklist ([`rescore`]).

        Raises:
            SampleError: For a score from a file that was written before weights and rules were recorded.
        """
        if metric == self.primary_metric:
            return self
        if self.aggregation is None or any(line.weight is None for line in self.items):
            raise SampleError("this score was saved without its weights; use rescore(checklist, score) instead.")
        return Score.of(self.items, replace(self.aggregation, primary_metric=metric), self.quality, self.state)

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
        """Number of unanswered items by reason (without details). Items of a target without an answer do not count:
        the judge was not asked."""
        reasons = (item.unanswered.reason for item in self.items if item.unanswered is not None)
        return Counter(str(reason) for reason in reasons if reason != Reason.NO_ANSWER)

    @property
    def no_answer(self) -> bool:
        """Whether the judge was not asked because the target has no answer."""
        return bool(self.items) and all(
            item.unanswered is not None and item.unanswered.reason == Reason.NO_ANSWER for item in self.items
        )


class Identified(Protocol):
    """Anything with an item id: a checklist item, an item score."""

    @property
    def id(self) -> str:
        """The item's id."""


def item_keys(items: Iterable[Identified]) -> tuple[str, ...]:
    """One key per item of a checklist or score, unique within it: the item's id, and "<id>#2", "<id>#3" … for repeated
    questions."""
    ids = [item.id for item in items]
    copies: Counter[str] = Counter()
    keys: list[str] = []
    taken = set(ids)
    for id in ids:
        copies[id] += 1
        key = id
        if copies[id] > 1:
            key = f"{id}#{copies[id]}"
            while key in taken:  # another item has this text as its id
                copies[id] += 1
                key = f"{id}#{copies[id]}"
            taken.add(key)
        keys.append(key)
    return tuple(keys)


def ratio(numerator: float, denominator: float) -> float | None:
    """`numerator / denominator`, or None if the denominator is 0."""
    return numerator / denominator if denominator else None


def _metrics(
    counted: Sequence[Contribution], only_penalties: bool, any_probabilities: bool, quality: float | None
) -> dict[str, float | None]:
    passed = sum(credit_of(c.weight, c.value) >= PASS_CREDIT for c in counted)
    pass_rate = ratio(passed, len(counted))
    soft_credit = ratio(math.fsum(credit_of(c.weight, c.soft) for c in counted), len(counted))
    net = _net([(c.weight, c.value) for c in counted], only_penalties)
    soft = _net([(c.weight, c.soft) for c in counted], only_penalties)
    return {
        "pass": pass_rate,
        "weighted": None if net is None else min(1.0, max(0.0, net)),
        "expected": None if soft is None else min(1.0, max(0.0, soft)),
        "net": net,
        "normalized": soft_credit if any_probabilities else pass_rate,
        "quality": None if quality is None else (quality - LEAST_QUALITY) / (BEST_QUALITY - LEAST_QUALITY),
    }


def _net(pairs: Sequence[tuple[float, float]], only_penalties: bool) -> float | None:
    # The formula depends on the checklist, not on which items were answered. Otherwise a mixed checklist whose
    # positive items are all unanswered would be scored as penalties only, and get 1.
    total = math.fsum(w * v for w, v in pairs)
    scale = math.fsum(abs(w) if only_penalties else max(w, 0.0) for w, _ in pairs)
    if scale == 0:
        return None
    return min(1.0, total / scale + only_penalties)


def _gated(metric: float | None, counted: Sequence[Contribution]) -> float | None:
    failed = any(c.required and credit_of(c.weight, c.value) < PASS_CREDIT for c in counted)
    return min(0.0, metric) if failed and metric is not None else metric


def _required_passed(counted: Sequence[Contribution], missing: Sequence[ItemScore]) -> bool | None:
    gates = [credit_of(c.weight, c.value) >= PASS_CREDIT for c in counted if c.required]
    if not all(gates):
        return False
    return True if gates and not any(item.required for item in missing) else None


def credit_of(weight: float, value: float) -> float:
    """The value of an item, or of a penalty 1 - value."""
    return value if weight >= 0 else 1 - value
