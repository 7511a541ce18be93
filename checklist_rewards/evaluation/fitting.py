"""Item weights from labels: ratings of scored texts, or preferences between them.

The expected score of a text is sum(w v) / sum(positive w) over its answered items, with soft values v in [0, 1]. The
weights are chosen so that it follows the labels y. To first order in the weights around the present ones, the score
is linear: its features are z_k = w_k (v_k - m) / sum(positive w), with the present weights w_k and the mean score m,
and without m for penalties. The factors f_k >= 0 on the present weights minimize

    |y - mean(y) - (Z - mean(Z)) f|^2 + strength * (trace(Z'Z) / K) * sum((f_k - mean(f))^2)

so they shrink to a common factor, which is the present weights, and not to 0. Factors are never negative: a penalty
stays a penalty. For preferences, Z is the difference of the chosen and the rejected text, and the first term is the
logistic loss of the model of Bradley and Terry (1952), the sum of log(1 + exp(-Z f)); squared errors would punish
pairs that are far apart in the right order. The second term is then a hundredth of the above: this loss is flatter.

Squared errors are minimized by `scipy.optimize.nnls`, the solver of scikit-learn's `LinearRegression(positive=True)`,
without the cost of its estimators for problems of this size, and the logistic loss by L-BFGS-B. The strength is the
one with the lowest loss in cross-validation over groups; "infinite" is one of them. All figures are *out-of-fold*:
every text is scored by weights that were fitted, with their strength, on other groups. Groups whose texts are compared
in a preference are one group.

A weight belongs to an item, if the items repeat over texts, or else to a category. Items that are too rare and items
without a category keep their weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal, get_args

from typing_extensions import override

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Measure, group_codes, over, weighted_mean
from checklist_rewards.evaluation.intervals import CORRELATION, SHARE, Groups, Rule, bounds, t_quantile
from checklist_rewards.evaluation.measures import connected
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.scores import EQUAL, ItemScore
from checklist_rewards.validation import import_extra, np, one_of

By = Literal["item", "category"]
BY: tuple[str, ...] = get_args(By)
MIN_LABELS, MIN_GROUPS = 20, 5
"""Fewer labels, or labels of fewer groups, are refused. A fit that is tested by its interval needs more groups."""
MIN_ROWS = 10
"""An item or category with fewer labelled texts keeps its weight."""
LEAST_FACTOR = 0.1
"""Least factor of a category relative to the mean, so that no checklist is left without an item that counts."""
STRENGTHS = (math.inf, *(10 ** (power / 2) for power in range(6, -5, -1)))
"""From the strongest shrinkage, which gives the present weights."""
FOLDS = 5
SMALL_GAIN = 0.02
_RIDGE = 1e-4
_DETECTABLE = 1.96 + 0.84
"""Standard errors between 0 and an effect that a 95 % interval excludes from 0 in 80 % of the samples."""


@dataclass(frozen=True)
class LabelledScores:
    """Scored texts with their ratings or preferences, as arrays.

    `earned` and `counts` have one row per text and one column per weight: sums over its answered items of the relative
    weight times the value, of penalties negative, and of the relative weight, of the items in the denominator. The
    relative weight is 1 by item; by category, the item's absolute weight divided by the mean of its category in this
    checklist.
    """

    by: By
    names: list[str | None]
    """Item ids or categories; None for those that keep their weights."""
    questions: list[str]
    """What is shown for a name: the question or the category."""
    present: np.ndarray
    """Mean absolute weight of each name."""
    signs: np.ndarray
    earned: np.ndarray
    counts: np.ndarray
    texts: np.ndarray
    """Number of texts of each name."""
    bases: np.ndarray
    """1 for a checklist of penalties only, else 0."""
    labels: np.ndarray
    """One per text; for preferences, 1 per pair."""
    groups: list[str]
    """One per label. Groups of texts that a preference connects are one group."""
    pairs: np.ndarray | None = None
    """For preferences: indices of the chosen and the rejected text, as an array of pairs x 2."""

    def scores(self, weights: np.ndarray) -> np.ndarray:
        """Expected score of every text under absolute weights; the mean score for a text in which nothing counts."""
        totals = self.counts @ weights
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.clip(self.bases + self.earned @ weights / totals, 0, 1)
        known = np.isfinite(found)
        return np.where(known, found, found[known].mean() if known.any() else 0.0)

    def judged(self, weights: np.ndarray) -> np.ndarray:
        """Per label, the score of the text, or that of the chosen text minus that of the rejected one."""
        return self._per_label(self.scores(weights))

    @property
    def features(self) -> np.ndarray:
        """The features Z of every label; see the module docstring."""
        middle = self.scores(self.present).mean()
        centred = self.earned - middle * self.counts * (1 - self.bases)[:, None]
        totals = self.counts @ self.present
        return self._per_label(self.present * centred / np.where(totals > 0, totals, 1.0)[:, None])

    def weights(self, factors: np.ndarray) -> np.ndarray:
        """Absolute weights of some factors, in the unit of the present weights."""
        unit = factors[-1] if self.names[-1] is None else over(self.present @ factors, self.present.sum())
        return self.present * factors / unit if unit > 0 else self.present

    def _per_label(self, values: np.ndarray) -> np.ndarray:
        return values if self.pairs is None else values[self.pairs[:, 0]] - values[self.pairs[:, 1]]


def labelled_scores(
    texts: Sequence[ScoredText],
    *,
    by: By | None = None,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> LabelledScores:
    """Collect labelled texts. Left out are texts without an answer, texts without a score or with an unanswered
    penalty, and texts that failed a required item, whose score is the lowest under any weights.

    Args:
        texts (sequence of [`ScoredText`]): the texts, with a number as the label of each. Ignored for `pairs`.
        by (`str`, *optional*): `"item"` or `"category"`. Defaults to items, if most repeat, else categories.
        pairs (sequence of pairs of `int`, *optional*): preferences: indices of the chosen and the rejected text.

    Raises:
        SampleError: If the labels are not numbers, or there are too few; if items do not repeat and have no
            categories.
    """
    labelled = (place for place, row in enumerate(texts) if row.labels is not None)
    wanted = set(labelled) if pairs is None else {place for pair in pairs for place in pair}
    used: list[tuple[int, ScoredText, list[tuple[str, ItemScore]]]] = []
    for place, row in enumerate(texts):
        label, score = row.labels, row.judged
        if pairs is None and label is not None and not isinstance(label, int | float):
            raise SampleError(
                f"{row.where}: the label has one value per item; weights are fitted to one number per text, or to "
                "preferences (--pairs)."
            )
        lines = [(key, line) for key, line in zip(row.keys, score.items, strict=True) if line.soft is not None]
        scored = None not in (score.primary_score, score.expected_score) and not score.no_answer
        if scored and score.required_passed is not False and place in wanted:
            used.append((place, row, lines))
    by, names, questions = _names(used, by)
    index = {name: column for column, name in enumerate(names)}
    size = len(used), len(names)
    earned, counts, bases = np.zeros(size), np.zeros(size), np.zeros(size[0])
    weights: list[list[float]] = [[] for _ in names]
    signs, occurring = np.ones(len(names)), np.zeros(len(names))
    for number, (_, row, lines) in enumerate(used):
        of = [index.get(key if by == "item" else line.category, index.get(None, -1)) for key, line in lines]
        means = {
            column: fmean(abs(line.weight) for (_, line), its in zip(lines, of, strict=True) if its == column)
            for column in of
        }
        occurring[list(means)] += 1
        bases[number] = all(line.weight <= 0 for line in row.judged.items)
        for (_, line), column in zip(lines, of, strict=True):
            weight, value = line.weight, line.soft or 0.0
            relative = abs(weight) / means[column] if means[column] else 0.0
            weights[column].append(abs(weight))
            earned[number, column] += math.copysign(relative * value, weight)
            counts[number, column] += relative * (bases[number] if weight < 0 else 1)
            if weight < 0 and by == "item":
                signs[column] = -1
    places = {place: number for number, (place, *_) in enumerate(used)}
    kept = None if pairs is None else np.array([(places[a], places[b]) for a, b in pairs if {a, b} <= places.keys()])
    of_labels: Any = range(len(used)) if kept is None else kept[:, 0] if len(kept) else []
    groups = [row.group for _, row, _ in used]
    found = LabelledScores(
        by=by,
        names=names,
        questions=questions,
        present=np.array([fmean(each) if each else 0.0 for each in weights]),
        signs=signs,
        earned=earned,
        counts=counts,
        texts=occurring,
        bases=bases,
        labels=np.ones(len(of_labels)) if pairs is not None else np.array([row.labels for _, row, _ in used], float),
        groups=groups if kept is None else connected(groups, kept),
        pairs=kept,
    )
    _enough(found, texts[0].where.rpartition(",")[0])
    return found


def _names(
    used: Sequence[tuple[int, ScoredText, list[tuple[str, ItemScore]]]], by: By | None
) -> tuple[By, list[str | None], list[str]]:
    """Items or categories that occur in enough texts to have weights of their own, and None for the others."""
    items: Counter[str | None] = Counter()
    categories: Counter[str | None] = Counter()
    shown: dict[str | None, str] = {}
    for _, _, lines in used:
        items.update(key for key, _ in lines)
        categories.update(list(dict.fromkeys(line.category for _, line in lines)))
        shown.update({key: line.question for key, line in lines})
    frequent = [name for name, count in items.items() if count >= MIN_ROWS]
    if by is not None:
        one_of("by", by, BY)
    elif 2 * sum(items[name] for name in frequent) >= items.total():
        by = "item"
    else:
        by = "category"
    counts = items if by == "item" else categories
    names = [name for name, count in counts.items() if name is not None and count >= MIN_ROWS]
    if len(names) + (len(names) < len(counts)) < 2:
        advice = (
            "fewer than two categories have enough texts; tag the items with the refiner `tagger`"
            if by == "category"
            else "fewer than two items have enough texts; fit weights by category"
        )
        raise SampleError(
            f"weights by {by} need two that occur in {MIN_ROWS} labelled texts or more each, and {len(used)} texts "
            f"have {len(counts)}: {advice}."
        )
    rest = [] if len(names) == len(counts) else [None]
    return (
        by,
        [*names, *rest],
        [*(shown.get(name, str(name)) if by == "item" else str(name) for name in names), *map(str, rest)],
    )


def _enough(labelled: LabelledScores, where: str) -> None:
    count, groups = len(labelled.labels), len(set(labelled.groups))
    what = "labelled texts" if labelled.pairs is None else "pairs"
    if count < MIN_LABELS or groups < MIN_GROUPS:
        raise SampleError(
            f"{where} has {count} {what} in {groups} groups; fitting weights needs at least {MIN_LABELS} in "
            f"{MIN_GROUPS} groups."
        )
    if labelled.pairs is None and np.ptp(labelled.labels) == 0:
        raise SampleError(f"{where}: all {count} labels are {labelled.labels[0]:g}; nothing can be learned from them.")


@dataclass(frozen=True, slots=True)
class FittedWeight:
    """The weight of one item or category."""

    name: str
    question: str
    """The question, or the category."""
    before: float
    """The present weight; by category, the mean absolute weight of its items."""
    weight: float
    low: float | None
    high: float | None
    """95 % interval by the group bootstrap with the least shrinkage, extended to the weight."""
    adds: float
    """Out-of-fold figure of the fitted weights minus the same with this weight 0."""
    texts: int


@dataclass(frozen=True)
class Fit:
    """Fitted weights with their out-of-fold figures."""

    by: By
    measure: str
    """`"correlation"` (Pearson) of scores and ratings, or `"in order"`: fraction of pairs in which the chosen text
    scores higher, ties counted half."""
    labels: int
    groups: int
    strength: float
    """Of the chosen shrinkage; infinite for the present weights."""
    weights: list[FittedWeight]
    figures: dict[str, Figure]
    """`present`, `fitted`, `gain` (their difference), out-of-fold, and `train`: fitted and measured on all labels."""
    needed: int | None = None
    """Labels with which the gain would be shown. None if it is shown, if more labels are not known to help, or if the
    gain has no interval: `figures["gain"].refused` is the reason, and `Bootstrap(0)` gives none."""

    def dumped(self) -> dict[str, Any]:
        """The content of a weights file, which [`Weights.load`] reads."""
        return {
            "weights": {line.name: line.weight for line in self.weights},
            "by": self.by,
            "measure": self.measure,
            "labels": self.labels,
            "groups": self.groups,
            "strength": None if math.isinf(self.strength) else self.strength,
            "figures": {name: figure.model_dump() for name, figure in self.figures.items()},
            "items": [asdict(line) for line in self.weights],
        }


def fit_weights(labelled: LabelledScores, bootstrap: Bootstrap | None = None) -> Fit:
    """Fit the weights, and measure them on held-out groups.

    Args:
        labelled ([`LabelledScores`]): the labelled texts.
        bootstrap ([`Bootstrap`], *optional*): the intervals; its seed also draws the folds.

    Raises:
        SampleError: If nothing can be learned: the scores do not follow the labels, or the fitted weights follow them
            no better than the present ones on held-out groups. The message has the number of labels that would be
            needed.
    """
    bootstrap = bootstrap or Bootstrap()
    fitting = _Fitting(labelled, bootstrap.seed)
    every = np.ones(len(labelled.labels))
    present, folds = labelled.judged(labelled.present), fitting.by_fold()
    compared = Compared(labelled.labels, present, fitting.held_out(folds), pairs=labelled.pairs is not None)
    figures = bootstrap.figures(compared, labelled.groups)
    needed = _checked(labelled, compared, figures, fitting.groups)
    strength = fitting.strength(every)
    weights = labelled.weights(fitting.factors(every, strength))
    figures["train"] = Figure(value=compared.of(labelled.judged(weights), every))
    # Shrinkage moves weights towards the present ones, so that intervals with it contain the truth less often.
    free, draws = labelled.weights(fitting.factors(every, STRENGTHS[-1])), fitting.draws(STRENGTHS[-1], bootstrap)
    lines = []
    for place, name in enumerate(labelled.names):
        if name is None:
            continue
        sign, without = labelled.signs[place], np.arange(len(weights)) != place
        left = fitting.held_out(folds, without)
        own = float(sign * weights[place])
        ends = {} if draws is None else bounds(sign * free[place], sign * draws[:, place], fitting.groups)
        low, high = ends.get("low"), ends.get("high")
        lines.append(
            FittedWeight(
                name,
                labelled.questions[place],
                float(sign * labelled.present[place]),
                own,
                None if low is None else min(low, own),
                None if high is None else max(high, own),
                adds=compared.of(compared.fitted, every) - compared.of(left, every),
                texts=int(labelled.texts[place]),
            )
        )
    return Fit(labelled.by, compared.name, len(every), fitting.groups.number, strength, lines, figures, needed)


def cross_fitted(labelled: LabelledScores, seed: int = 0) -> tuple[dict[str, float], np.ndarray]:
    """Weights fitted to all labels, whether they are better or not, and scores by weights of the other folds.

    Returns:
        The signed weights by name, and an array with one out-of-fold score (or difference, for a preference) per
        label.
    """
    fitting = _Fitting(labelled, seed)
    signed = labelled.signs * fitting.weights(np.ones(len(labelled.labels)))
    weights = {name: float(weight) for name, weight in zip(labelled.names, signed, strict=True) if name is not None}
    return weights, fitting.held_out(fitting.by_fold())


class _Fitting:
    """Fits factors on some of the labels: `use` is the weight of every label, 0 for those that are left out."""

    def __init__(self, labelled: LabelledScores, seed: int):
        self.labelled, self.features = labelled, labelled.features
        self.codes = group_codes(labelled.groups)
        self.groups = Groups.of(self.codes)
        self._order = np.random.default_rng(seed).permutation(self.groups.number)

    def folds(self, use: np.ndarray) -> list[np.ndarray]:
        """For each fold, 1 for the labels of its groups and 0 for others. Folds are of the groups that are used."""
        used = np.isin(self._order, self.codes[use > 0])
        return [np.isin(self.codes, some).astype(float) * use for some in np.array_split(self._order[used], FOLDS)]

    def by_fold(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The labels of every fold, and the weights that are fitted on the other folds."""
        every = np.ones(len(self.labelled.labels))
        return [(fold, self.weights(every - fold)) for fold in self.folds(every)]

    def held_out(self, by_fold: Sequence[tuple[np.ndarray, np.ndarray]], use: np.ndarray | float = 1.0) -> np.ndarray:
        """What every label is judged by the weights of the other folds, of which those with a `use` of 0 are 0."""
        return np.sum([fold * self.labelled.judged(weights * use) for fold, weights in by_fold], axis=0)

    def weights(self, use: np.ndarray) -> np.ndarray:
        """Absolute weights, with the strength that is chosen on the same labels."""
        return self.labelled.weights(self.factors(use, self.strength(use)))

    def strength(self, use: np.ndarray) -> float:
        """The strength with the lowest loss in cross-validation over groups; of equal ones the strongest."""
        errors = np.zeros(len(STRENGTHS))
        for fold in self.folds(use):
            train = use - fold
            for place, strength in enumerate(STRENGTHS):
                fitted = self.features @ self.factors(train, strength)
                if self.labelled.pairs is not None:
                    errors[place] += fold @ np.logaddexp(0, -fitted)
                else:
                    residual = self.labelled.labels - fitted
                    errors[place] += fold @ (residual - train @ residual / train.sum()) ** 2
        return STRENGTHS[int(np.argmax(errors <= errors.min() * (1 + 1e-9)))]

    def factors(self, use: np.ndarray, strength: float) -> np.ndarray:
        """The factors that minimize the objective of the module docstring."""
        if self.labelled.pairs is None:
            return self._least_squares(use, strength)
        [optimize] = import_extra("scipy.optimize")
        common = math.isinf(strength)
        features = self.features.sum(axis=1, keepdims=True) if common else self.features
        penalty = 0.0 if common else 0.01 * strength * float(use @ (features**2).sum(axis=1)) / features.shape[1]
        ridge = _RIDGE * use.sum() / features.shape[1]  # pairs that are all in order have no other minimum

        def loss(factors: np.ndarray) -> tuple[float, np.ndarray]:
            margins, apart = features @ factors, factors - factors.mean()
            value = use @ np.logaddexp(0, -margins) + penalty * (apart @ apart) + ridge * (factors @ factors)
            slope = -features.T @ (use / (1 + np.exp(margins))) + 2 * penalty * apart + 2 * ridge * factors
            return float(value), slope

        start, bounds = np.ones(features.shape[1]), [(0, None)] * features.shape[1]
        found = optimize.minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
        return self._least(np.full(len(self.labelled.names), found[0]) if common else found)

    def _least_squares(self, use: np.ndarray, strength: float) -> np.ndarray:
        [optimize] = import_extra("scipy.optimize")
        features, labels = (each - use @ each / use.sum() for each in (self.features, self.labelled.labels))
        products, towards = features.T @ (use[:, None] * features), features.T @ (use * labels)
        size, total = len(products), products.sum()
        if math.isinf(strength):
            return np.full(size, max(0.0, over(towards.sum(), total)) if total > 0 else 0.0)
        penalty = strength * (np.eye(size) - 1 / size) + 1e-9 * np.eye(size)
        # Least squares with these products: |R f - R^-T b|^2, where R'R is the matrix and b the right-hand side.
        upper = np.linalg.cholesky(products + max(np.trace(products), 1e-12) / size * penalty).T
        factors, _ = optimize.nnls(upper, np.linalg.solve(upper.T, towards))
        return self._least(factors)

    def _least(self, factors: np.ndarray) -> np.ndarray:
        bounded = self.labelled.by == "category" or None in self.labelled.names
        return np.maximum(factors, LEAST_FACTOR * factors.mean() if bounded else 0.0)

    def draws(self, strength: float, bootstrap: Bootstrap) -> np.ndarray | None:
        """Absolute weights of every resample of the groups."""
        counts = (draw.astype(float) for draw in bootstrap.draws(self.codes))
        drawn = [self.labelled.weights(self.factors(use, strength)) for use in counts]
        return np.array(drawn) if drawn else None


class Compared(Measure):
    """The present weights and the fitted ones, by one figure and its gain.

    Args:
        labels (array): one per text, or 1 per pair.
        present, fitted (arrays): per label, the score of the text; for pairs, that of the chosen text minus that of
            the rejected one.
        pairs (`bool`, *optional*, defaults to `False`): whether labels are preferences.
    """

    def __init__(self, labels: np.ndarray, present: np.ndarray, fitted: Any, pairs: bool = False):
        self.labels, self.present, self.fitted, self.units = labels, present, fitted, len(labels)
        self.name = "in order" if pairs else "correlation"
        own = SHARE if pairs else CORRELATION
        # The interval of a gain contains only a part of the error of fitting, so it needs more groups.
        self.rules = {"present": own, "fitted": own, "gain": Rule(groups=50)}

    @override
    def replicate(self, weights: np.ndarray) -> dict[str, float]:
        present, fitted = self.of(self.present, weights), self.of(self.fitted, weights)
        return {"present": present, "fitted": fitted, "gain": fitted - present}

    def of(self, judged: Any, weights: np.ndarray) -> float:
        """The figure of judged scores or differences; NaN where it is undefined."""
        if self.name == "in order":
            return weighted_mean((judged > EQUAL) + 0.5 * (np.abs(judged) <= EQUAL), weights)
        spread = np.cov(judged, self.labels, fweights=weights.astype(int))
        return over(spread[0, 1], math.sqrt(spread[0, 0] * spread[1, 1]))


def _checked(labelled: LabelledScores, compared: Compared, figures: dict[str, Figure], groups: Groups) -> int | None:
    """Refuse weights that learned nothing. Returns [`Fit.needed`]."""
    chance, measure = (0.0, compared.name) if labelled.pairs is None else (0.5, "fraction of pairs in order")
    count = len(labelled.labels)
    fitted, present, gain = (figures[name] for name in ("fitted", "present", "gain"))
    about = f"{count} {'labels' if labelled.pairs is None else 'pairs'}"
    if fitted.refused is not None and fitted.refused == groups.too_few():
        raise SampleError(
            f"weights cannot be tested with {about} in {groups.number} groups: an interval {fitted.refused}."
        )
    if fitted.value is None or fitted.value <= chance or (fitted.low is not None and fitted.low <= chance):
        known = None if fitted.value is None else _needed(count, groups, fitted, fitted.value - chance)
        more = "more labels would not help" if known is None else f"about {known:,} labels would be needed"
        raise SampleError(
            f"nothing can be learned from {about}: with fitted weights the {measure} on held-out groups is "
            f"{fitted.shown()}, which is not above {chance:g}; {more}."
        )
    if gain.value is None or gain.value <= 0:
        known, least = _needed(count, groups, gain, SMALL_GAIN), compared.rules["gain"].groups
        more = "" if known is None else f"; about {known:,} labels would show a gain of {SMALL_GAIN:g}"
        if gain.refused is not None and gain.refused == groups.too_few(least):
            labels = math.ceil(count * least / min(groups.number, 2 * groups.effective))
            more = f"; to test a gain, at least {least} groups are needed, about {labels:,} labels"
        raise SampleError(
            f"no better weights can be learned from {about}: the {measure} on held-out groups is "
            f"{present.shown()} with the present weights and {fitted.shown()} with fitted ones. Keep the present "
            f"weights{more}."
        )
    return None if gain.low is None or gain.low > 0 else _needed(count, groups, gain, gain.value)


def _needed(count: int, groups: Groups, figure: Figure, effect: float) -> int | None:
    """Labels with which an effect would be significant in 80 % of the samples: its standard error falls with the root
    of their number."""
    if figure.low is None or figure.high is None or effect <= 0:
        return None
    error = (figure.high - figure.low) / (2 * t_quantile(groups.effective, 0.025))
    needed = math.ceil(count * (_DETECTABLE * error / effect) ** 2)
    return needed if needed > count else None
