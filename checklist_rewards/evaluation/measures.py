"""Measures of agreement, with intervals by `evaluation/bootstrap.py`.

Two raters answer items ([`Categories`]) or give numbers ([`Numbers`]), a judge and labels say which of two targets of
one input is better ([`Preferences`]), and any number of judges answer items ([`Raters`]).

Kappa and Fleiss' kappa are those of statsmodels, alpha is that of krippendorff, and correlations and distances of
distributions are those of numpy and scipy. Cases that these libraries refuse or answer with a warning are NaN here,
which [`Measure.figures`] reports as None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations

from typing_extensions import override

from checklist_rewards.evaluation.bootstrap import Measure, group_codes, over, weighted_mean
from checklist_rewards.evaluation.intervals import (
    CORRELATION,
    DISTANCE,
    NO_INTERVAL,
    SHARE,
    Groups,
    Rule,
    clustered_error,
    t_test_p,
)
from checklist_rewards.scores import EQUAL
from checklist_rewards.validation import import_extra, np

CATEGORICAL = ("accuracy", "kappa", "weighted_kappa", "alpha", "interval_alpha")
AGAINST_LABELS = ("precision", "recall", "f1", "phi")


def correlation(one: np.ndarray, other: np.ndarray, least: int = 2) -> float | None:
    """Pearson's r; None for fewer than `least` pairs or if a side is constant."""
    # Not by scipy, whose p-values take most of the time: a file can have tens of thousands of pairs of items.
    if len(one) < least or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1.0, 1.0))


def tau(one: np.ndarray, other: np.ndarray) -> float:
    """Kendall's tau-b of two rankings of the same units; NaN if one of them is constant."""
    [stats] = import_extra("scipy.stats")
    # The p-value is not used, and "asymptotic" is its cheapest method; that method fails for two units.
    method = "asymptotic" if len(one) > 2 else "exact"
    return float(stats.kendalltau(one, other, method=method).statistic)


def standardized(values: np.ndarray) -> np.ndarray:
    """The values with mean 0 and standard deviation 1; all 0 if they are equal."""
    return (values - values.mean()) / (values.std() or 1.0)


class Categories(Measure):
    """Agreement of two raters on items with the same possible answers. All figures are computed from the weighted
    confusion matrix, which is much faster than from the answers.

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

    rules = {
        **dict.fromkeys(("accuracy", "precision", "recall", "f1"), SHARE),
        **dict.fromkeys(("kappa", "weighted_kappa", "alpha", "interval_alpha", "phi"), CORRELATION),
    }

    def __init__(
        self,
        one: Sequence[str],
        other: Sequence[str],
        values: Mapping[str, float | None],
        positive: str | None = None,
    ):
        self.labels, self.units = list(values), len(one)
        codes = {label: code for code, label in enumerate(self.labels)}
        self.one = np.array([codes[label] for label in one], dtype=np.int64)
        self.other = np.array([codes[label] for label in other], dtype=np.int64)
        self.valued = [code for code, value in enumerate(values.values()) if value is not None]
        self.values = np.array([value for value in values.values() if value is not None], dtype=float)
        self.positive = None if positive is None else codes[positive]
        self._distances = np.subtract.outer(self.values, self.values) ** 2
        each = np.eye(len(self.labels), dtype=np.int64)
        # For each cell of the table, how many of the two raters give each answer.
        self._answers = (each[:, None] + each).reshape(-1, len(self.labels))

    @property
    def confusion(self) -> np.ndarray:
        """Confusion matrix of counts, in the order of `labels`: `one` in rows, `other` in columns."""
        return self._table(np.ones(self.units)).astype(int)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        table = self._table(weights)
        answers = np.repeat(self._answers, table.astype(np.int64).ravel(), axis=0)
        figures = {
            "accuracy": over(np.trace(table), table.sum()),
            "kappa": kappa_of(table),
            "weighted_kappa": kappa_of(table[np.ix_(self.valued, self.valued)], self._distances),
            "alpha": alpha_of(answers),
            "interval_alpha": alpha_of(answers[:, self.valued], self.values),
        }
        if self.positive is not None:
            # Not by scikit-learn: its phi of a constant rater is 0, and it takes milliseconds per resample.
            yes = self.positive
            both, judged_yes, labelled_yes = table[yes, yes], table[yes].sum(), table[:, yes].sum()
            total = table.sum()
            spread = math.sqrt(judged_yes * labelled_yes * (total - judged_yes) * (total - labelled_yes))
            figures |= {
                "precision": over(both, judged_yes),
                "recall": over(both, labelled_yes),
                "f1": over(2 * both, judged_yes + labelled_yes),
                "phi": over(total * both - judged_yes * labelled_yes, spread) if len(table) == 2 else math.nan,
            }
        return figures

    def _table(self, weights: np.ndarray) -> np.ndarray:
        size = len(self.labels)
        return np.bincount(self.one * size + self.other, weights, size * size).reshape(size, size)


def kappa_of(table: np.ndarray, distances: np.ndarray | None = None) -> float:
    """Cohen's kappa of a square table of counts; NaN for an empty table, or if only one answer occurs.

    Args:
        table (array of k x k): counts of answers, one rater in rows, the other in columns.
        distances (array of k x k, *optional*): distances of the answers. By default, all different answers are equally
            distant.
    """
    if not table.sum():
        return math.nan
    [raters] = import_extra("statsmodels.stats.inter_rater")
    distances = 1 - np.eye(len(table)) if distances is None else distances
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(raters.cohens_kappa(table, weights=distances, return_results=False))


def alpha_of(counts: np.ndarray, values: np.ndarray | None = None) -> float:
    """Krippendorff's alpha; NaN if no unit has two answers, or if only one answer occurs.

    Args:
        counts (array of units x k): how many raters gave each answer.
        values (array of k, *optional*): the values of the answers, whose squared distances are used. By default, all
            different answers are equally distant.
    """
    if counts.shape[1] < 2 or not (counts.sum(1) > 1).any():
        return math.nan
    [krippendorff] = import_extra("krippendorff")
    level = "nominal" if values is None else "interval"
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(krippendorff.alpha(value_counts=counts, value_domain=values, level_of_measurement=level))


CORRELATIONS = ("pearson", "spearman", "kendall")
"""The figures that do not depend on the scale of either rater."""
NUMERICAL = ("pearson", "spearman", "kendall", "rmse", "mae", "bias", "emd", "ks", "auc")


class Numbers(Measure):
    """Agreement of two raters' numbers for the same units.

    Args:
        one, other (sequence of `float`, equally long): the numbers of each rater.
        only (sequence of `str`, *optional*, defaults to all): the figures to compute. A resample of all figures takes
            milliseconds, one of the AUC alone a fraction of it.

    Figures:
        pearson, spearman, kendall (tau-b): None if a rater is constant or there are fewer than two units.
        rmse, mae: of `one - other`.
        bias: mean of `one - other`.
        emd: earth mover's distance of the two distributions (Wasserstein-1), in the unit of the numbers.
        ks: largest distance of the two cumulative distributions (Kolmogorov-Smirnov), in [0, 1]; without an interval.
        auc: area under the ROC curve: the probability that `one` ranks a unit labelled 1 by `other` above a unit
            labelled 0, ties counted half. None unless `other` contains both 0 and 1 and no other values.
    """

    def __init__(self, one: Sequence[float], other: Sequence[float], only: Sequence[str] = NUMERICAL):
        self.one, self.other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
        self.only, self.units = only, len(one)
        pooled = np.concatenate([self.one, self.other])
        self._order = np.argsort(pooled, kind="stable")
        self._steps = np.diff(pooled[self._order])
        self._binary = bool(np.isin(self.other, (0.0, 1.0)).all())
        unit = bool(((pooled >= 0) & (pooled <= 1)).all())
        self.rules = {
            **dict.fromkeys(CORRELATIONS, CORRELATION),
            **dict.fromkeys(("rmse", "mae"), SHARE if unit else Rule(groups=50, least=0.0)),
            **{"emd": DISTANCE, "ks": NO_INTERVAL, "auc": SHARE},
        }

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        units = np.repeat(np.arange(len(weights)), weights)
        if not len(units):
            return dict.fromkeys(self.only, math.nan)
        [stats] = import_extra("scipy.stats")
        one, other = self.one[units], self.other[units]
        error = one - other
        distances = self._distances(weights, weights.sum())
        varied = np.ptp(one) > 0 and np.ptp(other) > 0
        compute: dict[str, Callable[[], float]] = {
            "pearson": lambda: np.corrcoef(one, other)[0, 1] if varied else math.nan,
            "spearman": lambda: stats.spearmanr(one, other).statistic if varied else math.nan,
            "kendall": lambda: tau(one, other) if varied else math.nan,
            "rmse": lambda: math.sqrt((error**2).mean()),
            "mae": lambda: np.abs(error).mean(),
            "bias": lambda: error.mean(),
            "emd": lambda: distances["emd"],
            "ks": lambda: distances["ks"],
            "auc": lambda: _auc(one[other == 1], one[other == 0]) if self._binary else math.nan,
        }
        with np.errstate(divide="ignore", invalid="ignore"):
            return {name: float(compute[name]()) for name in self.only}

    @override
    def noise(self, weights: np.ndarray) -> dict[str, float]:
        total, units = weights.sum(), len(weights)
        return {"emd": self._distances(weights * units - total, total * units)["emd"]} if "emd" in self.only else {}

    def _distances(self, weights: np.ndarray, total: int) -> dict[str, float]:
        """EMD and KS of the numbers with whole weights over a total, which may be negative."""
        # Not by scipy, which has no distance of a resample from the data.
        gaps = np.abs(np.cumsum(np.concatenate([weights, -weights])[self._order])[:-1]) / total
        return {"emd": float(gaps @ self._steps), "ks": float(gaps[self._steps > 0].max(initial=0.0))}


def _auc(positive: np.ndarray, negative: np.ndarray) -> float:
    if not len(positive) or not len(negative):
        return math.nan
    [stats] = import_extra("scipy.stats")
    # The area is the Mann-Whitney U per pair. `mannwhitneyu` of scipy takes ten times as long, for its p-value.
    ranks = stats.rankdata(np.concatenate([positive, negative]))[: len(positive)]
    return float((ranks.sum() - len(ranks) * (len(ranks) + 1) / 2) / (len(positive) * len(negative)))


class Preferences(Measure):
    """Agreement of judged and true score differences of pairs. The sign of a difference is a win, a tie or a loss of
    the first target. Where the labels are not tied, the better target is the *chosen* one.

    Args:
        judged, truth (sequence of `float`, one per pair): score of the first target minus that of the second.
        groups (sequence, one per pair, *optional*): pairs of a group are dependent. Defaults to independent pairs.

    Figures:
        pld_0, pld_1, pld_2: fraction of the pairs with this pairwise label distance (Qin et al. 2024, used by TICK,
            section 3.2): 0 for equal outcomes, 1 if one of the two is a tie, 2 for opposite ones. wpld: its mean.
        wins, losses, ties: over the pairs that the labels do not tie, the fraction where the judge scores the chosen
            target above, below or equal to the rejected one. These and the following are those of AutoChecklist's
            table 3.
        difference: mean of score(chosen) - score(rejected).
        cohens_d: `difference` divided by its standard deviation over pairs (Cohen's d_z); None if that is 0.
        t_test_p: two-sided p-value of the paired t-test of `difference`, with its error over groups; None for fewer
            than two groups, or if that error is 0.
    """

    rules = {
        **dict.fromkeys(("pld_0", "pld_1", "pld_2", "wins", "losses", "ties"), SHARE),
        "wpld": Rule("share", least=0.0, most=2.0),
        "t_test_p": NO_INTERVAL,
    }

    def __init__(self, judged: Sequence[float], truth: Sequence[float], groups: Sequence[Hashable] | None = None):
        judged_, truth_ = np.asarray(judged, dtype=float), np.asarray(truth, dtype=float)
        label, prediction = _sign(truth_), _sign(judged_)
        self.units = len(label)
        self._distance = np.abs(label - prediction)
        self._decided = label != 0
        self._outcome = label * prediction
        self._difference = np.where(self._decided, label * judged_, 0.0)
        self._groups = np.arange(len(label)) if groups is None else group_codes(groups)

    @property
    def decided(self) -> int:
        """Number of pairs that the labels do not tie."""
        return int(self._decided.sum())

    @override
    def figures(self) -> dict[str, float | None]:
        figures = super().figures()
        mean = figures["difference"]
        clusters = Groups.of(self._groups, self._decided).effective
        if mean is not None and figures["cohens_d"] is not None and clusters > 1:
            parts = self._decided * (self._difference - mean) / self.decided
            error = clustered_error(parts, self._groups, clusters)
            if error > EQUAL * np.abs(self._difference).max():  # rounding gives sums that are equal on paper an error
                figures["t_test_p"] = t_test_p(mean / error, clusters)
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
            "cohens_d": mean / spread if spread > EQUAL else math.nan,
            "t_test_p": math.nan,
        }


def pairs_within(keys: Sequence[str]) -> list[tuple[int, int]]:
    """All index pairs i < j with `keys[i] == keys[j]`, grouped by key: the pairs of targets of one input."""
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return [pair for members in places.values() for pair in combinations(members, 2)]


def connected(groups: Sequence[str], pairs: Sequence[tuple[int, int]] | np.ndarray) -> list[str]:
    """The group of every pair, given as two places in `groups`: groups that a pair connects are one, so that no unit
    is in two."""
    if not len(pairs):
        return []
    sparse, graphs = import_extra("scipy.sparse", "scipy.sparse.csgraph")
    one, other = group_codes(groups)[np.asarray(pairs)].T
    size = len(groups)
    _, parts = graphs.connected_components(sparse.coo_array((np.ones(len(one)), (one, other)), shape=(size, size)))
    return [str(part) for part in parts[one]]


def _sign(differences: np.ndarray) -> np.ndarray:
    # Scores are floating-point sums, so mathematically equal scores may differ in the last digit.
    return np.where(np.abs(differences) <= EQUAL, 0, np.sign(differences))


class Raters(Measure):
    """Agreement of several judges on items with the same possible answers.

    Args:
        answers (sequence of sequences): for every unit the answer of each judge, None if unanswered.
        values (mapping of `str` to `float` or None): the possible answers and their values, in [0, 1].

    Figures:
        alpha: Krippendorff's alpha, nominal (2011), over units answered by two judges or more; None if only one
            answer occurs.
        interval_alpha: alpha with squared distances of the values, without abstentions.
        fleiss_kappa: Fleiss' kappa (1971), over units answered by all judges; None for fewer than two judges, or if
            only one answer occurs.
    """

    rules = dict.fromkeys(("alpha", "interval_alpha", "fleiss_kappa"), CORRELATION)

    def __init__(self, answers: Sequence[Sequence[str | None]], values: Mapping[str, float | None]):
        codes = {label: code for code, label in enumerate(values)}
        self.units, self.judges = len(answers), len(answers[0]) if answers else 0
        self.counts = np.zeros((len(answers), len(codes)), dtype=np.int64)
        for unit, row in enumerate(answers):
            for answer in row:
                if answer is not None:
                    self.counts[unit, codes[answer]] += 1
        self._valued = [code for code, value in enumerate(values.values()) if value is not None]
        self.values = np.array([value for value in values.values() if value is not None], dtype=float)

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        counts = np.repeat(self.counts, weights, axis=0)
        return {
            "alpha": alpha_of(counts),
            "interval_alpha": alpha_of(counts[:, self._valued], self.values),
            "fleiss_kappa": self._fleiss(counts[counts.sum(1) == self.judges]),
        }

    def _fleiss(self, complete: np.ndarray) -> float:
        if not len(complete):
            return math.nan
        [raters] = import_extra("statsmodels.stats.inter_rater")
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(raters.fleiss_kappa(complete))
