"""Significance tests between two judges on the same labelled items.

McNemar's test compares the items that only one of the judges answered correctly; it assumes that items are
independent. The permutation test does not: under the null hypothesis that the judges are equal, their answers are
exchangeable within each *group*, so it flips the signs of the differences of whole groups.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from pydantic import BaseModel, ConfigDict

from checklist_rewards.evaluation.agreement.bootstrap import group_codes
from checklist_rewards.validation import import_extra, np

EXACT_BELOW = 25
"""With fewer discordant items than this, McNemar's test uses the exact binomial distribution."""
_FLIPS, _BATCH = 10_000, 100
_EXACT_GROUPS = 13
_EQUAL = 1e-9


class PairedTest(BaseModel):
    """Two judges on the same labelled items."""

    model_config = ConfigDict(frozen=True)

    one: str
    other: str
    units: int
    """Labelled items that both judges answered."""
    only_one_right: int
    only_other_right: int
    accuracy_difference: float | None
    """Accuracy of `one` minus accuracy of `other`."""
    mcnemar_p: float | None
    """None if both judges are correct on exactly the same items."""
    permutation_p: float | None
    """Two-sided p-value of the difference in accuracy."""
    error_difference: float | None
    """Mean absolute error of the soft values, `one` minus `other`: below 0, `one` is closer to the labels."""
    error_permutation_p: float | None


def paired_test(
    names: tuple[str, str],
    right: tuple[Sequence[bool], Sequence[bool]],
    errors: tuple[Sequence[float], Sequence[float]],
    groups: Sequence[Hashable],
    error_groups: Sequence[Hashable],
    seed: int = 0,
) -> PairedTest:
    """Compare two judges.

    Args:
        names (pair of `str`): of the two judges.
        right (pair of sequences of `bool`): for each judge, whether each answer equals the label.
        errors (pair of sequences of `float`): for each judge, the absolute difference between its soft value and the
            label's value, for the items with values.
        groups, error_groups (sequences): the group of each entry of `right` and of `errors`.
        seed (`int`, *optional*, defaults to `0`): seed of the permutations.
    """
    one, other = (np.asarray(side, dtype=bool) for side in right)
    gained, lost = int((one & ~other).sum()), int((~one & other).sum())
    difference = one.astype(float) - other
    error_change = np.asarray(errors[0], dtype=float) - np.asarray(errors[1], dtype=float)
    mcnemar_p = None
    if gained + lost:
        [tables] = import_extra("statsmodels.stats.contingency_tables")
        table = [[0, gained], [lost, 0]]
        mcnemar_p = float(tables.mcnemar(table, exact=gained + lost < EXACT_BELOW, correction=True).pvalue)
    return PairedTest(
        one=names[0],
        other=names[1],
        units=len(one),
        only_one_right=gained,
        only_other_right=lost,
        accuracy_difference=float(difference.mean()) if len(one) else None,
        mcnemar_p=mcnemar_p,
        permutation_p=permutation_p(difference, groups, seed),
        error_difference=float(error_change.mean()) if len(error_change) else None,
        error_permutation_p=permutation_p(error_change, error_groups, seed),
    )


def permutation_p(differences: np.ndarray, groups: Sequence[Hashable], seed: int = 0) -> float | None:
    """Two-sided p-value of the sum of differences under sign flips of whole groups; None for fewer than two groups.

    Exact for up to 13 groups with a nonzero difference, otherwise estimated from 10,000 random flips.
    """
    codes = group_codes(groups)
    sums = np.bincount(codes, differences) if len(codes) else np.zeros(0)
    if len(sums) < 2:
        return None
    sums = sums[np.abs(sums) > _EQUAL]  # flipping a zero changes nothing
    if len(sums) < 2:
        return 1.0
    if len(sums) <= _EXACT_GROUPS:
        [stats] = import_extra("scipy.stats")
        every = {"permutation_type": "samples", "vectorized": True, "n_resamples": np.inf}
        return float(stats.permutation_test((sums,), lambda flipped, axis: np.sum(flipped, axis=axis), **every).pvalue)
    # For random flips, scipy is forty times slower than this matrix product.
    rng = np.random.default_rng(seed)
    far, extreme = abs(sums.sum()) - _EQUAL, 0
    for _ in range(_FLIPS // _BATCH):
        signs = 2.0 * rng.integers(0, 2, (_BATCH, len(sums)), dtype=np.int8) - 1
        extreme += int((np.abs(signs @ sums) >= far).sum())
    return (extreme + 1) / (_FLIPS + 1)
