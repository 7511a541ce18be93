"""Agreement of two raters on categories: accuracy, kappa, weighted kappa, alpha; against labels also precision,
recall, F1 and phi.

All figures are computed from the weighted confusion matrix, which is much faster than from the answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from typing_extensions import override

from checklist_rewards.evaluation.agreement.bootstrap import Measure, over
from checklist_rewards.validation import np

CATEGORICAL = ("accuracy", "kappa", "weighted_kappa", "alpha", "interval_alpha")
AGAINST_LABELS = ("precision", "recall", "f1", "phi")


class Categories(Measure):
    """Agreement of two raters on items with the same possible answers.

    Args:
        one, other (sequence of `str`, equally long): the answers of each rater.
        values (mapping of `str` to `float` or None): the possible answers and their values, in [0, 1].
        positive (`str`, *optional*): compute precision, recall and F1 of this answer, with `other` as the labels.

    Figures:
        accuracy: share of equal answers.
        kappa: Cohen's kappa (1960), chance-corrected agreement; None if both raters always give the same single
            answer.
        weighted_kappa: kappa with squared distances of the *values* as weights (Cohen 1968). Abstentions have no value
            and are left out.
        alpha: Krippendorff's alpha, nominal; None if only one answer occurs.
        interval_alpha: alpha with squared distances of the values, without abstentions.
        precision, recall, f1: of `positive`; None where the denominator is 0.
        phi: correlation of two binary raters; None if a rater is constant. Only for two possible answers.
    """

    def __init__(
        self,
        one: Sequence[str],
        other: Sequence[str],
        values: Mapping[str, float | None],
        positive: str | None = None,
    ):
        self.labels = list(values)
        codes = {label: code for code, label in enumerate(self.labels)}
        self.one = np.array([codes[label] for label in one], dtype=np.int64)
        self.other = np.array([codes[label] for label in other], dtype=np.int64)
        self.valued = [code for code, value in enumerate(values.values()) if value is not None]
        self.values = np.array([value for value in values.values() if value is not None], dtype=float)
        self.positive = None if positive is None else codes[positive]
        self._distances = np.subtract.outer(self.values, self.values) ** 2

    @property
    def confusion(self) -> np.ndarray:
        """Confusion matrix of counts, in the order of `labels`: `one` in rows, `other` in columns."""
        return self._table(np.ones(len(self.one))).astype(int)

    @override
    def __len__(self) -> int:
        return len(self.one)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        table = self._table(weights)
        valued, different = table[np.ix_(self.valued, self.valued)], 1 - np.eye(len(table))
        figures = {
            "accuracy": over(np.trace(table), table.sum()),
            "kappa": kappa_of(table, different),
            "weighted_kappa": kappa_of(valued, self._distances),
            "alpha": _alpha(table, different),
            "interval_alpha": _alpha(valued, self._distances),
        }
        if self.positive is not None:
            yes = self.positive
            both, judged_yes, labelled_yes = table[yes, yes], table[yes].sum(), table[:, yes].sum()
            total = table.sum()
            spread = math.sqrt(judged_yes * labelled_yes * (total - judged_yes) * (total - labelled_yes))
            figures |= {
                "precision": over(both, judged_yes),
                "recall": over(both, labelled_yes),
                "f1": over(2 * both, judged_yes + labelled_yes),
                "phi": over(total * both - judged_yes * labelled_yes, spread) if len(table) == 2 else math.nan,
            }
        return figures

    def _table(self, weights: np.ndarray) -> np.ndarray:
        size = len(self.labels)
        return np.bincount(self.one * size + self.other, weights, size * size).reshape(size, size)


def kappa_of(table: np.ndarray, distances: np.ndarray) -> float:
    """1 - mean distance / mean distance expected for independent raters."""
    total = table.sum()
    expected = table.sum(1) @ distances @ table.sum(0)
    return 1 - (table * distances).sum() * total / expected if total and expected > 0 else math.nan


def _alpha(table: np.ndarray, distances: np.ndarray) -> float:
    """1 - observed / expected disagreement over coincidences (Krippendorff 2011, with two answers per unit)."""
    coincidences = table + table.T
    counts = coincidences.sum(0)
    expected = counts @ distances @ counts
    return 1 - (counts.sum() - 1) * (coincidences * distances).sum() / expected if expected > 0 else math.nan
