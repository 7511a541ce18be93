"""Fitting a calibration: labelled reads in, maps with held-out figures out.

`reads` takes labelled reads from scored rows, `maps` fits a map of each method that a kind of item allows, and `folds`
measures them on held-out groups and keeps the best. Yes/no items have all three methods, other items temperature.

What cannot be fitted is refused with one sentence: reads of several judges, labels of one class only, a single group,
a judge whose P(yes) falls where the truth rises.
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
