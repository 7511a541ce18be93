"""Figures computed from sums, for files of any size.

Many figures of a file (a kappa, a mean, a variance component) are functions of sums over its rows. Kept per bootstrap
group, these sums need a few numbers per group instead of all rows, and a resample is a weighted sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from typing_extensions import override

from checklist_rewards.evaluation.agreement.bootstrap import Measure
from checklist_rewards.validation import np


class Totals(Measure):
    """Figures of sums.

    Args:
        vectors (sequence of sequences of `float`, equally long): the sums of every unit.
        compute (callable): called with the sum of the vectors; returns the figures by name, NaN where undefined.
    """

    def __init__(
        self,
        vectors: Sequence[Sequence[float] | np.ndarray] | np.ndarray,
        compute: Callable[[np.ndarray], Mapping[str, float]],
    ):
        self.vectors, self.compute = np.asarray(vectors, dtype=float), compute

    @override
    def __len__(self) -> int:
        return len(self.vectors)

    @override
    def figures(self) -> dict[str, float | None]:
        return super().figures() if len(self) else {}

    @override
    def replicate(self, weights: np.ndarray) -> Mapping[str, float]:
        return self.compute(weights @ self.vectors)
