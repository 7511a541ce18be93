"""How often do the intervals and tests of this package hold what they say?

    python -P recipes/studies/intervals.py --runs 400

Data with a known truth are drawn again and again, in 5, 15, 50 and 200 groups of four units that depend on each other
(intraclass correlation 0.3). Families with a number in their name have groups of that many units, those that end in
`unequal` of 1 to 60; `alike` is a correlation of 0.6. Counted is how often a 95 % interval contains the truth, and how
often a test at a level of 0.05 finds an effect that does not exist.
The truth of a held-out figure is its mean over all runs. A cell is `-` if most runs had no interval or test. `--only`
runs some of the families, `--sizes` some of the numbers of groups.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from checklist_rewards import Checklist, Sample
from checklist_rewards.attacks.report import RISES
from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import paired_test
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure
from checklist_rewards.evaluation.calibration import BRIER_CHANGES, FOLDS, Probabilities, _isotonic
from checklist_rewards.evaluation.fitting import LabelledScores, fit_weights
from checklist_rewards.evaluation.intervals import CORRELATION, MIN_GROUPS, SHARE, Groups, Rule, bounds
from checklist_rewards.evaluation.measures import Categories, Numbers, Preferences
from checklist_rewards.evaluation.rates import corrected_rate
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.evaluation.variance import Variance
from checklist_rewards.evolving.improve import improve
from checklist_rewards.monitor.detectors import Cusum, mean
from checklist_rewards.scores import Score, Verdict, score_checklist
from checklist_rewards.scores.tally import PassRate

ERRORS = Rule(groups=50, least=0.0)
TRUE_SHARES = (0.5, 0.8, 0.88, 0.95, 0.98)
SIZES, UNEQUAL, STEPS = (5, 15, 50, 200), (15, 30, 50, 200), (100, 300, 1000)
EACH, SHARED = 4, 0.3
Sums = tuple[list[np.ndarray], Callable[..., np.ndarray], Rule]
"""The columns of a figure's units, the figure by the sums of the columns, and the rule of its interval."""
Draw = Callable[[np.random.Generator, int], "Mapping[str, Figure | bool | None]"]
"""One run with a number of groups: by name, an interval, or whether a test found an effect; None without one."""
AGREE = 0.5 + math.asin(0.6) / math.pi
"""The probability that two normal numbers with a correlation of 0.6 have the same sign."""


class Family(NamedTuple):
    """Figures of the same data."""

    draw: Draw
    truth: Mapping[str, float] = {}
    """The truth of intervals. That of other figures is their mean over all runs."""
    sizes: tuple[int, ...] = SIZES


def equal(groups: int, each: int = EACH) -> np.ndarray:
    """The group of every unit, if all groups have the same number of units."""
    return np.repeat(np.arange(groups), each)


def unequal(groups: int) -> np.ndarray:
    """The group of every unit, if the groups have 1 to 60."""
    return np.repeat(np.arange(groups), np.linspace(1, 60, groups).astype(int))


def normal(rng: np.random.Generator, codes: np.ndarray, count: int = 2, shared: float = SHARED) -> np.ndarray:
    """Independent standard normal columns whose units share a part within their group."""
    own, common = rng.standard_normal((count, len(codes))), rng.standard_normal((count, codes[-1] + 1))
    return np.sqrt(1 - shared) * own + np.sqrt(shared) * common[:, codes]


def correlated(rng: np.random.Generator, codes: np.ndarray, count: int = 2) -> np.ndarray:
    """Standard normal columns with a correlation of 0.6."""
    common, *others = normal(rng, codes, count + 1)
    return np.array([math.sqrt(0.6) * common + math.sqrt(0.4) * other for other in others])


def judge(rng: np.random.Generator, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of a judge that says yes too often, and labels."""
    truth, noise = normal(rng, codes)
    return stats.norm.cdf(1.5 * (0.8 * truth + 0.6 * noise) + 0.5), (truth > 0).astype(float)


def near(rng: np.random.Generator, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two raters' probabilities, with distributions that differ a little."""
    one, other = correlated(rng, codes)
    return stats.norm.cdf(one + 0.3), stats.norm.cdf(other)


def bootstrap(rng: np.random.Generator) -> Bootstrap:
    """Fewer resamples than the default, for time."""
    return Bootstrap(300, int(rng.integers(2**31)))


def words(values: np.ndarray) -> list[str]:
    """Yes for values above 0."""
    return [YES if value > 0 else NO for value in values]


def numbers(columns: Callable[..., Any], *only: str) -> Draw:
    """Two raters' numbers."""

    def draw(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
        codes = equal(groups)
        return bootstrap(rng).figures(Numbers(*columns(rng, codes), only), codes.tolist())

    return draw


LEVELS = {"bad": 0.0, "fair": 1 / 3, "good": 2 / 3, "perfect": 1.0}


def levels(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
    """Ordered answers of a judge against labels."""
    columns = np.digitize(correlated(rng, equal(groups)), (-1, 0, 1))
    one, other = (np.array(list(LEVELS))[column].tolist() for column in columns)
    found = bootstrap(rng).figures(Categories(one, other, LEVELS), equal(groups).tolist())
    return {name: found[name] for name in ("weighted_kappa", "interval_alpha")}


def quality(shift: float) -> Draw:
    """Brier score and calibration error of a judge whose log-odds are shifted; 0 is a calibrated one."""

    def draw(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
        odds = 1.5 * normal(rng, equal(groups), 1)[0]
        labels = rng.random(len(odds)) < 1 / (1 + np.exp(-odds))
        said = (1 / (1 + np.exp(-odds - shift))).tolist()
        answers = [{YES: p, NO: 1 - p} for p in said]
        found = Probabilities(answers, [YES if label else NO for label in labels], [0.5] * len(said))
        return bootstrap(rng).figures(found, equal(groups).tolist())

    return draw


def isotonic(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
    """The change of the Brier score by isotonic maps of the other folds, without the cost of records of reads."""
    codes = equal(groups)
    odds = 1.5 * normal(rng, codes, 1)[0]
    truths = (rng.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(float)
    said, fold = 2 * odds + 0.5, rng.permutation(groups)[codes] % FOLDS
    mapped = np.empty(len(odds))
    for number in range(FOLDS):
        knots = np.array(_isotonic(said[fold != number], truths[fold != number]))
        mapped[fold == number] = np.interp(said[fold == number], *knots.T)
    change = (mapped - truths) ** 2 - (1 / (1 + np.exp(-said)) - truths) ** 2
    sums = np.bincount(codes, change)
    draws = rng.multinomial(groups, [1 / groups] * groups, 300) @ sums / len(change)
    value = float(change.mean())
    return {"change": Figure(value=value, **bounds(value, draws, Groups.of(codes), BRIER_CHANGES["isotonic"]))}


def pairs(rng: np.random.Generator, groups: int) -> dict[str, bool]:
    """Whether scores that are noise prefer one of two texts of an input."""
    codes = equal(groups)
    truth, score = normal(rng, codes)
    one, other = pair_places(tuple(np.bincount(codes)))
    found = Preferences(score[one] - score[other], truth[one] - truth[other], groups=codes[one].tolist())
    p = found.figures()["t_test_p"]
    return {"t-test of preferences": p is not None and p <= 0.05}


def score_of(items: Checklist, answers: list[float]) -> Score:
    """The score of a text by its probabilities of yes."""
    return score_checklist(items, [Verdict({YES: p, NO: 1 - p}, method="logprobs") for p in answers])


def wordings(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
    """Components of scores for other wordings of one checklist: 4 of wordings, 12 of texts, 4 of noise."""
    found, item, shift = Variance(4), Checklist.parse(["Is it red?"]), 0.02 * rng.standard_normal(4)
    for group in equal(groups).tolist():
        answers = 0.5 + math.sqrt(0.0012) * rng.standard_normal() + shift + 0.02 * rng.standard_normal(4)
        found.add(str(group), [score_of(item, [p]) for p in answers.clip(0, 1).tolist()])
    report = found.result("reworded", bootstrap(rng), 0.1)
    assert report.scores is not None
    return {name: report.scores.figures[name] for name in ("repeat", "judge", "judge_share")}


def variance(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
    """Components of scores: 0.04 of prompts, 0.12 of texts, 0.04 of the judge, in hundredths."""
    found, item = Variance(2), Checklist.parse(["Is it red?"])
    texts = 0.2 * rng.standard_normal((groups, 1)) + np.sqrt(0.12) * rng.standard_normal((groups, EACH))
    for (prompt, _), text in np.ndenumerate(texts):
        answers = (0.5 + 0.1 * (text + 0.2 * rng.standard_normal(2))).clip(0, 1)
        found.add(str(prompt), [score_of(item, [p]) for p in answers.tolist()])
    report = found.result("resampled", bootstrap(rng), 0.1)
    assert report.scores is not None
    return report.scores.figures


def fitted(rng: np.random.Generator, groups: int) -> dict[str, Any]:
    """Fitted weights relative to their mean, and the figures of the fit on held-out groups."""
    columns = normal(rng, equal(groups), 4)
    values, size = (0.5 + 0.1 * columns[:3].T).clip(0, 1), len(columns.T)
    labelled = LabelledScores(
        by="item",
        names=["red", "old", "big"],
        questions=["Is it red?", "Is it old?", "Is it big?"],
        present=np.ones(3),
        signs=np.ones(3),
        earned=values,
        counts=np.ones((size, 3)),
        texts=np.full(3, size),
        bases=np.zeros(size),
        labels=columns[0] + 0.5 * columns[1] + 0.25 * columns[2] + 0.5 * columns[3],
        groups=list(map(str, equal(groups))),
    )
    try:
        found = fit_weights(labelled, bootstrap(rng))
    except SampleError:  # too few groups, or no better weights
        return {}
    weights = {f"weight {n}": Figure(value=w.weight, low=w.low, high=w.high) for n, w in enumerate(found.weights)}
    return {**weights, "gain": found.figures["gain"]}


def rates(rate: float) -> Draw:
    """A rate by labels, and corrected by them; ten times as many groups are judged."""
    bound = stats.norm.ppf(rate)

    def draw(rng: np.random.Generator, groups: int) -> dict[str, Any]:
        truth, noise = normal(rng, equal(10 * groups))
        values = stats.norm.cdf(0.8 * (bound - truth) + 0.6 * noise)
        labels = [float(value < bound) if n < EACH * groups else None for n, value in enumerate(truth)]
        found = corrected_rate(values.tolist(), labels, equal(10 * groups).tolist())
        # With few groups, the test for a random sample has no power; it has a simulation of its own.
        random_sample = None if found.shift_p is None else found.shift_p < 0.01
        return {
            f"by labels, {rate}": found.labelled,
            f"corrected, {rate}": found.corrected,
            f"no random sample (0.01), {rate}": random_sample,
        }

    return draw


def pass_rates(rate: float, items: int | None = None) -> Draw:
    """DRFR of texts with some items, by default 1 to 60."""
    bound = stats.norm.ppf(rate)

    def draw(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
        found = PassRate()
        codes = unequal(groups) if items is None else np.repeat(np.arange(groups), items)
        passed = np.bincount(codes, normal(rng, codes, 1)[0] < bound)
        for each, counted in zip(passed.astype(int).tolist(), np.bincount(codes).tolist(), strict=True):
            found.add(each, counted)
        low, high = found.interval or (None, None)
        return {f"DRFR {rate}, {items or '1 to 60'} items": Figure(value=found.micro, low=low, high=high)}

    return draw


def sums(units: Callable[[int], np.ndarray]) -> Draw:
    """The figures that are functions of sums over groups, with all resamples in one product: for thousands of runs."""

    def draw(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
        codes = units(groups)
        one, other = correlated(rng, codes)
        p, labels = judge(rng, codes)
        truth, noise = normal(rng, codes)
        odds = 1.5 * normal(rng, codes, 1)[0]
        odd = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
        i, j = pair_places(tuple(np.bincount(codes)))
        apart = np.sign(truth[i] - truth[j]) * (0.6 * (truth[i] - truth[j]) + 0.8 * (noise[i] - noise[j]))
        every, pairs = np.ones(len(codes)), np.ones(len(i))
        cells = [one_yes & other_yes for one_yes in (one > 0, one <= 0) for other_yes in (other > 0, other <= 0)]
        rows: dict[str, Sums] = {
            "accuracy": (cells, lambda a, b, c, d: (a + d) / (a + b + c + d), SHARE),
            "precision": (cells, lambda a, b, c, d: a / (a + b), SHARE),
            "f1": (cells, lambda a, b, c, d: 2 * a / (2 * a + b + c), SHARE),
            "kappa": (
                cells,
                lambda a, b, c, d: 2 * (a * d - b * c) / ((a + b) * (b + d) + (a + c) * (c + d)),
                CORRELATION,
            ),
            "pearson": ([every, one, other, one**2, other**2, one * other], _pearson, CORRELATION),
            "rmse, normal": ([(one - other) ** 2, every], lambda s, n: np.sqrt(s / n), ERRORS),
            "rmse": ([(p - labels) ** 2, every], lambda s, n: np.sqrt(s / n), SHARE),
            "cohens_d": ([pairs, apart, apart**2], _effect, Rule()),
        }
        means = {"mae, normal": (np.abs(one - other), ERRORS), "bias, normal": (one - other, Rule())}
        means |= {"mae": (np.abs(p - labels), SHARE), "bias": (p - labels, Rule())}
        means["brier, calibrated"] = (1 / (1 + np.exp(-odds)) - odd) ** 2, SHARE
        means["brier, shifted"] = (1 / (1 + np.exp(-odds - 0.4)) - odd) ** 2, SHARE
        means |= {"wins": (apart > 0, SHARE), "wpld": (2 * (apart < 0), Rule("share", least=0.0, most=2.0))}
        # Of an attack that works on some prompts: the rise of the score, and how often it beats an honest response.
        means |= {"difference": (apart, Rule()), "rise": (np.maximum(0, truth - 1), RISES)}
        means["beats"] = noise > 1.2, SHARE
        for name, (values, rule) in means.items():
            rows[name] = [values, np.ones(len(values))], np.divide, rule
        return resampled(rng, groups, rows, {len(codes): codes, len(i): codes[i]})

    return draw


def resampled(
    rng: np.random.Generator, groups: int, rows: Mapping[str, Sums], codes: Mapping[int, np.ndarray]
) -> dict[str, Figure]:
    """Figures of sums, with their intervals. `codes` has the group of every unit by the number of units."""
    drawn = rng.multinomial(groups, [1 / groups] * groups, 300)
    found = {}
    for name, (columns, compute, rule) in rows.items():
        own = codes[len(columns[0])]
        vectors = np.array([np.bincount(own, column, groups) for column in columns])
        with np.errstate(divide="ignore", invalid="ignore"):
            value, draws = float(compute(*vectors.sum(axis=1))), compute(*(vectors @ drawn.T))
        found[name] = Figure(value=value, **bounds(value, draws, Groups.of(own), rule))
    return found


def shares(units: Callable[[int], np.ndarray], shared: float = SHARED) -> Draw:
    """Shares of yes/no answers."""

    def draw(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
        codes = units(groups)
        [values], every = normal(rng, codes, 1, shared), np.ones(len(codes))
        answers = {f"share {share}": values < stats.norm.ppf(share) for share in TRUE_SHARES}
        rows = {name: ([yes, every], np.divide, SHARE) for name, yes in answers.items()}
        return resampled(rng, groups, rows, {len(codes): codes})

    return draw


@cache
def pair_places(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The places of all pairs of units of a group."""
    starts = np.cumsum((0, *sizes[:-1]))
    pairs = [start + np.array(np.triu_indices(size, 1)) for start, size in zip(starts, sizes, strict=True)]
    one, other = np.concatenate(pairs, axis=1)
    return one, other


@np.errstate(divide="ignore", invalid="ignore")
def ranks(rng: np.random.Generator, groups: int) -> dict[str, Figure]:
    """The figures of three judges and of ranks, with all resamples in one product. The first row is the data."""
    codes = equal(groups)
    columns, (p, labels), units = correlated(rng, codes, 3), judge(rng, codes), len(codes)
    drawn = rng.multinomial(groups, [1 / groups] * groups, 300)
    weights = np.repeat(np.vstack([np.ones((1, groups), dtype=int), drawn]), EACH, axis=1)
    disagreement = {}
    for what, answers in (("yes/no", columns > 0), ("levels", np.digitize(columns, (-1, 0, 1)))):
        counts = np.array([(answers == each).sum(axis=0) for each in np.unique(answers)])
        alike = weights @ ((counts**2).sum(axis=0) - 3) / (6 * units)  # the share of pairs of judges
        disagreement[what] = (1 - alike) / (1 - ((weights @ counts.T / (3 * units)) ** 2).sum(axis=1))
    one, other, judged = (_ranks(column, weights) - (units + 1) / 2 for column in (*columns[:2], p))
    products = [(weights * a * b).sum(axis=1) for a, b in ((one, other), (one, one), (other, other))]
    positive = weights @ labels
    figures = {
        **{f"fleiss_kappa, {what}": (1 - each, CORRELATION) for what, each in disagreement.items()},
        **{f"alpha, {what}": (1 - (1 - 1 / (3 * units)) * each, CORRELATION) for what, each in disagreement.items()},
        "spearman": (products[0] / np.sqrt(products[1] * products[2]), CORRELATION),
        "auc": (0.5 + (weights * labels * judged).sum(axis=1) / (positive * (units - positive)), SHARE),
    }
    return {
        name: Figure(value=values[0], **bounds(float(values[0]), values[1:], Groups.of(codes), rule))
        for name, (values, rule) in figures.items()
    }


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean ranks of different values in resamples."""
    order = np.argsort(values)
    found = np.empty(weights.shape)
    found[:, order] = np.cumsum(weights[:, order], axis=1) - (weights[:, order] - 1) / 2
    return found


def _effect(n: Any, total: Any, squares: Any) -> np.ndarray:
    return np.asarray(total / n / np.sqrt((squares - total**2 / n) / (n - 1)))


def _pearson(n: Any, x: Any, y: Any, xx: Any, yy: Any, xy: Any) -> np.ndarray:
    return np.asarray((n * xy - x * y) / np.sqrt((n * xx - x * x) * (n * yy - y * y)))


def judges(rng: np.random.Generator, groups: int) -> dict[str, bool | None]:
    """Two judges that are equally good, in groups of items and on independent items."""
    found: dict[str, bool | None] = {}
    for what, codes in (("groups", equal(groups)), ("independent", np.arange(EACH * groups))):
        one, other = normal(rng, codes) > -0.8
        test = paired_test(("one", "other"), (one, other), codes.tolist(), int(rng.integers(2**31)))
        for name in ("permutation_p", "mcnemar_p"):
            p = getattr(test, name)
            found[f"{name}, {what}"] = None if p is None else p <= 0.05
    return found


def improved(rng: np.random.Generator, groups: int) -> dict[str, bool | None]:
    """Whether `improve` keeps a change of a checklist that has nothing to do with the labels."""
    if groups < MIN_GROUPS:
        return {}
    checklist = Checklist.parse([f"Is it {word}?" for word in ("red", "old", "big", "new")])
    rows = []
    labels, answers = normal(rng, equal(groups), 1, 0.5)[0], rng.beta(0.4, 0.4, (EACH * groups, 4))
    for n, (label, line) in enumerate(zip(labels.tolist(), answers.tolist(), strict=True)):
        sample = Sample(checklist, f"text {n}", f"input {n // EACH}")
        score = score_of(checklist, line)
        rows.append(ScoredText(f"row {n}", f"rows, row {n}", score, sample.input or "", labels=label, sample=sample))
    found = improve(checklist, rows, bootstrap=Bootstrap(0, int(rng.integers(2**31))))
    return {"improve keeps a change": any(step.kept for step in found.steps)}


def jump(rng: np.random.Generator, steps: int) -> dict[str, bool]:
    """Whether `reward_jump` alarms in the given number of steps of noise around a constant mean."""
    detector, noise = Cusum(mean, start=5, threshold=5.0), random.Random(int(rng.integers(2**31)))
    return {"reward_jump": any([detector.update([(noise.gauss(0.5, 0.05), 1.0)]).raised for _ in range(steps)])}


VARIANCE = {"prompt": 4e-4, "text": 12e-4, "repeat": 0.0, "residual": 4e-4, "judge": 4e-4, "judge_share": 0.2}
SUMS = {
    **dict.fromkeys(("accuracy", "precision", "f1", "wins"), AGREE),
    **{"wpld": 2 - 2 * AGREE, "rise": 0.08332, "beats": float(stats.norm.sf(1.2))},
    **{"kappa": 2 * AGREE - 1, "pearson": 0.6, "bias, normal": 0.0, "mae": 0.2793, "brier, shifted": 0.18242},
    **{"rmse, normal": math.sqrt(0.8), "mae, normal": math.sqrt(0.8 * 2 / math.pi)},
    "bias": float(stats.norm.cdf(0.5 / math.sqrt(3.25))) - 0.5,
    "difference": 0.6 * math.sqrt(0.7) * 2 / math.sqrt(math.pi),
    "cohens_d": 0.5452,
}
SHARES = {f"share {share}": share for share in TRUE_SHARES}
FAMILIES: dict[str, Family] = {
    "agree-equal": Family(
        numbers(correlated, "kendall", "emd"), {"kendall": 2 / math.pi * math.asin(0.6), "emd": 0.0}
    ),
    "agree-judge": Family(numbers(judge, "emd"), {"emd": 0.2053}),
    "agree-near": Family(numbers(near, "emd"), {"emd": stats.norm.cdf(0.3 / math.sqrt(2)) - 0.5}),
    "agree-levels": Family(levels, dict.fromkeys(("weighted_kappa", "interval_alpha"), 0.53525)),
    "quality-calibrated": Family(quality(0.0), {"ece": 0.0}),
    "quality-shifted": Family(quality(0.4), {"ece": 0.0703, "brier": 0.18242}),
    "calibrate-isotonic": Family(isotonic, sizes=(200, 500, 1000)),
    "variance": Family(variance, VARIANCE),
    "wordings": Family(wordings, {"repeat": 4e-4, "judge": 8e-4, "judge_share": 0.4}),
    "fit": Family(fitted, {f"weight {n}": 3 * w / 1.75 for n, w in enumerate((1, 0.5, 0.25))}),
    "sums": Family(sums(equal), SUMS),
    "sums-unequal": Family(sums(unequal), SUMS, UNEQUAL),
    "shares": Family(shares(equal), SHARES),
    "shares-30": Family(shares(partial(equal, each=30)), SHARES),
    "shares-200": Family(shares(partial(equal, each=200)), SHARES),
    **{f"shares-{n}-alike": Family(shares(partial(equal, each=n), 0.6), SHARES) for n in (30, 60, 200)},
    "shares-unequal": Family(shares(unequal), SHARES, UNEQUAL),
    "sums-ranks": Family(
        ranks,
        {
            **dict.fromkeys(("alpha, yes/no", "fleiss_kappa, yes/no"), 2 * AGREE - 1),
            **dict.fromkeys(("alpha, levels", "fleiss_kappa, levels"), 0.22995),
            **{"spearman": 6 / math.pi * math.asin(0.3), "auc": 0.8827},
        },
    ),
    **{f"rates-{p}": Family(rates(p), {f"by labels, {p}": p, f"corrected, {p}": p}) for p in (0.5, 0.8, 0.9, 0.97)},
    **{
        f"drfr-{p}-{n}": Family(pass_rates(p, n), {f"DRFR {p}, {n} items": p})
        for p in (0.5, 0.8, 0.9, 0.95)
        for n in (1, 10, 30)
    },
    **{f"drfr-{p}-unequal": Family(pass_rates(p), {f"DRFR {p}, 1 to 60 items": p}, UNEQUAL) for p in (0.5, 0.8, 0.9)},
    "tests-judges": Family(judges),
    "tests-pairs": Family(pairs),
    "tests-improve": Family(improved),
    "tests-jump": Family(jump, sizes=STEPS),
}
"""By name. Truths that are not exact are of a million draws or more."""


def lines(name: str, runs: int, sizes: Sequence[int] | None = None, seed: int = 0) -> list[str]:
    """Rows of a table: by figure, the share of runs in which its interval contains the truth, or a test finds
    something."""
    family = FAMILIES[name]
    cells: dict[str, list[str]] = {}
    sizes = sizes or family.sizes
    for place, size in enumerate(sizes):
        rng = np.random.default_rng([seed, size, *name.encode()])
        drawn = [family.draw(rng, size) for _ in range(runs)]
        for figure in dict.fromkeys(figure for each in drawn for figure in each):
            row = cells.setdefault(figure, ["-"] * len(sizes))
            row[place] = share([each.get(figure) for each in drawn], family.truth.get(figure))
    return [f"| {name}: {figure} | {' | '.join(row)} |" for figure, row in cells.items()]


def share(found: list[Any], truth: float | None = None) -> str:
    """The share of intervals with the truth, or of tests that found something; "-" where most runs had neither."""
    figures = [each for each in found if isinstance(each, Figure) and each.low is not None and each.high is not None]
    values = [float(each) for each in found if isinstance(each, bool)]
    if figures:
        middle = float(np.mean([each.value for each in figures])) if truth is None else truth
        values = [float(each.low <= middle <= each.high) for each in figures]  # type: ignore[operator]
    return f"{np.mean(values):.3f}" if 2 * len(values) > len(found) else "-"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--only", default="", help="Start of the names of the families to run.")
    parser.add_argument("--sizes", type=int, nargs="+", help="Numbers of groups.")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    last: Sequence[int] = ()
    for name, family in FAMILIES.items():
        if name.startswith(args.only):
            if (sizes := args.sizes or family.sizes) != last:
                print(f"\n| figure | {' | '.join(map(str, sizes))} |\n|{'---|' * (1 + len(sizes))}")
                last = sizes
            print("\n".join(lines(name, args.runs, args.sizes, args.seed)), flush=True)


if __name__ == "__main__":
    main()
