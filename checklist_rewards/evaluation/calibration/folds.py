"""What calibration is worth, on groups that it was not fitted on, and the calibration fitted on all.

The groups are split into five parts; each read is mapped, and decided, by what was fitted on the other four. So all
figures are *out-of-fold*; only the choice among the three methods, by the lowest Brier score, was made looking at
them. The judge's own figures are at the default threshold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from checklist_rewards.checklists import YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement.bootstrap import Bootstrap, Figure
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
from checklist_rewards.validation import import_extra

FOLDS = 5


@dataclass(frozen=True, slots=True)
class KindReport:
    """What was measured for one kind of item, all of it out-of-fold."""

    kind: str
    reads: int
    groups: int
    before: dict[str, Figure]
    after: dict[str, dict[str, Figure]]
    """By method; `brier_change` is the mean difference to before, below 0 where the method helped."""
    method: CalibrationMethod
    """The one that was kept."""
    confidences: dict[str, tuple[list[float], list[float]]]
    """Before, and by method: the probabilities and truths of the reliability diagram."""

    @property
    def helped(self) -> bool:
        """Whether the kept method has a lower Brier score than the judge itself."""
        change = self.after[self.method]["brier_change"].value
        return change is not None and change < 0


def fit_calibration(
    labelled: Reads,
    *,
    method: CalibrationMethod | None = None,
    threshold: ThresholdChoice | None = None,
    bootstrap: Bootstrap | None = None,
) -> tuple[Calibration, list[KindReport]]:
    """Fit the maps of all kinds of items in the reads.

    Args:
        labelled ([`Reads`]): contextual if its reads have those of the empty target.
        method (`str`, *optional*): of yes/no items; by default the one with the lowest out-of-fold Brier score.
        threshold ([`ThresholdChoice`], *optional*): fit a threshold for yes/no items too.
        bootstrap ([`Bootstrap`], *optional*): how intervals are made; its seed also shuffles the folds.

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
    figures = {report.kind: _kept(report) for report in reports}
    contextual = labelled.reads[0].empty is not None
    calibration = Calibration(
        judge=labelled.judge, read_by=labelled.read_by, contextual=contextual, maps=maps, figures=figures
    )
    return calibration, reports


class Probabilities:
    """Probabilities of labels against the truth.

    Args:
        probabilities (sequence of mappings of label to probability).
        labels (sequence of `str`): the truth.
        thresholds (sequence of `float`, *optional*): yes from this P(yes) up, read by read; for yes/no items.

    Figures:
        brier: mean over reads of half the squared distance of the probabilities from the truth; for yes and no that is
            (P(yes) - truth)^2 (Brier 1950).
        ece: expected calibration error, the mean over ten bins of equal width of |mean probability - share that is
            true|, weighted by reads (Naeini et al. 2015). Of P(yes), for options of the most probable label. Near 0
            its interval lies above it: noise makes distances longer.
        accuracy, and for yes/no items f1 of yes (None where nothing is or is called yes).
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

    def figures(self) -> dict[str, float | None]:
        """See [`Measure`]."""
        found = self.replicate(np.ones(len(self.squares)))
        return {name: None if math.isnan(value) else value for name, value in found.items()}

    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        """See [`Measure`]."""
        total = weights.sum()
        gaps = np.bincount(self._bins, weights * (self.confidences - self.hits), BINS)
        found = {
            "brier": float(weights @ self.squares / total),
            "ece": float(np.abs(gaps).sum() / total),
            "accuracy": float(weights @ self.right / total),
        }
        if self.binary:
            both = weights @ (self.called * self.truths)
            either = weights @ (self.called + self.truths)
            found["f1"] = float(2 * both / either) if either else math.nan
        return found


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
    kept: Any = min(after, key=lambda name: after[name]["brier"].value or 0.0)
    return KindReport(kind, len(reads), len(set(groups)), before, after, kept, confidences)


def _folds(kind: str, reads: Sequence[LabelledRead], seed: int) -> list[tuple[list[int], list[int]]]:
    groups = [read.group for read in reads]
    count = len(set(groups))
    if count < 2:
        raise SampleError(f"{kind} items: all {len(reads)} labelled reads are of one group; at least two are needed.")
    [selection] = import_extra("sklearn.model_selection")
    splitter = selection.StratifiedGroupKFold(min(FOLDS, count), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a rare label is not in every fold
        try:
            folds = list(splitter.split(np.zeros(len(reads)), [read.label for read in reads], groups))
        except ValueError as error:
            raise SampleError(f"{kind} items: the labelled reads cannot be split into folds ({error}).") from None
    return [(train.tolist(), held_out.tolist()) for train, held_out in folds if len(held_out)]


def _kept(report: KindReport) -> dict[str, Any]:
    """What is saved with the map: the figures of the judge before, and of the method that was kept."""
    dumped = {
        when: {name: figure.model_dump() for name, figure in figures.items()}
        for when, figures in (("before", report.before), ("after", report.after[report.method]))
    }
    return {"reads": report.reads, "groups": report.groups, **dumped}
