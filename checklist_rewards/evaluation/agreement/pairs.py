"""Preferences: two targets of one input, which of them a judge's scores put first, and which one people did.

Of every pair there are two differences, the judge's and the truth's. The label of a pair is a win, a tie or a loss of
its first target. The *pairwise label distance* (PLD; Qin et al. 2024, used by TICK, section 3.2) is 0 for equal
labels, 1 where one of the two is a tie, and 2 for the opposite; WPLD is its mean, from 0 (best) to 2.

Where the truth has no tie, the better target is the *chosen* one, and a judge wins a pair by scoring it higher: with
the mean difference, its effect size and a paired t-test these are the figures of AutoChecklist's table 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from checklist_rewards.validation import import_extra

_EQUAL = 1e-9


class Preferences:
    """Judged and true differences of pairs.

    Args:
        judged, truth (sequence of `float`, one per pair): score of the first target minus that of the second.
        tie (`float`, *optional*, defaults to `0`): judged differences up to this are ties.
        true_tie (`float`, *optional*, defaults to `0`): true differences up to this are ties.

    Figures:
        pld_0, pld_1, pld_2: share of the pairs with this distance. wpld: its mean.
        wins, losses, ties: shares, over the pairs that the truth does not tie, of the judge's score of the chosen
            target being above, below or equal to that of the rejected one.
        difference: mean of score(chosen) - score(rejected).
        cohens_d: `difference` in units of its standard deviation over pairs (Cohen's d_z); None where that is 0.
        t_test_p: two-sided p of the paired t-test of `difference`; it takes pairs for independent.
    """

    def __init__(self, judged: Sequence[float], truth: Sequence[float], tie: float = 0.0, true_tie: float = 0.0):
        judged_, truth_ = np.asarray(judged, dtype=float), np.asarray(truth, dtype=float)
        label, prediction = _sign(truth_, true_tie), _sign(judged_, tie)
        self._distance = np.abs(label - prediction)
        self._decided = label != 0
        self._outcome = label * prediction
        self._difference = np.where(self._decided, label * judged_, 0.0)

    @property
    def decided(self) -> int:
        """Pairs that the truth does not tie."""
        return int(self._decided.sum())

    def figures(self) -> dict[str, float | None]:
        """See [`Measure`]."""
        found: dict[str, float | None] = {
            name: None if math.isnan(value) else value
            for name, value in self.replicate(np.ones(len(self._distance))).items()
        }
        chosen = self._difference[self._decided]
        if found["cohens_d"] is not None:
            [stats] = import_extra("scipy.stats")
            found["t_test_p"] = float(stats.ttest_1samp(chosen, 0).pvalue)
        return found

    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        """See [`Measure`]. A p-value has no interval."""
        decided = weights * self._decided
        mean = _mean(self._difference, decided)
        count = decided.sum()
        spread = math.sqrt(decided @ (self._difference - mean) ** 2 / (count - 1)) if count > 1 else math.nan
        return {
            **{f"pld_{distance}": _mean(self._distance == distance, weights) for distance in (0, 1, 2)},
            "wpld": _mean(self._distance, weights),
            "wins": _mean(self._outcome > 0, decided),
            "losses": _mean(self._outcome < 0, decided),
            "ties": _mean(self._outcome == 0, decided),
            "difference": mean,
            "cohens_d": mean / spread if spread > _EQUAL else math.nan,
            "t_test_p": math.nan,
        }


def pairs_within(keys: Sequence[str]) -> list[tuple[int, int]]:
    """Every two places of `keys` that hold the same key, in order: the targets of one input."""
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return [pair for members in places.values() for pair in combinations(members, 2)]


def _sign(differences: np.ndarray, tie: float) -> np.ndarray:
    # Scores are sums of floats: two that are equal on paper may differ in their last digit.
    return np.where(np.abs(differences) <= tie + _EQUAL, 0, np.sign(differences))


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    total = weights.sum()
    return float(weights @ values / total) if total else math.nan
