"""Calibration maps, from a judge's probabilities to calibrated ones.

A [`Calibration`] belongs to one judge and has a map for each kind of item: yes/no items, and items with k options. It
is fitted on labelled reads by `evaluation/calibration/` and stored as a small JSON file; this module applies it. With
z the log-odds of yes, or for options the log-probabilities:

| method | map |
|---|---|
| temperature | z / T (Guo et al. 2017, section 4.2); for options the softmax of it |
| platt | sigmoid(slope x z + intercept) (Platt 1999); slope above 0 |
| isotonic | a rising line through knots, flat beyond its ends (Zadrozny and Elkan 2002) |

*Contextual* calibration is applied before the map: the judge's bias is its answer to the same item about an **empty
target**, and is subtracted in log-odds, z - z_empty. For options, the log-probabilities of the empty read are
subtracted label by label, that is p / p_empty, renormalised: Zhao et al. 2021 (arXiv:2102.09690, section 5) with the
empty target as the content-free input. It measures a bias only if an empty target leaves the question open. To "does
it avoid the word ...?", yes is the right answer about an empty text, and subtracting it makes the judge worse; check
the metrics on held-out groups.

All maps are monotone: calibration never reorders two targets on an item (isotonic maps may tie them). Label mass and
unanswered reads do not change. The original probabilities are kept in the verdict as `uncalibrated`.

The scorer applies the calibration to the verdicts of its judge, and a panel or cascade to those of a [`Member`]. Reads
are stored under the keys of the judge, so changing the calibration causes no new reads. A contextual calibration also
reads each item about an empty target, once per input. Without that answer, a read is unanswered("uncalibrated").
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import ChecklistError, ConfigError, ModelError, SampleError
from checklist_rewards.files.atomic import write_json
from checklist_rewards.files.documents import read_text
from checklist_rewards.judges.base import Answers, Ask, Judge
from checklist_rewards.scores import Verdict
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import one_sentence

CalibrationMethod = Literal["temperature", "platt", "isotonic"]
METHODS: tuple[str, ...] = get_args(CalibrationMethod)
YES_NO = "yes/no"
BINS = 10
_LEAST = 1e-12


class CalibrationMap(BaseModel):
    """The calibration map of one kind of item."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: CalibrationMethod
    temperature: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    slope: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    intercept: float | None = Field(default=None, allow_inf_nan=False)
    knots: tuple[tuple[float, float], ...] | None = None
    """Knots of an isotonic map: pairs of (log-odds, probability), both increasing."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    """Lowest calibrated P(yes) that counts as yes; None if not fitted."""
    reads: int = Field(ge=1)
    """Number of labelled reads used to fit the map."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed: dict[str, tuple[str, ...]] = {
            "temperature": ("temperature",),
            "platt": ("slope", "intercept"),
            "isotonic": ("knots",),
        }
        missing = [name for name in needed[self.method] if getattr(self, name) in (None, ())]
        if missing:
            raise ValueError(f"a {self.method} map requires {missing[0]}")
        for low, high in zip(self.knots or (), (self.knots or ())[1:], strict=False):
            if not (low[0] < high[0] and low[1] <= high[1]):
                raise ValueError(f"the knots of an isotonic map must increase, got {low} before {high}")
        if any(not (math.isfinite(z) and 0 <= p <= 1) for z, p in self.knots or ()):
            raise ValueError("a knot must have finite log-odds and a probability in [0, 1]")
        return self

    def probability(self, odds: float) -> float:
        """Calibrated P(yes) for the given log-odds of yes."""
        if self.method == "isotonic":
            return _between(self.knots or (), odds)
        if self.method == "platt":
            assert self.slope is not None and self.intercept is not None
            return sigmoid(self.slope * odds + self.intercept)
        assert self.temperature is not None
        return sigmoid(odds / self.temperature)


class Calibration(BaseModel):
    """The calibration maps of one judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["calibration-1"] = "calibration-1"
    judge: str
    """Name of the judge whose reads were labelled; other judges cannot use this calibration. The prompt is not part of
    the name: fit again after changing it."""
    read_by: str | None = None
    """How the answers were read: logprobs, votes, ... Answers read in another way are not calibrated."""
    contextual: bool = False
    """Whether to subtract the read of an empty target first."""
    maps: dict[str, CalibrationMap] = Field(min_length=1)
    """Maps by kind of item: "yes/no", "3 options"."""
    figures: dict[str, Any] = {}
    """Metrics on held-out groups at the time of fitting."""

    @property
    def threshold(self) -> float | None:
        """Threshold for yes/no items; None if not fitted."""
        return self.maps[YES_NO].threshold if YES_NO in self.maps else None

    def apply(self, item: ChecklistItem, verdict: Verdict, empty: Verdict | None = None) -> Verdict:
        """Calibrate a verdict of the judge on an item. Without probabilities or unanswered, it is returned unchanged.
        `empty` is the judge's verdict on the item about an empty target, required if `contextual`: if it has no
        probabilities, the outcome is unanswered("uncalibrated")."""
        raw = verdict.probabilities
        if raw is None or verdict.unanswered is not None or not read_alike(verdict.method, self.read_by):
            return verdict
        bias = None
        if self.contextual:
            bias = None if empty is None else empty.probabilities
            if bias is None:
                lost = None if empty is None else empty.unanswered
                why = f"the empty target has no probabilities ({'no read of it' if empty is None else lost})"
                if lost is not None and lost.transient_reason is not None:
                    why = Unanswered(lost.transient_reason, why)  # so that it can be retried
                return replace(
                    verdict, probabilities=None, unanswered=Unanswered(Reason.UNCALIBRATED, why), uncalibrated=raw
                )
        calibrated = calibrated_probabilities(self.maps[kind_of(item)], raw, bias)
        return replace(verdict, probabilities=calibrated, uncalibrated=raw)

    def check_judge(self, name: str) -> None:
        """Raise [`ModelError`] if this is the calibration of another judge."""
        if name not in (UNNAMED, self.judge):
            raise ModelError(
                f"the calibration was fitted on reads of {self.judge!r}, but the judge is {name!r}; fit a calibration "
                "on reads of this judge."
            )

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """Raise [`ChecklistError`], starting with `where`, for an item of a kind that has no map."""
        if kind_of(item) not in self.maps:
            raise ChecklistError(
                f"{where}, item {item.id} ({item.question!r}): the calibration has no map for {kind_of(item)} items; "
                f"it has {', '.join(self.maps)}."
            )

    def calibrated(self, asks: Sequence[Ask], verdicts: Sequence[Verdict], ask: Answers) -> list[Verdict]:
        """Calibrate the verdicts of reads, in order. If `contextual`, `ask` answers the same reads about an empty
        target."""
        empties: Sequence[Verdict | None] = [None] * len(asks)
        if self.contextual:
            empties = ask([replace(read, target=EMPTY) for read in asks])
        return [
            self.apply(read.item, verdict, empty) for read, verdict, empty in zip(asks, verdicts, empties, strict=True)
        ]

    def save(self, path: str | Path) -> None:
        """Write the JSON file. Raises [`SampleError`] if it cannot be written."""
        write_json(path, self.model_dump(mode="json", exclude_none=True))

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a JSON file. Raises [`SampleError`] if it cannot be read or is not a calibration file."""
        try:
            return cls.model_validate_json(read_text(path))
        except ConfigError as error:
            raise SampleError(str(error)) from None
        except ValidationError as error:
            raise SampleError(f"{path} is not a calibration file: {one_sentence(error, cls)}") from None


def kind_of(item: ChecklistItem) -> str:
    """The kind of an item: "yes/no", or "3 options" and the like. Items of a kind share a map."""
    return YES_NO if item.options is None else f"{len(item.options)} options"


def read_alike(method: str | None, read_by: str | None) -> bool:
    """Whether a map fitted on answers read by `read_by` applies to answers read by `method`.

    Full and top log-probabilities are interchangeable: the top tokens hold nearly all of a label's probability.
    """
    return method == read_by or {method, read_by} == {"logprobs", "top_logprobs"}


def calibrated_probabilities(
    map: CalibrationMap, raw: Mapping[str, float], bias: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Calibrated probabilities of the labels of `raw`, which sum to 1. `bias` has the probabilities for the empty
    target. For labels other than yes and no, the map must be a temperature map."""
    logs = scores_of(raw, bias)
    if set(logs) == {YES, NO}:
        yes = map.probability(logs[YES] - logs[NO])
        return {label: yes if label == YES else 1 - yes for label in raw}
    assert map.temperature is not None
    return softmax({label: log / map.temperature for label, log in logs.items()})


def scores_of(raw: Mapping[str, float], bias: Mapping[str, float] | None = None) -> dict[str, float]:
    """Log-probability of every label minus that of the empty target. Probabilities are clipped to keep logs finite."""
    return {
        label: math.log(max(p, _LEAST)) - (0.0 if bias is None else math.log(max(bias[label], _LEAST)))
        for label, p in raw.items()
    }


def softmax(logs: Mapping[str, float]) -> dict[str, float]:
    """Softmax of log-probabilities by label."""
    top = max(logs.values())
    weights = {label: math.exp(log - top) for label, log in logs.items()}
    total = math.fsum(weights.values())
    return {label: weight / total for label, weight in weights.items()}


def sigmoid(odds: float) -> float:
    """1 / (1 + exp(-odds)), without overflow."""
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of a reliability diagram."""

    count: int
    confidence: float
    """Mean probability of the reads; 0 for an empty bin."""
    frequency: float
    """Fraction of the reads that are true; 0 for an empty bin."""


def reliability(probabilities: Sequence[float], truths: Sequence[float]) -> list[Bin]:
    """The reliability diagram as numbers: ten bins of equal width by probability, the last one including 1."""
    sums = [[0, 0.0, 0.0] for _ in range(BINS)]
    for probability, truth in zip(probabilities, truths, strict=True):
        bin = sums[min(int(probability * BINS), BINS - 1)]
        bin[0] += 1
        bin[1] += probability
        bin[2] += truth
    return [Bin(int(count), p / count if count else 0.0, y / count if count else 0.0) for count, p, y in sums]


def _between(knots: Sequence[tuple[float, float]], odds: float) -> float:
    place = bisect_right(knots, odds, key=lambda knot: knot[0])
    if place in (0, len(knots)):
        return knots[min(place, len(knots) - 1)][1]
    (left, low), (right, high) = knots[place - 1], knots[place]
    return low + (high - low) * (odds - left) / (right - left)


EMPTY = ""


class Member(NamedTuple):
    """A judge with a calibration of its verdicts: what a panel, a cascade or a scorer takes in place of a judge."""

    judge: Judge
    calibration: Calibration | None = None

    @classmethod
    def of(cls, judge: Judge | Member) -> Member:
        """A judge as a member."""
        return judge if isinstance(judge, Member) else cls(judge)

    def validate(self) -> None:
        """Refuse a judge that cannot work, or that has the calibration of another one, without loading it."""
        if self.calibration is not None:
            self.calibration.check_judge(self.judge.name)
        self.judge.validate()

    def check_item(self, item: ChecklistItem, where: str) -> None:
        """As [`Judge.check_item`]; an item of a kind that has no map is refused too."""
        self.judge.check_item(item, where)
        if self.calibration is not None:
            self.calibration.check_item(item, where)
