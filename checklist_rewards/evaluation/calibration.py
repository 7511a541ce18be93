"""Fitting calibration maps from labelled reads, and choosing thresholds. Applying them is in `judges/calibration.py`.

Yes/no items support temperature, Platt and isotonic maps; items with options support temperature only. Platt and
isotonic maps are fitted with scikit-learn, temperatures with scipy. Platt scaling uses smoothed targets (Platt 1999,
section 2.2), so that perfectly separated reads do not give an infinite slope.

The figures of each method are cross-validated, and the calibration is fitted on all reads. Groups are split into five
folds. Each read is mapped, and its yes/no decision made, by a map fitted on the other four folds, so all figures are
*out-of-fold*. The method with the lowest out-of-fold Brier score is selected, which makes its figures slightly
optimistic. Figures of the uncalibrated judge use the default threshold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from typing_extensions import override

from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Measure, over, weighted_mean
from checklist_rewards.evaluation.intervals import DISTANCE_TO_1, SHARE, Rule
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.judges.calibration import (
    BINS,
    METHODS,
    YES_NO,
    Calibration,
    CalibrationMap,
    CalibrationMethod,
    calibrated_probabilities,
    kind_of,
    scores_of,
)
from checklist_rewards.scores import DEFAULT_THRESHOLD, Verdict
from checklist_rewards.validation import finite, import_extra, np, one_of


@dataclass(frozen=True, slots=True)
class LabelledRead:
    """One read of a judge with its label."""

    item: ChecklistItem
    probabilities: Mapping[str, float]
    """Uncalibrated probabilities of the judge."""
    label: str
    group: str
    empty: Mapping[str, float] | None = None
    """Probabilities of the same item for the empty target."""

    @property
    def scores(self) -> np.ndarray:
        """Log-probabilities in the order of the labels, minus those of the empty target if given."""
        return np.array(list(scores_of(self.probabilities, self.empty).values()))

    @property
    def odds(self) -> float:
        """Log-odds of yes, minus those of the empty target if given."""
        scores = scores_of(self.probabilities, self.empty)
        return scores[YES] - scores[NO]


@dataclass(frozen=True, slots=True)
class Reads:
    """Labelled reads of one judge."""

    judge: str
    read_by: str | None
    """How the judge was read: "logprobs", "votes", …"""
    reads: tuple[LabelledRead, ...]
    left_out: int = 0
    """Number of labelled items without probabilities: unanswered, answered without probabilities, or about a text
    without an answer, which the judge has not read."""


def labelled_reads(
    texts: Sequence[ScoredText],
    empties: Mapping[tuple[str, str], Verdict] | None = None,
) -> Reads:
    """Collect the labelled reads of scored rows.

    Args:
        texts (sequence of [`ScoredText`]): the texts, with their labels.
        empties (mapping of (row id, item key) to [`Verdict`], *optional*): verdicts on the empty target, for a
            contextual calibration.

    Raises:
        SampleError: If no read is labelled, or the reads come from several judges or reading methods.
    """
    reads: list[LabelledRead] = []
    judges: dict[tuple[str, str | None], str] = {}
    left_out = 0
    for row in texts:
        if not isinstance(row.labels, Sequence):
            continue
        for key, item, line, label in zip(row.keys, row.items, row.judged.items, row.labels, strict=True):
            if label is None or line.by_code:
                continue
            probabilities = line.uncalibrated or line.probabilities
            empty = None if empties is None else empties[row.id, key].probabilities
            if probabilities is None or line.unanswered is not None or (empties is not None and empty is None):
                left_out += 1
                continue
            judges.setdefault((line.judge or "", line.method), row.where)
            reads.append(LabelledRead(item, probabilities, label.label, row.group, empty))
    if not reads:
        raise SampleError(
            f"{texts[0].where.rpartition(',')[0]}: no item has both a label and probabilities; {left_out} "
            f"have only a label, and {sum(isinstance(row.labels, float) for row in texts)} labels are of whole texts."
        )
    if len(judges) > 1:
        (one, first), (other, second) = list(judges.items())[:2]
        named = [f"{judge!r} by {method} ({where})" for (judge, method), where in ((one, first), (other, second))]
        raise SampleError(f"a calibration needs reads of one judge, but got reads of {named[0]} and of {named[1]}.")
    [(judge, read_by)] = judges
    return Reads(judge, read_by, tuple(reads), left_out)


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
    """Fit one map with `method` on all `reads`, which must be of one kind; items with options have temperatures only.

    Raises:
        SampleError: If the map cannot be fitted.
    """
    labels = {read.label for read in reads}
    binary = kind_of(reads[0].item) == YES_NO
    if binary and labels != {YES, NO}:
        raise SampleError(f"fitting a map needs labels of both yes and no, got only {', '.join(sorted(labels))}.")
    if method == "temperature":
        fitted = CalibrationMap(method=method, temperature=_temperature(reads), reads=len(reads))
    else:
        odds, truths = np.array([read.odds for read in reads]), _truths(reads)
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


FOLDS = 5
BRIER_CHANGES: Mapping[str, Rule] = {
    method: Rule("mean", 500 if method == "isotonic" else 200, -1.0, 1.0) for method in METHODS
}
"""By method. The interval of `brier_change` does not contain the error of fitting, so it needs many groups, and a map
with many knots needs more."""


@dataclass(frozen=True, slots=True)
class KindReport:
    """Out-of-fold figures for one kind of item."""

    kind: str
    reads: int
    groups: int
    before: dict[str, Figure]
    after: dict[str, dict[str, Figure]]
    """By method. `brier_change` is the mean change of the Brier score; negative values are an improvement."""
    method: CalibrationMethod
    """The selected method."""
    confidences: dict[str, tuple[list[float], list[float]]]
    """Probabilities and outcomes of the reliability diagram, under "before" and by method."""

    @property
    def dumped(self) -> dict[str, Any]:
        """All figures as plain values."""
        after = {method: _dumped(figures) for method, figures in self.after.items()}
        counts = {"reads": self.reads, "groups": self.groups, "method": self.method}
        return {**counts, "before": _dumped(self.before), "after": after}

    @property
    def saved(self) -> dict[str, Any]:
        """The figures that are saved with a map: of the uncalibrated judge, and of the selected method."""
        found = self.dumped
        return {name: found[name] for name in ("reads", "groups", "before")} | {"after": found["after"][self.method]}

    @property
    def helped(self) -> bool:
        """Whether the selected method has a lower Brier score than the uncalibrated judge."""
        change = self.after[self.method]["brier_change"].value
        return change is not None and change < 0


def _dumped(figures: Mapping[str, Figure]) -> dict[str, Any]:
    return {name: figure.model_dump() for name, figure in figures.items()}


def fit_calibration(
    labelled: Reads,
    *,
    method: CalibrationMethod | None = None,
    threshold: ThresholdChoice | None = None,
    bootstrap: Bootstrap | None = None,
) -> tuple[Calibration, list[KindReport]]:
    """Fit calibration maps for all kinds of items in the reads.

    Args:
        labelled ([`Reads`]): the labelled reads. If they include reads of the empty target, the calibration is
            contextual.
        method (`str`, *optional*): method for yes/no items. Defaults to the one with the lowest out-of-fold Brier
            score.
        threshold ([`ThresholdChoice`], *optional*): also fit a threshold for yes/no items.
        bootstrap ([`Bootstrap`], *optional*): settings of the confidence intervals; its seed also shuffles the folds.

    Returns:
        [`Calibration`] with its figures, and a [`KindReport`] for each kind of item.
    """
    bootstrap = bootstrap or Bootstrap()
    kinds: dict[str, list[LabelledRead]] = {}
    for read in labelled.reads:
        kinds.setdefault(kind_of(read.item), []).append(read)
    maps: dict[str, CalibrationMap] = {}
    reports: list[KindReport] = []
    for kind, reads in kinds.items():
        chosen = threshold if kind == YES_NO else None
        report = _measure(kind, reads, method if kind == YES_NO else None, chosen, bootstrap)
        maps[kind] = fit_map(reads, report.method, chosen)
        reports.append(report)
    figures = {report.kind: report.saved for report in reports}
    contextual = labelled.reads[0].empty is not None
    calibration = Calibration(
        judge=labelled.judge, read_by=labelled.read_by, contextual=contextual, maps=maps, figures=figures
    )
    return calibration, reports


class Probabilities(Measure):
    """Quality of label probabilities: Brier score, calibration error and accuracy.

    Args:
        probabilities (sequence of mappings): label to probability, per read.
        labels (sequence of `str`): the true label of each read.
        thresholds (sequence of `float`, *optional*): for yes/no items, the least P(yes) that counts as yes, per read.

    Figures:
        brier: mean over reads of half the squared distance between the probabilities and the one-hot label; for yes/no
            items this is (P(yes) - truth)^2 (Brier 1950).
        ece: expected calibration error: the mean over ten bins of equal width of |mean probability - observed
            frequency|, weighted by reads (Naeini et al. 2015). Uses P(yes), or the most probable label for items with
            options. Noise makes it larger, so its interval is that of a distance and needs 200 groups.
        accuracy, and for yes/no items the F1 of yes (None if no read is labelled or predicted yes).
    """

    rules = {"ece": DISTANCE_TO_1, **dict.fromkeys(("brier", "accuracy", "f1"), SHARE)}

    def __init__(
        self,
        probabilities: Sequence[Mapping[str, float]],
        labels: Sequence[str],
        thresholds: Sequence[float] | None = None,
    ):
        self.binary, self.units = thresholds is not None, len(labels)
        self.squares = np.array(
            [
                sum((p - (name == label)) ** 2 for name, p in each.items()) / 2
                for each, label in zip(probabilities, labels, strict=True)
            ]
        )
        self.truths = np.array([label == YES for label in labels], dtype=float)
        if thresholds is not None:
            self.confidences = np.array([each[YES] for each in probabilities])
            self.called = (self.confidences >= np.asarray(thresholds)).astype(float)
            self.hits = self.truths
            self.right = (self.called == self.truths).astype(float)
        else:
            best = [max(each, key=each.__getitem__) for each in probabilities]
            self.confidences = np.array([each[name] for each, name in zip(probabilities, best, strict=True)])
            self.called = np.zeros(len(best))
            self.hits = self.right = np.array([name == label for name, label in zip(best, labels, strict=True)], float)
        self._bins = np.minimum((self.confidences * BINS).astype(int), BINS - 1)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        # No library has these figures for reads of items with different options.
        values = {
            "brier": weighted_mean(self.squares, weights),
            "ece": over(np.abs(self._gaps(weights)).sum(), weights.sum()),
            "accuracy": weighted_mean(self.right, weights),
        }
        if self.binary:
            both = weights @ (self.called * self.truths)
            values["f1"] = over(2 * both, weights @ (self.called + self.truths))
        return values

    @override
    def noise(self, weights: np.ndarray) -> dict[str, float]:
        return {"ece": float(np.abs(self._gaps(weights / weights.sum() - 1 / len(weights))).sum())}

    def _gaps(self, weights: np.ndarray) -> np.ndarray:
        """By bin, the weighted sum of probability minus outcome."""
        return np.bincount(self._bins, weights * (self.confidences - self.hits), BINS)


def _measure(
    kind: str,
    reads: Sequence[LabelledRead],
    method: CalibrationMethod | None,
    threshold: ThresholdChoice | None,
    bootstrap: Bootstrap,
) -> KindReport:
    folds = _folds(kind, reads, bootstrap.seed)
    groups, labels = [read.group for read in reads], [read.label for read in reads]
    binary = kind == YES_NO
    fixed = [DEFAULT_THRESHOLD] * len(reads) if binary else None
    raw = Probabilities([read.probabilities for read in reads], labels, fixed)
    before = bootstrap.figures(raw, groups)
    after: dict[str, dict[str, Figure]] = {}
    confidences = {"before": (raw.confidences.tolist(), raw.hits.tolist())}
    for each in METHODS if binary and method is None else (method or "temperature",):
        probabilities: list[dict[str, float]] = [{} for _ in reads]
        thresholds = [DEFAULT_THRESHOLD] * len(reads)
        for train, held_out in folds:
            fitted = fit_map([reads[place] for place in train], each, threshold)  # type: ignore[arg-type]
            for place in held_out:
                probabilities[place] = mapped(fitted, reads[place])
                thresholds[place] = DEFAULT_THRESHOLD if fitted.threshold is None else fitted.threshold
        measured = Probabilities(probabilities, labels, thresholds if binary else None)
        change = bootstrap.mean(measured.squares - raw.squares, groups, BRIER_CHANGES[each])
        after[each] = {**bootstrap.figures(measured, groups), "brier_change": change}
        confidences[each] = measured.confidences.tolist(), measured.hits.tolist()
    best: Any = min(after, key=lambda name: after[name]["brier"].value or 0.0)
    return KindReport(kind, len(reads), len(set(groups)), before, after, best, confidences)


def _folds(kind: str, reads: Sequence[LabelledRead], seed: int) -> list[tuple[list[int], list[int]]]:
    groups = [read.group for read in reads]
    count = len(set(groups))
    if count < 2:
        raise SampleError(
            f"{kind} items: all {len(reads)} labelled reads belong to one group, but fitting needs at least two."
        )
    [selection] = import_extra("sklearn.model_selection")
    splitter = selection.StratifiedGroupKFold(min(FOLDS, count), shuffle=True, random_state=seed)
    answers = [list(read.item.values).index(read.label) for read in reads]  # in whatever words
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about rare labels that are missing in a fold
        try:
            folds = list(splitter.split(np.zeros(len(reads)), answers, groups))
        except ValueError as error:
            raise SampleError(f"{kind} items: the labelled reads cannot be split into folds ({error}).") from None
    return [(train.tolist(), held_out.tolist()) for train, held_out in folds if len(held_out)]
