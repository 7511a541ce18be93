"""Is one judge better than another? Tests on the same labelled items, answered by both.

McNemar's test looks at the items that one judge has right and the other wrong, and takes items for independent. The
permutation test does not: under the hypothesis that the judges are alike, which of them gave which answers may be
swapped in any *group* at once, so it flips the sign of whole groups' differences.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from checklist_rewards.evaluation.agreement.bootstrap import group_codes
from checklist_rewards.validation import import_extra

EXACT_BELOW = 25
"""Discordant items under which McNemar's test is the exact binomial one."""
_FLIPS, _BATCH = 10_000, 100
_EXACT_GROUPS = 13
_EQUAL = 1e-9


class PairedTest(BaseModel):
    """Two judges on the same labelled items."""

    model_config = ConfigDict(frozen=True)

    one: str
    other: str
    units: int
    """Items that are labelled and that both answered."""
    only_one_right: int
    only_other_right: int
    accuracy_difference: float | None
    """Of `one` minus `other`."""
    mcnemar_p: float | None
    """None where the judges are right about the very same items."""
    permutation_p: float | None
    """Of the difference in accuracy, two-sided."""
    error_difference: float | None
    """Mean absolute error of the soft values, of `one` minus `other`: below 0, `one` is nearer to the labels."""
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
        names (pair of `str`).
        right (pair of sequences of `bool`): whether each judge's answer is the label, item by item.
        errors (pair of sequences of `float`): distance of each judge's soft value from the label's, for the items
            that have values.
        groups, error_groups (sequences): the group of every item of `right` and of `errors`.
        seed (`int`, *optional*, defaults to `0`): of the permutations.
    """
    one, other = (np.asarray(side, dtype=bool) for side in right)
    gained, lost = int((one & ~other).sum()), int((~one & other).sum())
    difference = one.astype(float) - other
    nearer = np.asarray(errors[0], dtype=float) - np.asarray(errors[1], dtype=float)
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
        error_difference=float(nearer.mean()) if len(nearer) else None,
        error_permutation_p=permutation_p(nearer, error_groups, seed),
    )


def permutation_p(differences: np.ndarray, groups: Sequence[Hashable], seed: int = 0) -> float | None:
    """Two-sided p of a sum of differences, under sign flips of whole groups; None for fewer than two groups.

    Exact for up to 13 groups that differ, else of 10,000 drawn flips.
    """
    codes = group_codes(groups)
    sums = np.bincount(codes, differences) if len(codes) else np.zeros(0)
    if len(sums) < 2:
        return None
    sums = sums[np.abs(sums) > _EQUAL]  # flipping these changes nothing
    if len(sums) < 2:
        return 1.0
    if len(sums) <= _EXACT_GROUPS:
        [stats] = import_extra("scipy.stats")
        every = {"permutation_type": "samples", "vectorized": True, "n_resamples": np.inf}
        return float(stats.permutation_test((sums,), lambda flipped, axis: np.sum(flipped, axis=axis), **every).pvalue)
    # Beyond that the library takes forty times longer than a product of signs and sums.
    rng = np.random.default_rng(seed)
    far, extreme = abs(sums.sum()) - _EQUAL, 0
    for _ in range(_FLIPS // _BATCH):
        signs = 2.0 * rng.integers(0, 2, (_BATCH, len(sums)), dtype=np.int8) - 1
        extreme += int((np.abs(signs @ sums) >= far).sum())
    return (extreme + 1) / (_FLIPS + 1)
