"""Cross-validated figures of each calibration method, and the calibration fitted on all reads.

Groups are split into five folds. Each read is mapped, and its yes/no decision made, by a map fitted on the other four
folds, so all figures are *out-of-fold*. The method with the lowest out-of-fold Brier score is selected, which makes
its figures slightly optimistic. Figures of the uncalibrated judge use the default threshold.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from checklist_rewards.checklists import YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement.bootstrap import Bootstrap, Figure, Measure, over, weighted_mean
from checklist_rewards.evaluation.agreement.numbers import Mean
from checklist_rewards.evaluation.calibration.maps import ThresholdChoice, fit_map, mapped
from checklist_rewards.evaluation.calibration.reads import LabelledRead, Reads
from checklist_rewards.judges.calibration import (
    BINS,
    METHODS,
    YES_NO,
    Calibration,
    CalibrationMap,
    CalibrationMethod,
    kind_of,
)
from checklist_rewards.scores import DEFAULT_THRESHOLD
from checklist_rewards.validation import import_extra, np

FOLDS = 5


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
    def helped(self) -> bool:
        """Whether the selected method has a lower Brier score than the uncalibrated judge."""
        change = self.after[self.method]["brier_change"].value
        return change is not None and change < 0


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
    figures = {report.kind: _saved_figures(report) for report in reports}
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
            options. Its bootstrap interval is biased upwards near 0 and may exclude the estimate.
        accuracy, and for yes/no items the F1 of yes (None if no read is labelled or predicted yes).
    """

    def __init__(
        self,
        probabilities: Sequence[Mapping[str, float]],
        labels: Sequence[str],
        thresholds: Sequence[float] | None = None,
    ):
        self.binary = thresholds is not None
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
    def __len__(self) -> int:
        return len(self.squares)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        gaps = np.bincount(self._bins, weights * (self.confidences - self.hits), BINS)
        values = {
            "brier": weighted_mean(self.squares, weights),
            "ece": over(np.abs(gaps).sum(), weights.sum()),
            "accuracy": weighted_mean(self.right, weights),
        }
        if self.binary:
            both = weights @ (self.called * self.truths)
            values["f1"] = over(2 * both, weights @ (self.called + self.truths))
        return values


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
        change = Mean("brier_change", measured.squares - raw.squares)
        after[each] = bootstrap.figures(measured, groups) | bootstrap.figures(change, groups)
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about rare labels that are missing in a fold
        try:
            folds = list(splitter.split(np.zeros(len(reads)), [read.label for read in reads], groups))
        except ValueError as error:
            raise SampleError(f"{kind} items: the labelled reads cannot be split into folds ({error}).") from None
    return [(train.tolist(), held_out.tolist()) for train, held_out in folds if len(held_out)]


def _saved_figures(report: KindReport) -> dict[str, Any]:
    """The figures saved with a map: of the uncalibrated judge, and of the selected method."""
    dumped = {
        when: {name: figure.model_dump() for name, figure in figures.items()}
        for when, figures in (("before", report.before), ("after", report.after[report.method]))
    }
    return {"reads": report.reads, "groups": report.groups, **dumped}
