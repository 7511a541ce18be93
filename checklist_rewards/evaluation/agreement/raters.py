"""Agreement among any number of judges: Krippendorff's alpha and Fleiss' kappa.

Alpha uses all units answered by at least two judges; Fleiss' kappa uses only units answered by all. Both are sums over
units, so bootstrap replicates reweight the units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from typing_extensions import override

from checklist_rewards.evaluation.agreement.bootstrap import Measure, over
from checklist_rewards.validation import np


class Raters(Measure):
    """Agreement of several judges on items with the same possible answers.

    Args:
        answers (sequence of sequences): for every unit the answer of each judge, None if unanswered.
        values (mapping of `str` to `float` or None): the possible answers and their values, in [0, 1].

    Figures:
        alpha: Krippendorff's alpha, nominal (2011); None if only one answer occurs.
        interval_alpha: alpha with squared distances of the values, without abstentions.
        fleiss_kappa: Fleiss' kappa (1971); None for fewer than two judges, or if only one answer occurs.
    """

    def __init__(self, answers: Sequence[Sequence[str | None]], values: Mapping[str, float | None]):
        codes = {label: code for code, label in enumerate(values)}
        self.judges = len(answers[0]) if answers else 0
        self.counts = np.zeros((len(answers), len(codes)), dtype=np.int64)
        for unit, row in enumerate(answers):
            for answer in row:
                if answer is not None:
                    self.counts[unit, codes[answer]] += 1
        self.values = np.array([math.nan if value is None else value for value in values.values()])
        valued = ~np.isnan(self.values)
        self._nominal = _Coincidences(self.counts, 1.0 - np.eye(len(codes)))
        self._interval = _Coincidences(
            self.counts[:, valued], np.subtract.outer(self.values[valued], self.values[valued]) ** 2
        )
        self._complete = (self.counts.sum(1) == self.judges) & (self.judges > 1)

    @override
    def __len__(self) -> int:
        return len(self.counts)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        return {
            "alpha": self._nominal.alpha(weights),
            "interval_alpha": self._interval.alpha(weights),
            "fleiss_kappa": self._fleiss(weights * self._complete),
        }

    def _fleiss(self, weights: np.ndarray) -> float:
        total = weights.sum()
        if not total:
            return math.nan
        shares = weights @ self.counts / (total * self.judges)
        chance = shares @ shares
        equal = ((self.counts**2).sum(1) - self.judges) / (self.judges * (self.judges - 1))
        return over(weights @ equal / total - chance, 1 - chance)


class _Coincidences:
    """Krippendorff's alpha: 1 - disagreement of the pairs within units / disagreement of all pairs."""

    def __init__(self, counts: np.ndarray, distances: np.ndarray):
        self.counts, self.distances = counts, distances
        answered = counts.sum(1)
        self._pairable = answered > 1
        within = np.einsum("uc,ck,uk->u", counts, distances, counts)
        self._observed = within / np.maximum(answered - 1, 1)  # each unit has the weight of its number of answers

    def alpha(self, weights: np.ndarray) -> float:
        """Alpha with unit i counted `weights[i]` times."""
        weights = weights * self._pairable
        counts = weights @ self.counts
        expected = counts @ self.distances @ counts
        return 1 - over((counts.sum() - 1) * (weights @ self._observed), expected)
