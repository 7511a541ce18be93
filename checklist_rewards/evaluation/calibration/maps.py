"""Fitting one calibration map and choosing one threshold.

Platt and isotonic maps are fitted with scikit-learn, temperatures with scipy. Platt scaling uses smoothed targets
(Platt 1999, section 2.2), so that perfectly separated reads do not give an infinite slope.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.calibration.reads import LabelledRead
from checklist_rewards.judges.calibration import (
    YES_NO,
    CalibrationMap,
    CalibrationMethod,
    calibrated_probabilities,
    kind_of,
)
from checklist_rewards.validation import finite, import_extra, np, one_of

ThresholdRule = Literal["f1", "cost"]
THRESHOLD_RULES: tuple[str, ...] = get_args(ThresholdRule)
_TEMPERATURES = (0.05, 20.0)


@dataclass(frozen=True, slots=True)
class ThresholdChoice:
    """How to choose the threshold of yes/no items.

    Args:
        by (`str`): `"f1"` maximizes the F1 of yes, `"cost"` minimizes the total cost of wrong answers.
        false_yes, false_no (`float`, *optional*, default to `1`): costs of a wrong yes and of a wrong no, above 0.
    """

    by: ThresholdRule
    false_yes: float = 1.0
    false_no: float = 1.0

    def __post_init__(self) -> None:
        one_of("by", self.by, THRESHOLD_RULES)
        finite("the cost false_yes", self.false_yes, above=0)
        finite("the cost false_no", self.false_no, above=0)

    def best(self, probabilities: np.ndarray, truths: np.ndarray) -> float:
        """The best threshold, halfway between two observed probabilities; of equally good ones the closest to 0.5."""
        values, codes = np.unique(probabilities, return_inverse=True)
        yes = np.bincount(codes, truths, len(values))
        no = np.bincount(codes, 1 - truths, len(values))
        # Entry k of these arrays: all probabilities from the k-th value up count as yes; in the last entry, none.
        true_yes = np.append(np.cumsum(yes[::-1])[::-1], 0)
        false_yes = np.append(np.cumsum(no[::-1])[::-1], 0)
        false_no = yes.sum() - true_yes
        if self.by == "f1":
            quality = 2 * true_yes / np.maximum(2 * true_yes + false_yes + false_no, 1)
        else:
            quality = -(self.false_yes * false_yes + self.false_no * false_no)
        places = np.concatenate([[0.0], (values[:-1] + values[1:]) / 2, [1.0]])
        good = places[quality >= quality.max() - 1e-12]
        return float(good[np.abs(good - 0.5).argmin()])


def fit_map(
    reads: Sequence[LabelledRead], method: CalibrationMethod, threshold: ThresholdChoice | None = None
) -> CalibrationMap:
    """Fit one map with `method` on all `reads`, which must be of one kind.

    Raises:
        SampleError: If the map cannot be fitted.
    """
    labels = {read.label for read in reads}
    binary = kind_of(reads[0].item) == YES_NO
    if binary and labels != {YES, NO}:
        raise SampleError(f"fitting a map needs labels of both yes and no, got only {', '.join(sorted(labels))}.")
    if method != "temperature" and not binary:
        raise SampleError(f"method={method!r} supports yes/no items only; use 'temperature' for items with options.")
    if method == "temperature":
        fitted = CalibrationMap(method=method, temperature=_temperature(reads), reads=len(reads))
    else:
        odds, truths = _odds(reads), _truths(reads)
        if method == "platt":
            slope, intercept = _platt(odds, truths)
            fitted = CalibrationMap(method=method, slope=slope, intercept=intercept, reads=len(reads))
        else:
            fitted = CalibrationMap(method=method, knots=_isotonic(odds, truths), reads=len(reads))
    if threshold is None:
        return fitted
    probabilities = np.array([mapped(fitted, read)[YES] for read in reads])
    return fitted.model_copy(update={"threshold": threshold.best(probabilities, _truths(reads))})


def mapped(map: CalibrationMap, read: LabelledRead) -> dict[str, float]:
    """The read's calibrated probabilities."""
    return calibrated_probabilities(map, read.probabilities, read.empty)


def _odds(reads: Sequence[LabelledRead]) -> np.ndarray:
    return np.array([read.odds for read in reads])


def _truths(reads: Sequence[LabelledRead]) -> np.ndarray:
    return np.array([read.label == YES for read in reads], dtype=float)


def _temperature(reads: Sequence[LabelledRead]) -> float:
    """The maximum-likelihood temperature, in [0.05, 20]."""
    optimize, special = import_extra("scipy.optimize", "scipy.special")
    scores = np.stack([read.scores for read in reads])
    labels = [list(read.probabilities).index(read.label) for read in reads]

    def loss(log_temperature: float) -> float:
        logs = special.log_softmax(scores / math.exp(log_temperature), axis=1)
        return -float(logs[np.arange(len(labels)), labels].mean())

    result = optimize.minimize_scalar(loss, bounds=tuple(map(math.log, _TEMPERATURES)), method="bounded")
    return math.exp(result.x)


def _platt(odds: np.ndarray, truths: np.ndarray) -> tuple[float, float]:
    [linear] = import_extra("sklearn.linear_model")
    positive, negative = truths.sum(), len(truths) - truths.sum()
    targets = np.where(truths > 0, (positive + 1) / (positive + 2), 1 / (negative + 2))
    # A soft target t equals a yes of weight t and a no of weight 1 - t.
    model = linear.LogisticRegression(C=np.inf, max_iter=1000)
    model.fit(
        np.concatenate([odds, odds])[:, None],
        np.repeat([1, 0], len(odds)),
        sample_weight=np.concatenate([targets, 1 - targets]),
    )
    slope, intercept = float(model.coef_[0, 0]), float(model.intercept_[0])
    if slope <= 0:
        raise SampleError(
            f"the judge's P(yes) is lower where the label is yes (slope {slope:.3f}), so a monotone map cannot fit."
        )
    return slope, intercept


def _isotonic(odds: np.ndarray, truths: np.ndarray) -> tuple[tuple[float, float], ...]:
    [isotonic] = import_extra("sklearn.isotonic")
    model = isotonic.IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(odds, truths)
    return tuple(zip(model.X_thresholds_.tolist(), model.y_thresholds_.tolist(), strict=True))
