"""Standard errors of dependent units, and intervals and tests that stay right with few groups.

Units of a group are not independent. The error of an estimate is therefore that of sums over groups: with the part of
every unit in the estimate's error, sqrt(G / (G - 1) * sum of squares of the G sums) (Cameron and Miller 2015, section
II). Its distribution is Student's t with G - 1 degrees of freedom (scipy), not the normal one.

The interval of a rate is Wilson's (statsmodels) with the number of independent answers that would have the same error,
as for surveys (Korn and Graubard 1998), and with the quantile of t instead of the normal one. So it stays within 0 and
1, and it has a width where all labels are equal.

The interval of bootstrap draws is the expanded percentile interval (Hesterberg 2015, section 5.3): draws vary too
little, by (G - 1) / G, and their quantiles are those of a normal distribution, so the quantiles are taken further out.
With many groups it is the percentile interval. A *share* (a count divided by another, in [0, 1]) has Wilson's interval
with the standard error of the draws, because percentiles are too short near 0 and 1. A variance component is cut off
at 0, and its interval is the figure plus and minus t standard errors of the draws.

The interval of a mean of skewed values is that of bootstrap-t (Davison and Hinkley 1997, section 5.2): the quantiles
are those of (mean of the draw - mean) / standard error of the draw.

A *distance* (EMD, KS, ECE) is the norm of a difference, and noise makes it larger: draws are larger than the figure,
and the figure is larger than the truth where that is close to 0. The norm of the draw minus the data bounds this error
by the triangle inequality (as for bands of distribution functions, Bickel and Freedman 1981), so its quantile is the
distance to the lower end. The upper end is t standard errors away. The interval covers 95 % where the truth is 0, and
more elsewhere.

Fewer groups than the [`Rule`] of a figure give no interval: [`bounds`] returns the reason instead.
`docs/studies/statistics.md` has the coverage of each interval.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from checklist_rewards.scores import EQUAL
from checklist_rewards.validation import import_extra, np

CONFIDENCE = 0.95
MIN_GROUPS = 15
"""The fewest groups of an interval. With fewer, the coverage of these methods is not close to 95 %."""
EQUAL_DRAWS = "equal in all resamples"
"""The reason where a figure is the same in all resamples and has no interval."""
FEW_DIFFER = "too few groups differ"
"""The reason where many resamples of a mean have no standard error: they contain equal groups only."""
_DEFINED = 0.9


class Rule(NamedTuple):
    """How the interval of a figure is computed, and the number of groups that it needs."""

    method: Literal["percentiles", "share", "t", "distance"] = "percentiles"
    """`"share"` is for figures in [0, 1], `"t"` for those that are at least 0."""
    groups: int = MIN_GROUPS
    most: float = math.inf
    """The largest possible value of the figure, for `"t"` and `"distance"`."""


SHARE = Rule("share")
DISTANCE = Rule("distance", 50)
DISTANCE_TO_1 = Rule("distance", 50, 1.0)


def clustered_error(parts: np.ndarray, codes: np.ndarray, groups: int) -> float:
    """The standard error of an estimate; NaN for fewer than two groups.

    Args:
        parts (array): every unit's part of the error of the estimate.
        codes (array of `int`): the group of every unit, from [`group_codes`].
        groups (`int`): number of groups that have a part.
    """
    if groups < 2:
        return math.nan
    return math.sqrt(groups / (groups - 1) * float((np.bincount(codes, parts) ** 2).sum()))


def t_quantile(groups: int, level: float) -> float:
    """How many standard errors an estimate from so many groups exceeds its mean with the probability `level`."""
    [special] = import_extra("scipy.special")
    return float(-special.stdtrit(groups - 1, level))


def t_test_p(ratio: float, groups: int) -> float:
    """Two-sided p-value of an estimate of so many standard errors."""
    [special] = import_extra("scipy.special")
    return float(2 * special.stdtr(groups - 1, -abs(ratio)))


def rate_interval(
    rate: float, error: float, groups: int, units: float = math.inf, *, least: float = 0.0
) -> tuple[float, float]:
    """The 95 % interval of a rate in [0, 1].

    Args:
        rate (`float`): the estimate. It may leave [0, 1] by a correction.
        error (`float`): its standard error, from [`clustered_error`].
        groups, units (`int`): groups, at least two, and units that the rate was estimated from. The units are needed
            for a rate of 0 or 1.
        least (`float`, *optional*, defaults to `0`): least standard error. Where no error was found in G groups, one
            more group may have one: `hypot(rate, 1 - rate) / G`.
    """
    [special] = import_extra("scipy.special")
    [proportion] = import_extra("statsmodels.stats.proportion")
    rate = min(max(rate, 0.0), 1.0)
    error = max(error, least)
    edge = 1 / groups if error == least else 1 / units
    inside = min(max(rate, edge), 1 - edge)
    independent = inside * (1 - inside) / error**2
    alpha = 2 * special.ndtr(-t_quantile(groups, (1 - CONFIDENCE) / 2))
    low, high = proportion.proportion_confint(rate * independent, independent, alpha=alpha, method="wilson")
    return min(float(low), rate), max(float(high), rate)  # Wilson's bounds at 0 and 1 are off by rounding


def expanded(groups: int) -> float:
    """How many standard errors of bootstrap draws of so many groups a 95 % interval has on each side."""
    return math.sqrt(groups / (groups - 1)) * t_quantile(groups, (1 - CONFIDENCE) / 2)


def too_few(groups: int, least: int = MIN_GROUPS) -> str | None:
    """The reason why `groups` groups give no interval; None from `least` groups on."""
    return None if groups >= least else f"needs {least} groups, has {groups}"


def bounds(
    value: float | None,
    draws: np.ndarray,
    groups: int,
    rule: Rule = Rule(),  # noqa: B008 (a constant)
    noise: np.ndarray | None = None,
) -> dict[str, Any]:
    """The 95 % interval of bootstrap draws: `low` and `high`, or `refused` with the reason.

    Args:
        value (`float`, *optional*): the figure; None where it is undefined.
        draws (array): the figure of every resample, NaN where undefined.
        groups (`int`): number of groups that were resampled.
        rule ([`Rule`], *optional*): the method, and the groups that it needs.
        noise (array, *optional*): for a distance, the distance of every resample from the data.
    """
    if (reason := too_few(groups, rule.groups)) is not None:
        return {"refused": reason}
    defined = draws[np.isfinite(draws)]
    if value is None or len(defined) < _DEFINED * len(draws):
        return {"refused": "undefined in many resamples"}
    if np.ptp(defined) == 0:
        return {"refused": EQUAL_DRAWS}
    [special] = import_extra("scipy.special")
    tail = float(special.ndtr(-expanded(groups)))
    if rule.method == "share":
        low, high = rate_interval(value, math.sqrt(groups / (groups - 1)) * float(defined.std()), groups)
        return {"low": low, "high": high}
    if rule.method != "percentiles":
        below = above = expanded(groups) * float(defined.std())
        if noise is not None:
            below = float(np.quantile(noise[np.isfinite(noise)], 1 - 2 * tail))
        return {"low": max(0.0, value - below), "high": min(rule.most, value + above)}
    ends = np.quantile(defined, [tail, 1 - tail])
    return {"low": float(ends[0]), "high": float(ends[1])}


def studentized(
    means: np.ndarray, errors: np.ndarray, within: tuple[float, float] = (-math.inf, math.inf)
) -> dict[str, Any]:
    """The 95 % interval of bootstrap-t, as [`bounds`] gives it, cut off at the limits `within`. The first entries are
    the mean of the data and its standard error, the others those of the resamples."""
    value, error, drawn = means[0], errors[0], errors[1:]
    if errors.max() < EQUAL:
        return {"refused": EQUAL_DRAWS}
    # A resample without an error, such as one of zeros only, is infinitely far away.
    away = means[1:] - value
    ratios = np.where(drawn > EQUAL, away / np.maximum(drawn, EQUAL), np.where(away > 0, math.inf, -math.inf))
    low, high = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    if not math.isfinite(high - low):
        return {"refused": FEW_DIFFER}
    least, most = within
    return {"low": max(least, float(value - high * error)), "high": min(most, float(value - low * error))}
