"""Pairwise preferences: agreement of a judge and human labels on which of two targets of one input is better.

Each pair has two score differences, one from the judge and one from the labels. The sign of a difference is a win, a
tie or a loss of the first target. The *pairwise label distance* (PLD; Qin et al. 2024, used by TICK, section 3.2) is 0
for equal outcomes, 1 if one of the two is a tie, and 2 for opposite outcomes. WPLD is its mean, from 0 (best) to 2.

Where the labels are not tied, the better target is the *chosen* one, and the judge wins the pair by scoring it higher.
Wins, the mean difference, its effect size and a paired t-test are the figures of AutoChecklist's table 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from typing_extensions import override

from checklist_rewards.evaluation.agreement.bootstrap import Measure, weighted_mean
from checklist_rewards.validation import import_extra, np

_EQUAL = 1e-9


class Preferences(Measure):
    """Agreement of judged and true score differences of pairs.

    Args:
        judged, truth (sequence of `float`, one per pair): score of the first target minus that of the second.
        tie (`float`, *optional*, defaults to `0`): largest absolute judged difference that counts as a tie.
        true_tie (`float`, *optional*, defaults to `0`): largest absolute true difference that counts as a tie.

    Figures:
        pld_0, pld_1, pld_2: fraction of the pairs with this distance. wpld: mean distance.
        wins, losses, ties: over the pairs that the labels do not tie, the fraction where the judge scores the chosen
            target above, below or equal to the rejected one.
        difference: mean of score(chosen) - score(rejected).
        cohens_d: `difference` divided by its standard deviation over pairs (Cohen's d_z); None if that is 0.
        t_test_p: two-sided p-value of the paired t-test of `difference`, which assumes independent pairs.
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
        """Number of pairs that the labels do not tie."""
        return int(self._decided.sum())

    @override
    def __len__(self) -> int:
        return len(self._distance)

    @override
    def figures(self) -> dict[str, float | None]:
        figures = super().figures()
        if figures["cohens_d"] is not None:
            [stats] = import_extra("scipy.stats")
            figures["t_test_p"] = float(stats.ttest_1samp(self._difference[self._decided], 0).pvalue)
        return figures

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        """The p-value has no interval, so its replicates are NaN."""
        decided = weights * self._decided
        mean = weighted_mean(self._difference, decided)
        count = decided.sum()
        spread = math.sqrt(decided @ (self._difference - mean) ** 2 / (count - 1)) if count > 1 else math.nan
        return {
            **{f"pld_{distance}": weighted_mean(self._distance == distance, weights) for distance in (0, 1, 2)},
            "wpld": weighted_mean(self._distance, weights),
            "wins": weighted_mean(self._outcome > 0, decided),
            "losses": weighted_mean(self._outcome < 0, decided),
            "ties": weighted_mean(self._outcome == 0, decided),
            "difference": mean,
            "cohens_d": mean / spread if spread > _EQUAL else math.nan,
            "t_test_p": math.nan,
        }


def pairs_within(keys: Sequence[str]) -> list[tuple[int, int]]:
    """All index pairs i < j with `keys[i] == keys[j]`, grouped by key: the pairs of targets of one input."""
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return [pair for members in places.values() for pair in combinations(members, 2)]


def _sign(differences: np.ndarray, tie: float) -> np.ndarray:
    # Scores are floating-point sums, so mathematically equal scores may differ in the last digit.
    return np.where(np.abs(differences) <= tie + _EQUAL, 0, np.sign(differences))
