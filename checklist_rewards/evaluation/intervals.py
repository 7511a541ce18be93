"""Standard errors of dependent units, and intervals and tests that stay right with few groups.

Units of a group are not independent. The error of an estimate is therefore that of sums over groups: with the part of
every unit in the estimate's error, sqrt(G / (G - 1) * sum of squares of the G sums) (Cameron and Miller 2015, section
II), or the standard deviation of bootstrap draws of groups, times sqrt(G / (G - 1)). Its distribution is Student's t
with G - 1 degrees of freedom (scipy), not the normal one. If groups have unequal sizes n, a few of them determine the
error, and G is the effective number of groups (sum of n^2)^2 / (sum of n^4), which is that of Carter, Schnepel and
Steigerwald (2017) for units of a group that are all alike. A figure has one of three intervals:

- A *share* is a figure with two limits, such as an accuracy in [0, 1] or a kappa in [-1, 1]. Its interval is Wilson's
  between these limits, with the number of independent answers that would have the same error, as for surveys (Korn and
  Graubard 1998), and with the quantile of t. So it stays within the limits, and is longer on the side of the middle.
  [`share_interval`] computes it for every share, and makes it longer there if few answers are of the rarer kind.
- A *mean* has the t interval with Hall's correction for skewness (1992), which is that of the draws. Means of values
  that are mostly 0 need it.
- A *distance* (EMD, ECE) is the norm of a difference, and noise makes it larger: draws are larger than the figure,
  and the figure is larger than the truth where that is close to 0. The norm of the draw minus the data bounds this by
  the triangle inequality (as for bands of distribution functions, Bickel and Freedman 1981), so its quantile is the
  distance to the lower end. The upper end is t standard errors away.

Fewer groups than the [`Rule`] of a figure give no interval, and neither do groups that count as fewer than half of
them: [`bounds`] returns the reason instead.
`docs/studies/statistics.md` has the coverage of each interval.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from checklist_rewards.scores import EQUAL
from checklist_rewards.scores.tally import MIN_GROUPS, share_interval
from checklist_rewards.validation import import_extra, np

EQUAL_DRAWS = "equal in all resamples"
"""The reason where a figure is the same in all resamples and has no interval."""
_TAIL = 0.025
_DEFINED = 0.9
_EFFECTIVE = 0.5
"""Effective groups for each group that an interval needs. With fewer, its coverage is not close to 95 %."""


class Rule(NamedTuple):
    """How the interval of a figure is computed, and the number of groups that it needs."""

    method: Literal["mean", "share", "distance"] | None = "mean"
    """None: no interval."""
    groups: int = MIN_GROUPS
    least: float = -math.inf
    most: float = math.inf
    """The smallest and the largest possible value of the figure."""


SHARE = Rule("share", least=0.0, most=1.0)
CORRELATION = Rule("share", least=-1.0, most=1.0)
"""For kappa and alpha too."""
DISTANCE = Rule("distance", 200, 0.0)
DISTANCE_TO_1 = Rule("distance", 200, 0.0, 1.0)
NO_INTERVAL = Rule(None)
"""For p-values, and for the Kolmogorov-Smirnov distance, of which no method covered 0.93 to 0.97."""


class Groups(NamedTuple):
    """The groups that an estimate is computed from."""

    number: int
    effective: float
    """The number of equally large groups that would determine its error as well."""

    @classmethod
    def of(cls, codes: np.ndarray, mass: np.ndarray | None = None) -> Groups:
        """The groups of units.

        Args:
            codes (array of `int`): the group of every unit, from [`group_codes`].
            mass (array, *optional*): how much every unit counts in the estimate, at least 0. Defaults to equally much.
        """
        squares = np.bincount(codes, mass) ** 2.0
        if not squares.any():
            return cls(0, 0.0)
        squares /= squares.max()  # fourth powers of small numbers would be 0
        return cls(int((squares > 0).sum()), round(float(squares.sum() ** 2 / (squares**2).sum()), 9))

    def too_few(self, least: int = MIN_GROUPS) -> str | None:
        """The reason why they give no interval; None from `least` groups on that count as at least half as many."""
        if self.number < least:
            return f"needs {least} groups, has {self.number}"
        if self.effective < least * _EFFECTIVE:
            return f"needs {least} groups of similar size, has {self.number} that count as {self.effective:.1f}"
        return None


def clustered_error(parts: np.ndarray, codes: np.ndarray, groups: float) -> float:
    """The standard error of an estimate; NaN for one effective group.

    Args:
        parts (array): every unit's part of the error of the estimate.
        codes (array of `int`): the group of every unit, from [`group_codes`].
        groups (`float`): effective number of groups that have a part.
    """
    if groups <= 1:
        return math.nan
    return math.sqrt(groups / (groups - 1) * float((np.bincount(codes, parts) ** 2).sum()))


def t_quantile(groups: float, level: float) -> float:
    """How many standard errors an estimate from so many groups exceeds its mean with the probability `level`."""
    [special] = import_extra("scipy.special")
    return float(-special.stdtrit(groups - 1, level))


def t_test_p(ratio: float, groups: float) -> float:
    """Two-sided p-value of an estimate of so many standard errors."""
    [special] = import_extra("scipy.special")
    return float(2 * special.stdtr(groups - 1, -abs(ratio)))


def rate_interval(
    rate: float, error: float, groups: float, units: int | None = None, *, least: float = 0.0
) -> tuple[float, float]:
    """The 95 % interval of a rate in [0, 1].

    Args:
        rate (`float`): the estimate. It may leave [0, 1] by a correction.
        error (`float`): its standard error, from [`clustered_error`].
        groups (`float`): effective number of groups that the rate was estimated from, above 1.
        units (`int`, *optional*): number of units. A rate of 0 or 1 counts as one with one other unit, by default
            as one that is a standard error away.
        least (`float`, *optional*, defaults to `0`): least standard error. Where no error was found in G groups, one
            more group may have one: `hypot(rate, 1 - rate) / G`.
    """
    rate = min(max(rate, 0.0), 1.0)
    error = max(error, least)
    edge = 1 / groups if error == least else 1 / units if units else min(error, 0.5)
    inside = min(max(rate, edge), 1 - edge)
    independent = inside / error * ((1 - inside) / error)
    low, high = share_interval(rate, independent, groups, lambda degrees: t_quantile(degrees + 1, _TAIL))
    return min(low, rate), max(high, rate)  # the rate that Wilson's interval contains is off by rounding


def bounds(
    value: float | None,
    draws: np.ndarray,
    groups: Groups,
    rule: Rule = Rule(),  # noqa: B008 (a constant)
    noise: np.ndarray | None = None,
) -> dict[str, Any]:
    """The 95 % interval of bootstrap draws: `low` and `high`, or `refused` with the reason. An undefined figure has
    neither.

    Args:
        value (`float`, *optional*): the figure; None where it is undefined.
        draws (array): the figure of every resample, NaN where undefined.
        groups ([`Groups`]): the groups that were resampled.
        rule ([`Rule`], *optional*): the method, and the groups that it needs.
        noise (array, *optional*): for a distance, the distance of every resample from the data.
    """
    if value is None:
        return {}
    if rule.method is None:
        return {"refused": "no interval"}
    if (reason := groups.too_few(rule.groups)) is not None:
        return {"refused": reason}
    defined = draws[np.isfinite(draws)]
    if len(defined) < _DEFINED * len(draws):
        return {"refused": "undefined in many resamples"}
    count, least, most = groups.effective, rule.least, rule.most
    widened, quantile = math.sqrt(count / (count - 1)), t_quantile(count, _TAIL)
    error = widened * float(defined.std())
    if error <= EQUAL * np.abs(defined).max():
        return {"refused": EQUAL_DRAWS}
    if rule.method == "share":
        room = most - least
        low, high = (least + room * end for end in rate_interval((value - least) / room, error / room, count))
        return {"low": low, "high": high}
    below = above = quantile * error
    if rule.method == "mean":
        below, above = (abs(end) * error for end in _for_skewness(quantile, defined))
    elif noise is not None:
        [special] = import_extra("scipy.special")
        level = 1 - 2 * special.ndtr(-widened * quantile)  # draws vary too little, by (G - 1) / G
        below = float(np.quantile(noise[np.isfinite(noise)], level, method="weibull"))
    return {"low": max(least, value - below), "high": min(most, value + above)}


def _for_skewness(quantile: float, draws: np.ndarray) -> tuple[float, float]:
    """The standard errors from a mean to the ends of its interval, by Hall's cubic transformation of t."""
    # Not by scipy.stats, whose import takes longer than all draws.
    skewness = float((((draws - draws.mean()) / draws.std()) ** 3).mean())
    third = skewness / 3 * max(0.0, 1 - 6 / (len(draws) * skewness**2 or 1.0))  # few draws are skewed by chance
    if not third:
        return quantile, -quantile
    low, high = ((np.cbrt(1 + 3 * third * (end - third / 2)) - 1) / third for end in (quantile, -quantile))
    return float(low), float(high)
