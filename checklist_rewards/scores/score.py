"""The score of one target: verdicts, what an item earns, and all aggregates (those of a batch are in `tally.py`).

A [`Verdict`] is the outcome of one read: one item answered about one target by one judge. It has probabilities over
the item's labels, or a plain answer, or it is *unanswered* with a reason. [`score_checklist`] aggregates the verdicts
of one target into a [`Score`], with an [`ItemScore`] for every item. This is pure arithmetic, so a stored run can be
scored again with other weights, gates or thresholds without a judge.

A judge failure is never a score. Unanswered items are removed from numerator and denominator. `answered_weight` is the
share that was answered. `lower` and `upper` are the scores that would result if all missing answers were bad or good.
If `answered_weight` is below `min_answered`, the primary score is None.

Two kinds of items cannot be left out, because leaving them out is an answer. A penalty next to positive items is not
part of the denominator, so without it a target scores as if it had not committed the fault; `weighted_score`,
`expected_score` and the net score are None. Without a required item, its gate is open. If such an item is unanswered,
the primary score is None, unless the other answers fix it (`lower` equals `upper`).

Item i has weight w and value v in [0, 1] (yes 1, no 0, or the chosen option's value). Its *soft* value is the sum over
labels of P(label) x value. Its credit is v if w >= 0 else 1 - v; it passes when its credit is at least 0.5.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul
from statistics import pstdev
from typing import Annotated, Any, Literal, Protocol, get_args

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from checklist_rewards.checklists import NO, YES, Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.markers import TargetState
from checklist_rewards.scores.reasons import Outcome, Reason, Unanswered
from checklist_rewards.validation import fraction, one_of

Method = Literal["logprobs", "top_logprobs", "thought", "decision", "word", "reply", "votes", "panel", "check"]

DEFAULT_THRESHOLD = 0.6
ROUNDING = 1e-3
"""How far the numbers of a file may be from their range, for probabilities that were rounded."""


def _number(what: str, least: float = -math.inf, most: float = math.inf) -> AfterValidator:
    """Refuses a number out of a range, NaN, and infinite numbers."""

    def tested(value: float) -> float:
        if not least <= value <= most or not math.isfinite(value):
            raise ValueError(f"it must be {what}")
        return value

    return AfterValidator(tested)


def _is_distribution(probabilities: Mapping[str, float]) -> bool:
    """Whether no number is below 0 and their sum is 1, but for rounding. False for NaN."""
    numbers = probabilities.values()
    return min(numbers, default=0.0) >= -ROUNDING and abs(sum(numbers) - 1) <= 10 * ROUNDING


def _distribution(probabilities: dict[str, float]) -> dict[str, float]:
    if not _is_distribution(probabilities):
        raise ValueError(f"the probabilities of all labels must sum to 1, not {sum(probabilities.values()):.4g}")
    return probabilities


# Numbers and probabilities of a score; they are tested when a file is read.
Fraction = Annotated[float, _number("a number from 0 to 1", -ROUNDING, 1 + ROUNDING)]
Finite = Annotated[float, _number("a finite number")]
AtMostOne = Annotated[float, _number("a number up to 1", most=1 + ROUNDING)]
Probabilities = Annotated[dict[str, Fraction], AfterValidator(_distribution)]


@dataclass(slots=True)
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
        ValueError: If the verdict has labels that the item does not have, or probabilities that are none.
    """
    values, probabilities = item.values, verdict.probabilities
    if probabilities is not None and (probabilities.keys() != values.keys() or not _is_distribution(probabilities)):
        raise ValueError(
            f"judge returned the probabilities {dict(probabilities)} for item {item.id}, expected those of "
            f"{list(values)}, which sum to 1"
        )
    if probabilities is None or verdict.method == "votes":
        if verdict.answer is None or verdict.answer not in values:
            raise ValueError(f"judge answered {verdict.answer!r} for item {item.id}, expected one of {list(values)}")
        return verdict.answer
    if item.options is None:
        return YES if probabilities[YES] >= threshold else NO
    best = max(values, key=probabilities.__getitem__)
    if item.yes_no and values[best] is not None:  # the judge does not abstain, so the threshold applies
        yes, no = probabilities[YES], probabilities[NO]
        return YES if yes >= threshold * (yes + no) else NO
    return best


@dataclass(slots=True)
class Vote:
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


def _floats(numbers: Mapping[str, float] | None) -> dict[str, float] | None:
    return None if numbers is None else {label: float(number) for label, number in numbers.items()}


def _kept(verdict: Verdict) -> dict[str, Any]:
    """What a vote and an item score keep of a verdict. The numbers of a judge may be those of NumPy or torch."""
    return {
        "probabilities": _floats(verdict.probabilities),
        "mass": None if verdict.mass is None else float(verdict.mass),
        "unanswered": verdict.unanswered,
        "reasoning": verdict.reasoning,
        "judge": verdict.judge,
        "method": verdict.method,
        "uncalibrated": _floats(verdict.uncalibrated),
    }


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
    """The settings with which verdicts are aggregated; see [`score_checklist`]. [`ScorerConfig`] describes each field,
    and calls `primary_metric` metric. Weights and gates belong to the checklist.

    Raises:
        SampleError: For a value that is not allowed.
    """

    primary_metric: PrimaryMetric = "expected"
    threshold: float = DEFAULT_THRESHOLD
    min_answered: float = 0.5
    abstention: Abstention = "skip"
    no_answer: NoAnswer = "lowest"

    def __post_init__(self) -> None:
        one_of("primary_metric", self.primary_metric, PRIMARY_METRICS)
        fraction("threshold", self.threshold)
        fraction("min_answered", self.min_answered)
        one_of("abstention", self.abstention, ABSTENTIONS)
        one_of("no_answer", self.no_answer, NO_ANSWER)


@dataclass(slots=True)
class ItemScore:
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
        if self.answer is not None and self.probabilities is not None:
            if self.answer not in self.probabilities:
                labels = ", ".join(self.probabilities)
                raise ValueError(f"the answer {self.answer!r:.60} is none of the labels with a probability: {labels}")
            self.confidence = self.probabilities[self.answer]

    @property
    def spread(self) -> float | None:
        """Standard deviation of P(`answer`) over the answered votes that have probabilities, such as several thoughts
        of one judge; for a yes/no item that of P(yes). None for fewer than two such votes."""
        answered = [vote.probabilities for vote in self.votes or () if vote.unanswered is None and vote.probabilities]
        if self.answer is None or len(answered) < 2:
            return None
        return pstdev(probabilities[self.answer] for probabilities in answered)

    @property
    def by_code(self) -> bool:
        """Whether a code check answered the item, alone or with the judge. Figures of a judge leave such items out."""
        return self.method == "check" or self.judge == "code"

    @property
    def not_needed(self) -> bool:
        """Whether the item was not read because the score was fixed (only in stored scores)."""
        return self.unanswered is not None and self.unanswered.reason == Reason.NOT_NEEDED

    def credit(self, soft: bool = True) -> float | None:
        """What the item earns, in [0, 1]: its value, for a penalty 1 - value. None if it has no value."""
        value = self.soft if soft and self.soft is not None else self.value
        return None if value is None else credit_of(self.weight or 0.0, value)

    def with_credit(self, credit: float) -> ItemScore:
        """The item as if its answer had earned this credit."""
        value = credit_of(self.weight or 0.0, credit)
        return replace(self, value=value, soft=value, passed=credit >= PASS_CREDIT)

    def verdict(self) -> Verdict:
        """Convert back to a verdict, to score it again."""
        return _verdict_of(self, tuple(map(_verdict_of, self.votes or ())))


def _verdict_of(of: Vote | ItemScore, votes: tuple[Verdict, ...] = ()) -> Verdict:
    return Verdict(
        of.probabilities,
        of.answer,
        of.mass,
        of.unanswered,
        of.reasoning,
        of.judge,
        of.method,
        votes=votes,
        uncalibrated=of.uncalibrated,
    )


class Score(BaseModel):
    """All verdicts of one target and their aggregates. Files and reward logs contain `model_dump()`."""

    model_config = ConfigDict(frozen=True)

    primary_score: AtMostOne | None
    """The aggregate named by `primary_metric`, in [0, 1], or with `net` up to 1; at most 0 if a required item failed.
    None if too few items were answered, or if it depends on an unanswered required item, or on an unanswered penalty
    next to positive items."""
    primary_metric: PrimaryMetric
    pass_rate: Fraction | None
    """passed / answered."""
    weighted_score: Fraction | None
    """clip(sum w v / sum of positive w, 0, 1); for a checklist of penalties only clip(1 + sum w v / sum |w|, 0, 1).
    None if a penalty next to positive items is unanswered."""
    expected_score: Fraction | None
    """`weighted_score` with soft values."""
    normalized_score: Fraction | None
    """Mean soft credit, unweighted (RocketEval). An item without probabilities counts with its hard value, so this
    equals `pass_rate` if all answers are a plain yes or no."""
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
    """`primary_score` if every missing answer were bad. With `net`, `primary_score` may be lower: without a positive
    item, the penalties weigh more."""
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
        """Aggregate item scores that have their weights, in the order of the checklist; their values already follow
        the rules of the aggregation. See [`score_checklist`] for `quality` and `state`."""
        counted = [line for line in items if line.value is not None]
        missing = [line for line in items if line.unanswered is not None]
        lowest = bool(missing) and all(line.value is not None for line in missing)  # the target has no answer
        if lowest:
            missing = []
            quality = LEAST_QUALITY if aggregation.primary_metric == "quality" else quality
        weights = [line.weight or 0.0 for line in items]
        only_penalties = max(weights, default=0.0) <= 0
        metric = aggregation.primary_metric
        metrics = _metrics(counted, only_penalties, quality)
        # Of two candidates that are compared on shared items, both are without the others.
        lost = [line for line in missing if line.unanswered and line.unanswered.reason != Reason.NOT_SHARED]
        penalty_lost = not only_penalties and any((line.weight or 0.0) < 0 for line in lost)
        if penalty_lost:
            metrics |= dict.fromkeys(_EARNED_LESS_PENALTIES)
        gated = lower = upper = _gated(metrics[metric], counted)
        if missing or gated is None:
            bounds = []
            for credit, grade in ((0.0, LEAST_QUALITY), (1.0, BEST_QUALITY)):
                full = counted + [line.with_credit(credit) for line in missing]
                bound = _metrics(full, only_penalties, grade if quality is None else quality)
                bounds.append(_gated(bound[metric], full))
            lower, upper = bounds
        all_weight = math.fsum(map(abs, weights))
        answered_weight = 1 - math.fsum(abs(line.weight or 0.0) for line in missing) / all_weight
        answered_weight = min(1.0, max(0.0, answered_weight))
        early = any(line.not_needed for line in missing)
        primary = None
        if early or (len(missing) < len(items) and answered_weight >= aggregation.min_answered):
            primary = gated
            gate_lost = any(line.required for line in lost)
            if early or gate_lost or (penalty_lost and metric in _EARNED_LESS_PENALTIES):
                fixed = lower is not None and upper is not None and upper - lower <= EQUAL
                primary = lower if fixed else None
        required_passed = None
        gates = [one.passed for one in counted if one.required]
        if not all(gates):
            required_passed = False
        elif gates and not any(line.required for line in missing):
            required_passed = True
        return cls(
            primary_score=primary,
            primary_metric=metric,
            pass_rate=metrics["pass"],
            weighted_score=metrics["weighted"],
            expected_score=metrics["expected"],
            normalized_score=metrics["normalized"],
            raw_score=math.fsum([(one.weight or 0.0) * (one.value or 0.0) for one in counted]) if counted else None,
            quality=quality,
            state=state,
            answered=0 if lowest else len(items) - len(missing),
            total=len(items),
            answered_weight=0.0 if lowest else answered_weight,
            lower=lower,
            upper=upper,
            required_passed=required_passed,
            aggregation=aggregation,
            items=tuple(items),
        )

    @property
    def recorded_state(self) -> TargetState | None:
        """The state; None for a score that an earlier version wrote, which had no states."""
        return self.state if "state" in self.model_fields_set else None

    @property
    def rules(self) -> Aggregation:
        """The rules of the score; of a score that an earlier version wrote, the defaults with its metric."""
        return self.aggregation or Aggregation(primary_metric=self.primary_metric)

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
    def category_pass_rates(self) -> dict[str, float | None]:
        """passed / answered of each category, in order of first appearance; None if nothing was answered."""
        passed: dict[str, list[bool]] = {}
        for item in self.items:
            if item.category is not None:
                passed.setdefault(item.category, []).extend([] if item.passed is None else [item.passed])
        return {category: ratio(sum(known), len(known)) for category, known in passed.items()}

    @property
    def unanswered(self) -> Counter[str]:
        """Number of unanswered items by reason (without details). Items that the judge was not asked do not count:
        those of a target without an answer, and those that were not needed."""
        reasons = (item.unanswered.reason for item in self.items if item.unanswered is not None)
        return Counter(str(reason) for reason in reasons if reason not in (Reason.NO_ANSWER, Reason.NOT_NEEDED))

    @property
    def not_needed(self) -> int:
        """Number of items that were not read because the score was fixed (only in stored scores)."""
        return sum(item.not_needed for item in self.items)

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
    ids = tuple(item.id for item in items)
    if len(set(ids)) == len(ids):
        return ids
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


_EARNED_LESS_PENALTIES = ("weighted", "expected", "net")


def _metrics(counted: Sequence[ItemScore], only_penalties: bool, quality: float | None) -> dict[str, float | None]:
    weights = [line.weight or 0.0 for line in counted]
    values = [line.value or 0.0 for line in counted]
    softs = [value if line.soft is None else line.soft for line, value in zip(counted, values, strict=True)]
    # The scale depends on the checklist, not on which items were answered. Otherwise a mixed checklist whose
    # positive items are all unanswered would be scored as penalties only, and get 1.
    scale = math.fsum([abs(weight) for weight in weights if only_penalties or weight > 0])
    net = soft = None
    if scale:
        net = min(1.0, math.fsum(map(mul, weights, values)) / scale + only_penalties)
        soft = min(1.0, math.fsum(map(mul, weights, softs)) / scale + only_penalties)
    return {
        "pass": ratio(sum([bool(line.passed) for line in counted]), len(counted)),
        "weighted": None if net is None else min(1.0, max(0.0, net)),
        "expected": None if soft is None else min(1.0, max(0.0, soft)),
        "net": net,
        "normalized": ratio(math.fsum(map(credit_of, weights, softs)), len(counted)),
        "quality": None if quality is None else (quality - LEAST_QUALITY) / (BEST_QUALITY - LEAST_QUALITY),
    }


def _gated(metric: float | None, counted: Sequence[ItemScore]) -> float | None:
    """A metric, which is at most 0 if a required item failed."""
    failed = any([one.required and not one.passed for one in counted])
    return min(0.0, metric) if failed and metric is not None else metric


def credit_of(weight: float, value: float) -> float:
    """The value of an item, or of a penalty 1 - value."""
    return value if weight >= 0 else 1 - value


Answers = Literal["soft", "hard"]

_BOUNDS = (0.2, 0.4, 0.6, 0.8)
_LEVELS = ("no_10", "no_30", "unsure", "yes_70", "yes_90")


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
    """Credit of every item of the checklist that was scored, in its order and by its weights, in [0, 1].

    Args:
        answers (`str`, *optional*, defaults to `"soft"`):
            `"soft"`: v is the sum over labels of P(label) x value, if the judge returned probabilities. `"hard"`: v is
            the value of the answer.

    Returns:
        `list[float | None]`: None for an item that is unanswered or, with `abstention="skip"`, answered by an
        abstention.

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
    return _LEVELS[bisect_right(_BOUNDS, yes)]


def _lowest(item: ChecklistItem) -> float:
    """The value of an item's worst answer."""
    known = [value for value in item.values.values() if value is not None]
    return min(known) if item.weight >= 0 else max(known)


def _value(item: ChecklistItem, answer: str, abstention: Abstention) -> float | None:
    value = item.values[answer]
    if value is not None or abstention == "skip":
        return value
    if abstention == "fail":
        return _lowest(item)
    return PARTIAL_CREDIT if abstention == "partial" and item.weight >= 0 else 0.0


def _soft(item: ChecklistItem, probabilities: Mapping[str, float], abstention: Abstention, hard: float) -> float:
    weighed = [(p, _value(item, label, abstention)) for label, p in probabilities.items()]
    known = [(p, v) for p, v in weighed if v is not None]
    scale = math.fsum(p for p, _ in known)
    return min(1.0, max(0.0, math.fsum(p * v for p, v in known) / scale)) if scale > 0 else hard


def _line(item: ChecklistItem, verdict: Verdict, rules: Aggregation) -> ItemScore:
    probabilities = verdict.probabilities
    votes = tuple([_vote(item, vote, verdict.method, rules.threshold) for vote in verdict.votes]) or None
    answer = value = soft = passed = agreement = rating = None
    if verdict.unanswered is None:
        answer = answer_of(item, verdict, rules.threshold)
        value = soft = _value(item, answer, rules.abstention)
        agreement = None if votes is None else _agreement(answer, votes)
        if probabilities is not None:
            soft = None if value is None else _soft(item, probabilities, rules.abstention, value)
            rating = level(probabilities[YES]) if item.options is None else None
    elif verdict.unanswered.reason == Reason.NO_ANSWER and rules.no_answer == "lowest":
        value = soft = _lowest(item)
    if value is not None:
        passed = credit_of(item.weight, value) >= PASS_CREDIT
    return ItemScore(
        id=item.id,
        question=item.question,
        answer=answer,
        value=value,
        soft=soft,
        weight=item.weight,
        required=item.required,
        passed=passed,
        level=rating,
        category=item.category,
        votes=votes,
        agreement=agreement,
        **_kept(verdict),
    )


def _vote(item: ChecklistItem, vote: Verdict, method: Method | None, threshold: float) -> Vote:
    # Votes that were counted stay as the panel counted them, by its own threshold.
    answer = vote.answer if method == "votes" else None
    if answer is None and vote.unanswered is None:
        answer = answer_of(item, vote, threshold)
    return Vote(answer=answer, **_kept(vote))


def _agreement(answer: str, votes: Sequence[Vote]) -> float | None:
    named = [vote.answer for vote in votes if vote.answer is not None]
    return ratio(named.count(answer), len(named))
