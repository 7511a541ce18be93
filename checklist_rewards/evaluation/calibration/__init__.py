"""Fitting calibration maps from labelled reads.

`reads` collects labelled reads from scored rows, `maps` fits a map with each method, and `folds` evaluates the maps on
held-out groups and selects the best. Yes/no items support temperature, Platt and isotonic maps; items with options
support temperature only. Applying a calibration is in `judges/calibration.py`.

Fitting raises a [`SampleError`] for reads of several judges, labels of a single class, a single group, and a judge
whose P(yes) decreases where the truth increases.
"""

from checklist_rewards.evaluation.calibration.folds import KindReport, Probabilities, fit_calibration
from checklist_rewards.evaluation.calibration.maps import ThresholdChoice, ThresholdRule, fit_map, mapped
from checklist_rewards.evaluation.calibration.reads import LabelledRead, Reads, labelled_reads

__all__ = [
    "KindReport",
    "LabelledRead",
    "Probabilities",
    "Reads",
    "ThresholdChoice",
    "ThresholdRule",
    "fit_calibration",
    "fit_map",
    "labelled_reads",
    "mapped",
]
