"""Agreement of two raters on categories: accuracy, kappa, weighted kappa, alpha; against labels also precision,
recall, F1 and phi.

The point values come from scikit-learn, statsmodels and krippendorff. Bootstrap replicates are computed from the
weighted confusion matrix in numpy, which is much faster; the tests check that both agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from typing_extensions import override

from checklist_rewards.evaluation.agreement.bootstrap import Measure
from checklist_rewards.validation import import_extra, np

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
    def figures(self) -> dict[str, float | None]:
        metrics, raters, krippendorff = import_extra(
            "sklearn.metrics", "statsmodels.stats.inter_rater", "krippendorff"
        )
        one, other, table = self.one, self.other, self.confusion
        if not len(one):
            return dict.fromkeys(self._names)
        used = np.flatnonzero(table.sum(0) + table.sum(1))
        valued = table[np.ix_(self.valued, self.valued)]
        several = len(used) > 1
        figures: dict[str, float | None] = {
            "accuracy": metrics.accuracy_score(one, other),
            "kappa": metrics.cohen_kappa_score(one, other) if several else None,
            "weighted_kappa": None,
            "alpha": krippendorff.alpha(np.stack([one, other]), level_of_measurement="nominal") if several else None,
            "interval_alpha": None,
        }
        if len(set(self.values[(valued.sum(0) + valued.sum(1)) > 0])) > 1:
            weighted = raters.cohens_kappa(valued, weights=self.values, wt="quadratic", return_results=False)
            units = np.array([[self._value(code) for code in side] for side in (one, other)])
            units = units[:, ~np.isnan(units).any(0)]
            figures["weighted_kappa"] = weighted
            figures["interval_alpha"] = krippendorff.alpha(units, level_of_measurement="interval")
        if self.positive is not None:
            yes, judged_yes, labelled_yes = self.positive, table[self.positive].sum(), table[:, self.positive].sum()
            binary = one == yes, other == yes
            scores = metrics.precision_recall_fscore_support(
                binary[1], binary[0], average="binary", zero_division=np.nan
            )
            # scikit-learn returns F1 = 0 when only one of precision and recall is undefined.
            figures |= dict(zip(("precision", "recall", "f1"), scores[:3], strict=True))
            figures["f1"] = scores[2] if judged_yes + labelled_yes else None
            varied = len(self.labels) == 2 and 0 < judged_yes < len(one) and 0 < labelled_yes < len(one)
            figures["phi"] = metrics.matthews_corrcoef(*binary) if varied else None
        return {name: _number(figures[name]) for name in self._names}

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        table = self._table(weights)
        valued, different = table[np.ix_(self.valued, self.valued)], 1 - np.eye(len(table))
        figures = {
            "accuracy": _over(np.trace(table), table.sum()),
            "kappa": _kappa(table, different),
            "weighted_kappa": _kappa(valued, self._distances),
            "alpha": _alpha(table, different),
            "interval_alpha": _alpha(valued, self._distances),
        }
        if self.positive is not None:
            yes = self.positive
            both, judged_yes, labelled_yes = table[yes, yes], table[yes].sum(), table[:, yes].sum()
            total = table.sum()
            spread = math.sqrt(judged_yes * labelled_yes * (total - judged_yes) * (total - labelled_yes))
            figures |= {
                "precision": _over(both, judged_yes),
                "recall": _over(both, labelled_yes),
                "f1": _over(2 * both, judged_yes + labelled_yes),
                "phi": _over(total * both - judged_yes * labelled_yes, spread) if len(table) == 2 else math.nan,
            }
        return figures

    @property
    def _names(self) -> tuple[str, ...]:
        return CATEGORICAL + (AGAINST_LABELS if self.positive is not None else ())

    def _value(self, code: int) -> float:
        return self.values[self.valued.index(code)] if code in self.valued else math.nan

    def _table(self, weights: np.ndarray) -> np.ndarray:
        size = len(self.labels)
        return np.bincount(self.one * size + self.other, weights, size * size).reshape(size, size)


def _kappa(table: np.ndarray, distances: np.ndarray) -> float:
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


def _over(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else math.nan


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
