"""Calibration: a judge's probabilities mapped to ones that mean what they say.

A [`Calibration`] belongs to one judge and has a map for each kind of item: yes/no items, and items with k options. It
was fitted on labelled reads (`calibrate.py`), is kept as a small JSON file, and is pure arithmetic here. With z the
log-odds of yes, or for options the log-probabilities:

| method | map |
|---|---|
| temperature | z / T (Guo et al. 2017, section 4.2); for options the softmax of it |
| platt | sigmoid(slope x z + intercept) (Platt 1999); slope above 0 |
| isotonic | a rising line through knots, flat beyond its ends (Zadrozny and Elkan 2002) |

*Contextual* calibration comes before the map: what the judge says of the same item about an **empty target** is its
bias, and is taken away in log-odds, z - z_empty. For options the log-probabilities of the empty read are subtracted
label by label; that is p / p_empty, renormalised, which is Zhao et al. 2021 (arXiv:2102.09690, section 5) with the
empty target as the content-free input. It is a bias only where an empty target leaves the question open. Of "does it
avoid the word ...?" the judge rightly says yes of an empty text, and taking that away makes it wrong: the figures on
held-out groups show which it is.

Every map rises, so it turns no order of two targets on one item around (isotonic maps may tie them). Label mass and
unanswered reads stay as they are, and the probabilities before are kept in the verdict as `uncalibrated`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.scores import Verdict

CalibrationMethod = Literal["temperature", "platt", "isotonic"]
METHODS: tuple[str, ...] = get_args(CalibrationMethod)
YES_NO = "yes/no"
BINS = 10
_LEAST = 1e-12


class CalibrationMap(BaseModel):
    """What is done to the probabilities of one kind of item."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: CalibrationMethod
    temperature: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    slope: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    intercept: float | None = Field(default=None, allow_inf_nan=False)
    knots: tuple[tuple[float, float], ...] | None = None
    """Of an isotonic map: (log-odds, probability), both rising."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    """Calibrated P(yes) from which the answer is yes; None where none was fitted."""
    reads: int = Field(ge=1)
    """Labelled reads that it was fitted on."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed: dict[str, tuple[str, ...]] = {
            "temperature": ("temperature",),
            "platt": ("slope", "intercept"),
            "isotonic": ("knots",),
        }
        missing = [name for name in needed[self.method] if getattr(self, name) in (None, ())]
        if missing:
            raise ValueError(f"a {self.method} map needs {missing[0]}")
        for low, high in zip(self.knots or (), (self.knots or ())[1:], strict=False):
            if not (low[0] < high[0] and low[1] <= high[1]):
                raise ValueError(f"the knots of an isotonic map rise, got {low} before {high}")
        if any(not (math.isfinite(z) and 0 <= p <= 1) for z, p in self.knots or ()):
            raise ValueError("a knot is finite log-odds and a probability in [0, 1]")
        return self

    def probability(self, odds: float) -> float:
        """Calibrated P(yes), from log-odds."""
        if self.method == "isotonic":
            return _between(self.knots or (), odds)
        if self.method == "platt":
            assert self.slope is not None and self.intercept is not None
            return sigmoid(self.slope * odds + self.intercept)
        assert self.temperature is not None
        return sigmoid(odds / self.temperature)


class Calibration(BaseModel):
    """The maps of one judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["calibration-1"] = "calibration-1"
    judge: str
    """Name of the judge whose reads were labelled; nobody else's are calibrated with it. Its prompt is no part of the
    name: after a change of the prompt, fit again."""
    read_by: str | None = None
    """How these were read: logprobs, votes, ...; answers read in another way stay as they are."""
    contextual: bool = False
    """Whether the read of an empty target is subtracted first."""
    maps: dict[str, CalibrationMap] = Field(min_length=1)
    """By kind of item: "yes/no", "3 options"."""
    figures: dict[str, Any] = {}
    """What was measured on held-out groups when it was fitted."""

    @property
    def threshold(self) -> float | None:
        """For yes/no items; None where none was fitted."""
        return self.maps[YES_NO].threshold if YES_NO in self.maps else None

    def apply(self, item: ChecklistItem, verdict: Verdict, empty: Verdict | None = None) -> Verdict:
        """The calibrated verdict. Verdicts without probabilities, and unanswered ones, stay as they are.

        Args:
            item ([`ChecklistItem`]): one that has a map.
            verdict ([`Verdict`]): of this calibration's judge.
            empty ([`Verdict`], *optional*): its verdict on the item about an empty target; needed if `contextual`.

        Returns:
            [`Verdict`]: unanswered("uncalibrated") where the empty target has no probabilities to subtract.
        """
        raw = verdict.probabilities
        if raw is None or verdict.unanswered is not None or not read_alike(verdict.method, self.read_by):
            return verdict
        bias = None
        if self.contextual:
            bias = None if empty is None else empty.probabilities
            if bias is None:
                reason = "no read of it" if empty is None else empty.unanswered
                return replace(
                    verdict,
                    probabilities=None,
                    unanswered=f"uncalibrated: the empty target has no probabilities ({reason})",
                    uncalibrated=raw,
                )
        calibrated = calibrated_probabilities(self.maps[kind_of(item)], raw, bias)
        return replace(verdict, probabilities=calibrated, uncalibrated=raw)

    def save(self, path: str | Path) -> None:
        """Write the JSON file. Raises [`OSError`] where that is not possible."""
        text = json.dumps(self.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a JSON file. Raises [`SampleError`] naming it and what is wrong with it."""
        try:
            return cls.model_validate_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SampleError(f"{path}: the calibration cannot be read ({error}).") from None
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            place = ".".join(map(str, detail["loc"]))
            message = detail["msg"].removeprefix("Value error, ")
            raise SampleError(f"{path}: no calibration: {f'{place}: ' if place else ''}{message}.") from None


def kind_of(item: ChecklistItem) -> str:
    """What items share a map: "yes/no", or "3 options"."""
    return YES_NO if item.options is None else f"{len(item.options)} options"


def read_alike(method: str | None, read_by: str | None) -> bool:
    """Whether a map fitted on answers read in one way fits those read in the other: the most likely tokens of a server
    hold nearly all of a label's probability."""
    return method == read_by or {method, read_by} == {"logprobs", "top_logprobs"}


def calibrated_probabilities(
    map: CalibrationMap, raw: Mapping[str, float], bias: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Probabilities of the same labels, summing to 1.

    Args:
        map ([`CalibrationMap`]): temperature for anything but yes and no.
        raw (mapping of label to probability).
        bias (mapping of label to probability, *optional*): the same of the empty target.
    """
    logs = scores_of(raw, bias)
    if set(logs) == {YES, NO}:
        yes = map.probability(logs[YES] - logs[NO])
        return {label: yes if label == YES else 1 - yes for label in raw}
    assert map.temperature is not None
    return softmax({label: log / map.temperature for label, log in logs.items()})


def scores_of(raw: Mapping[str, float], bias: Mapping[str, float] | None = None) -> dict[str, float]:
    """Log-probability of every label, less that of the empty target; finite also where a probability is 0."""
    return {
        label: math.log(max(p, _LEAST)) - (0.0 if bias is None else math.log(max(bias[label], _LEAST)))
        for label, p in raw.items()
    }


def softmax(logs: Mapping[str, float]) -> dict[str, float]:
    """Probabilities in proportion to the exponentials."""
    top = max(logs.values())
    weights = {label: math.exp(log - top) for label, log in logs.items()}
    total = math.fsum(weights.values())
    return {label: weight / total for label, weight in weights.items()}


def sigmoid(odds: float) -> float:
    """1 / (1 + exp(-odds)), without overflow."""
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


@dataclass(frozen=True, slots=True)
class Bin:
    """Reads whose probabilities are about the same."""

    count: int
    confidence: float
    """Their mean probability; 0 where there are none."""
    frequency: float
    """Share of them that are true; 0 where there are none."""


def reliability(probabilities: Sequence[float], truths: Sequence[float]) -> list[Bin]:
    """Reads in ten bins of equal width by probability, the last one closed: the reliability diagram as numbers."""
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
