"""Figures of units in groups, and their 95 % intervals by the cluster bootstrap.

Reads of one target, and targets of one document, are not independent. The bootstrap therefore resamples whole *groups*
with replacement (Davison and Hinkley 1997, section 3.8). A resample is a weight per unit: how often the group of the
unit was drawn. The figure itself is computed in the same way, with all weights 1. The loop is not
`scipy.stats.bootstrap`, which does not resample groups and gives no interval if one resample is undefined. The
interval of the resampled figures is that of `evaluation/intervals.py`.

A figure has no interval with fewer groups than its [`Rule`] requires, which is at least 15, or with groups of too
unequal size, if it is undefined in more than 10 % of the resamples, or if it is equal in all of them; [`Figure`] has
the reason.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import override

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.intervals import EQUAL_DRAWS, Groups, Rule, bounds
from checklist_rewards.validation import np, whole_number

DEFAULT_RESAMPLES = 1000
LEAST_RESAMPLES = 20
"""With fewer, the standard deviation of the resamples has a relative error above 0.16."""
LIBRARIES = ("numpy", "scipy", "statsmodels", "krippendorff")
"""The packages that compute the figures. The extras `evaluation`, `ui` and `encoder` install them."""


class Result(BaseModel):
    """Base of results, which are written as JSON."""

    model_config = ConfigDict(frozen=True)


class Figure(Result):
    """A number with its 95% confidence interval; None where undefined or refused."""

    value: float | None
    low: float | None = None
    high: float | None = None
    refused: str | None = None
    """The reason for a missing interval, such as "needs 15 groups, has 8"; None if no interval is missing."""

    @model_serializer(mode="wrap")
    def _written(self, fields_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without a missing reason. A field's `exclude_if` requires pydantic 2.12; older versions ignore it.
        return {name: value for name, value in fields_of(self).items() if name != "refused" or value is not None}

    def __str__(self) -> str:
        return self.shown()

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The bounds for a comparison with chance. A figure that is equal in all resamples is its own bounds."""
        return (self.value, self.value) if self.refused == EQUAL_DRAWS else (self.low, self.high)

    def shown(self, digits: int = 3) -> str:
        """The number and its interval as text, such as "0.812 [0.790, 0.834]" or "0.812 (needs 15 groups, has 8)";
        "none" if undefined."""
        if self.value is None:
            return "none"
        interval = "" if self.refused is None else f" ({self.refused})"
        if self.low is not None and self.high is not None:
            interval = f" [{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.value:.{digits}f}{interval}"


class Measure(ABC):
    """Named figures computed from the same units."""

    units: int
    """Number of units."""
    rules: Mapping[str, Rule] = {}
    """The rules of the intervals that are not those of means without limits."""

    @abstractmethod
    def replicate(self, weights: np.ndarray) -> Mapping[str, float]:
        """The figures with unit i counted `weights[i]` times, a whole number; NaN where undefined."""

    def noise(self, weights: np.ndarray) -> Mapping[str, float]:
        """For figures that are distances, the distance of a resample from the data."""
        return {}

    def mass(self, name: str) -> np.ndarray:
        """How much every unit counts in a figure, at least 0."""
        return np.ones(self.units)

    def figures(self) -> dict[str, float | None]:
        """The figures over all units; None where undefined, as all are without units."""
        values = self.replicate(np.ones(self.units, dtype=np.int64))
        return {name: float(v) if self.units and math.isfinite(v) else None for name, v in values.items()}


def over(numerator: Any, denominator: Any) -> float:
    """The quotient; NaN unless the denominator is above 0."""
    return float(numerator / denominator) if denominator > 0 else math.nan


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    """The mean of `values`; NaN if the weights sum to 0."""
    return over(weights @ values, weights.sum())


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Settings of the confidence intervals.

    Args:
        resamples (`int`, *optional*, defaults to `1000`): number of resamples, at least 20; 0 turns intervals off.
        seed (`int`, *optional*, defaults to `0`): seed of the resampling.
        progress (callable, *optional*): called with the number of resamples since its last call.
    """

    resamples: int = DEFAULT_RESAMPLES
    seed: int = 0
    progress: Callable[[int], object] | None = None

    def __post_init__(self) -> None:
        whole_number("resamples", self.resamples, at_least=0)
        if 0 < self.resamples < LEAST_RESAMPLES:
            raise SampleError(
                f"resamples={self.resamples} is not allowed; it must be 0, for no intervals, or at least "
                f"{LEAST_RESAMPLES}."
            )
        whole_number("seed", self.seed, at_least=0)

    def figures(self, measure: Measure, groups: Sequence[Hashable]) -> dict[str, Figure]:
        """Compute all figures of a measure with their intervals.

        Args:
            measure ([`Measure`]): the figures to compute.
            groups (sequence, one per unit): units of the same group are resampled together.

        Returns:
            `dict[str, Figure]`: by the names that the measure gives its figures.
        """
        values = measure.figures()
        if not self.resamples:
            return {name: Figure(value=value) for name, value in values.items()}
        codes = group_codes(groups)
        counted = {name: Groups.of(codes, measure.mass(name)) for name in values}
        replicates: dict[str, list[float]] = {name: [] for name in values}
        noise: dict[str, list[float]] = {}
        for weights in self.draws(codes) if any(each.too_few() is None for each in counted.values()) else ():
            replicate = measure.replicate(weights)
            for name, drawn in replicates.items():
                drawn.append(replicate[name])
            for name, distance in measure.noise(weights).items():
                noise.setdefault(name, []).append(distance)
        return {
            name: Figure(
                value=values[name],
                **bounds(
                    values[name],
                    np.array(drawn),
                    counted[name],
                    measure.rules.get(name, Rule()),
                    np.array(noise[name]) if name in noise else None,
                ),
            )
            for name, drawn in replicates.items()
        }

    def mean(
        self,
        values: Sequence[float | bool] | np.ndarray,
        groups: Sequence[Hashable],
        rule: Rule = Rule(),  # noqa: B008 (a constant)
    ) -> Figure:
        """The mean of values, of which NaN is left out. The share of true booleans has the rule [`SHARE`].

        Args:
            values (sequence of `float`): one per unit.
            groups (sequence, one per unit): units of the same group are resampled together.
            rule ([`Rule`], *optional*): the rule of the interval.
        """
        known = [(value, group) for value, group in zip(values, groups, strict=True) if math.isfinite(value)]
        return self.figures(_Mean([value for value, _ in known], rule), [group for _, group in known])["mean"]

    def draws(self, codes: np.ndarray) -> Iterator[np.ndarray]:
        """For every resample, how often each unit is in it.

        Args:
            codes (array of `int`): the group of every unit, from [`group_codes`].
        """
        rng, count = np.random.default_rng(self.seed), int(codes.max()) + 1
        for _ in range(self.resamples):
            yield np.bincount(rng.integers(0, count, count), minlength=count)[codes]
            if self.progress is not None:
                self.progress(1)


def group_codes(groups: Sequence[Hashable]) -> np.ndarray:
    """Integer codes of the groups, one per unit, numbered from 0 in order of first appearance."""
    codes: dict[Hashable, int] = {}
    return np.array([codes.setdefault(group, len(codes)) for group in groups], dtype=np.int64)


class _Mean(Measure):
    def __init__(self, values: Sequence[float], rule: Rule):
        self.values, self.rules, self.units = np.asarray(values, dtype=float), {"mean": rule}, len(values)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        return {"mean": weighted_mean(self.values, weights)}


class Totals(Measure):
    """Figures that are functions of sums over the rows of a file of any size, such as a kappa or a variance component.
    The sums of a bootstrap group are one unit, and a resample is a weighted sum.

    Args:
        vectors (sequence of sequences of `float`, equally long): the sums of every unit.
        compute (callable): called with the sum of the vectors; returns the figures by name, NaN where undefined.
        rules (mapping): rules of the intervals that are not those of means without limits.
        masses (mapping of `str` to array): by figure, how much every unit counts in it.
    """

    def __init__(
        self,
        vectors: Sequence[Sequence[float] | np.ndarray] | np.ndarray,
        compute: Callable[[np.ndarray], Mapping[str, float]],
        rules: Mapping[str, Rule],
        masses: Mapping[str, np.ndarray],
    ):
        self.vectors, self.compute, self.rules = np.asarray(vectors, dtype=float), compute, rules
        self.masses, self.units = masses, len(self.vectors)

    @override
    def mass(self, name: str) -> np.ndarray:
        return self.masses[name]

    @override
    def replicate(self, weights: np.ndarray) -> Mapping[str, float]:
        return self.compute(weights @ self.vectors)
