"""How often do the intervals and tests of this package hold what they say?

    python -P recipes/studies/intervals.py --runs 400

Data with a known truth are drawn again and again, in 5, 15, 50 and 200 groups of four units that depend on each other
(intraclass correlation 0.3). Counted is how often a 95 % interval contains the truth, and how often a test at a level
of 0.05 finds an effect that does not exist. `--only` runs some of the rows.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from checklist_rewards import Checklist
from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Numbers, paired_test
from checklist_rewards.evaluation.agreement.measures import kappa_of
from checklist_rewards.evaluation.bootstrap import Bootstrap, Mean, Measure, Totals
from checklist_rewards.evaluation.calibration import Probabilities
from checklist_rewards.evaluation.fitting import fit_weights, labelled_scores
from checklist_rewards.evaluation.intervals import MIN_GROUPS
from checklist_rewards.evaluation.rates import corrected_rate
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.evaluation.variance import Variance
from checklist_rewards.monitor.detectors import Cusum, mean
from checklist_rewards.scores import Verdict, score_checklist
from checklist_rewards.scores.tally import wilson

SIZES, EACH, SHARED = (5, 15, 50, 200), 4, 0.3
Draw = Callable[[np.random.Generator, int], "bool | None"]
"""One run with a number of groups: whether the interval contains the truth, or whether the test found an effect; None
if there was no interval or test."""


def normal(rng: np.random.Generator, groups: int, count: int = 2, shared: float = SHARED) -> np.ndarray:
    """Independent standard normal columns whose units share a part within their group."""
    own, common = rng.standard_normal((count, groups, EACH)), rng.standard_normal((count, groups, 1))
    return (np.sqrt(1 - shared) * own + np.sqrt(shared) * common).reshape(count, -1)


def groups_of(groups: int) -> list[int]:
    """The group of every unit."""
    return np.repeat(np.arange(groups), EACH).tolist()


def correlated(rng: np.random.Generator, groups: int, r: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """Two columns with a correlation."""
    one, other = normal(rng, groups)
    return one, r * one + np.sqrt(1 - r**2) * other


def within(figure: Any, truth: float) -> bool | None:
    """Whether an interval contains the truth."""
    return None if figure.low is None else bool(figure.low <= truth <= figure.high)


def bootstrap(rng: np.random.Generator) -> Bootstrap:
    """Fewer resamples than the default, for time."""
    return Bootstrap(300, int(rng.integers(2**31)))


def of_numbers(name: str, truth: float) -> Draw:
    """The interval of a figure of two raters' numbers."""

    def draw(rng: np.random.Generator, groups: int) -> bool | None:
        one, other = correlated(rng, groups)
        if name == "auc":
            other = (other > 0).astype(float)
        found = bootstrap(rng).figures(Numbers(one, other, only=[name]), groups_of(groups))
        return within(found[name], truth)

    return draw


def of_judge(figure: str) -> Draw:
    """The interval of a figure of a judge's probabilities against labels."""

    def draw(rng: np.random.Generator, groups: int) -> bool | None:
        judged, labels = judge(rng, groups)
        if figure in ("brier", "ece"):
            measure: Measure = Probabilities(
                [{YES: p, NO: 1 - p} for p in judged], [YES if label else NO for label in labels], [0.5] * len(labels)
            )
        else:
            measure = Numbers(judged, labels, only=[figure])
        return within(bootstrap(rng).figures(measure, groups_of(groups))[figure], JUDGE[figure])

    return draw


def judge(rng: np.random.Generator, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of a judge that says yes too often, and labels."""
    truth, noise = normal(rng, groups)
    return stats.norm.cdf(1.5 * (0.8 * truth + 0.6 * noise) + 0.5), (truth > 0).astype(float)


def of_variance(rng: np.random.Generator, groups: int) -> bool | None:
    """The interval of the judge's share of the variance of scores: 0.04 of 0.04 + 0.12 + 0.04."""
    found = Variance(2)
    item = Checklist.parse(["Is it red?"])
    texts = 0.2 * rng.standard_normal((groups, 1)) + np.sqrt(0.12) * rng.standard_normal((groups, EACH))
    for (prompt, _), text in np.ndenumerate(texts):
        answers = (0.5 + 0.1 * (text + 0.2 * rng.standard_normal(2))).clip(0, 1)
        scores = [score_checklist(item, [Verdict({YES: p, NO: 1 - p}, method="logprobs")]) for p in answers.tolist()]
        found.add(str(prompt), scores)
    report = found.result("resampled", bootstrap(rng), 0.1)
    return None if report.scores is None else within(report.scores.figures["judge_share"], 0.2)


def of_fit(name: str) -> Draw:
    """The interval of fitted weights, relative to their mean, or of their gain in correlation."""

    def draw(rng: np.random.Generator, groups: int) -> bool | None:
        if groups < MIN_GROUPS:
            return None
        items = Checklist.parse(["Is it red?", "Is it old?", "Is it big?"])
        columns = normal(rng, groups, 4)
        labels = columns[0] + 0.5 * columns[1] + 0.25 * columns[2] + 0.5 * columns[3]
        texts = []
        for n, (label, *line) in enumerate(zip(labels.tolist(), *(0.5 + 0.1 * columns[:3]).tolist(), strict=True)):
            verdicts = [Verdict({YES: p, NO: 1 - p}, method="logprobs") for p in np.clip(line, 0, 1).tolist()]
            score = score_checklist(items, verdicts)
            texts.append(ScoredText(f"row {n}", f"rows, row {n}", score, str(n // EACH), labels=label))
        try:
            found = fit_weights(labelled_scores(texts, by="item"), bootstrap(rng))
        except SampleError:  # no better weights
            return None
        if name == "gain":
            return within(found.figures["gain"], GAIN)
        return within(found.weights[0], 3 * 1 / 1.75)

    return draw


def of_kappa(rng: np.random.Generator, groups: int) -> bool | None:
    """The interval of kappa of two raters' yes and no."""
    one, other = (side > 0 for side in correlated(rng, groups))
    cells = np.stack([one & other, one & ~other, ~one & other, ~one & ~other], axis=1)
    kappa = Totals(cells, lambda counts: {"kappa": kappa_of(counts.reshape(2, 2))})
    return within(bootstrap(rng).figures(kappa, groups_of(groups))["kappa"], 2 * AGREE - 1)


def of_mean(rate: float) -> Draw:
    """The interval of a mean of yes and no."""
    bound = stats.norm.ppf(rate)

    def draw(rng: np.random.Generator, groups: int) -> bool | None:
        [values] = normal(rng, groups, 1)
        return within(bootstrap(rng).figures(Mean("mean", values < bound), groups_of(groups))["mean"], rate)

    return draw


def of_rate(name: str, rate: float) -> Draw:
    """The interval of a rate by labels, or corrected by them; ten times as many groups are judged."""
    bound = stats.norm.ppf(rate)

    def draw(rng: np.random.Generator, groups: int) -> bool | None:
        truth, noise = normal(rng, 10 * groups)
        judged = stats.norm.cdf(0.8 * (bound - truth) + 0.6 * noise)
        labels = [float(value < bound) if n < EACH * groups else None for n, value in enumerate(truth)]
        return within(getattr(corrected_rate(judged.tolist(), labels, groups_of(10 * groups)), name), rate)

    return draw


def of_wilson(rate: float) -> Draw:
    """Wilson's interval of independent answers; their number is that of groups."""

    def draw(rng: np.random.Generator, groups: int) -> bool | None:
        low, high = wilson(int(rng.binomial(groups, rate)), groups) or (0.0, 1.0)
        return low <= rate <= high

    return draw


def refused(rng: np.random.Generator, groups: int) -> bool | None:
    """Whether a random sample of labels is refused (at 0.01)."""
    truth, noise = normal(rng, 10 * groups)
    labels = [float(value < 0) if n < EACH * groups else None for n, value in enumerate(truth)]
    p = corrected_rate(stats.norm.cdf(noise - truth).tolist(), labels, groups_of(10 * groups)).shift_p
    return None if p is None else p < 0.01


def of_test(name: str, shared: float = SHARED) -> Draw:
    """Whether two judges that are equally good differ in a test."""

    def draw(rng: np.random.Generator, groups: int) -> bool | None:
        one, other = normal(rng, groups, shared=shared) > -0.8
        errors, others = np.abs(normal(rng, groups, shared=shared))
        codes = groups_of(groups)
        found = paired_test(("one", "other"), (one, other), (errors, others), codes, codes, int(rng.integers(2**31)))
        p = getattr(found, name)
        return None if p is None else p <= 0.05

    return draw


def jump(rng: np.random.Generator, steps: int) -> bool | None:
    """Whether `reward_jump` alarms in so many steps of noise around a constant mean."""
    detector, noise = Cusum(mean, start=5, threshold=5.0), random.Random(int(rng.integers(2**31)))
    return any([detector.update([(noise.gauss(0.5, 0.05), 1.0)]).raised for _ in range(steps)])


def improved(rng: np.random.Generator, groups: int) -> bool | None:
    """Whether `improve` keeps a change of a checklist that has nothing to do with the labels."""
    from checklist_rewards import Sample
    from checklist_rewards.evolving.improve import improve

    if groups < MIN_GROUPS:
        return None
    checklist = Checklist.parse([f"Is it {word}?" for word in ("red", "old", "big", "new")])
    rows = []
    labels, answers = normal(rng, groups, 1, 0.5)[0], rng.beta(0.4, 0.4, (EACH * groups, 4))
    for n, (label, line) in enumerate(zip(labels.tolist(), answers.tolist(), strict=True)):
        score = score_checklist(checklist, [Verdict({"yes": p, "no": 1 - p}, method="logprobs") for p in line])
        sample = Sample(checklist, f"text {n}", f"input {n // EACH}")
        rows.append(ScoredText(f"row {n}", f"rows, row {n}", score, sample.input, labels=label, sample=sample))
    found = improve(checklist, rows, bootstrap=Bootstrap(0, int(rng.integers(2**31))))
    return any(step.kept for step in found.steps)


AGREE = 0.5 + np.arcsin(0.6) / np.pi  # both of two normal numbers with r = 0.6 are above or below 0
AREA = 0.7789  # of 4 million draws
GAIN = (1 + 0.25 + 0.0625) ** 0.5 / (1 + 0.25 + 0.0625 + 0.25) ** 0.5 - 1.75 / (3 * (1 + 0.25 + 0.0625 + 0.25)) ** 0.5
JUDGE = {"mae": 0.2793, "emd": 0.2053, "ks": 0.5, "brier": 0.1563, "ece": 0.1089}  # of 1.2 million draws
INTERVALS: dict[str, tuple[str, Draw]] = {
    "`agree`: accuracy, means": ("expanded percentile bootstrap over groups (numpy)", of_mean(0.8)),
    "`agree`: kappa": ("the same; kappa by statsmodels", of_kappa),
    "`agree`: Pearson": ("the same; r by numpy", of_numbers("pearson", 0.6)),
    "`agree`: Spearman": ("the same; rho by scipy", of_numbers("spearman", 6 / np.pi * np.arcsin(0.3))),
    "`agree`: AUC": ("the same; Mann-Whitney U by scipy", of_numbers("auc", AREA)),
    "`agree`: MAE": ("the same", of_judge("mae")),
    "`agree`: EMD": ("t, standard error of the draws; EMD by scipy", of_judge("emd")),
    "`agree`: KS": ("the same; KS by scipy", of_judge("ks")),
    "`calibrate`: Brier score": ("expanded percentile bootstrap over groups", of_judge("brier")),
    "`calibrate`: calibration error (ECE)": ("t, standard error of the draws", of_judge("ece")),
    "`replay --repeats`: judge's share of the variance": ("expanded percentile bootstrap", of_variance),
    "`fit`: a weight": ("the same, refitted", of_fit("weight")),
    "`fit`: gain, out-of-fold": ("the same", of_fit("gain")),
    "rate by labels, 0.5": ("Wilson (statsmodels), t (scipy), error over groups", of_rate("labelled", 0.5)),
    "rate by labels, 0.9": ("the same", of_rate("labelled", 0.9)),
    "corrected rate, 0.5": ("the same, prediction-powered", of_rate("corrected", 0.5)),
    "corrected rate, 0.9": ("the same, prediction-powered", of_rate("corrected", 0.9)),
    "pass rate of `score`, 0.5": ("Wilson, independent answers", of_wilson(0.5)),
    "pass rate of `score`, 0.9": ("Wilson, independent answers", of_wilson(0.9)),
}
TESTS: dict[str, tuple[str, Draw]] = {
    "`agree`: two judges, accuracy": ("sign flips of groups (scipy, numpy)", of_test("permutation_p")),
    "`agree`: two judges, errors": ("the same", of_test("error_permutation_p")),
    "`agree`: McNemar, independent items": ("exact or chi-squared (statsmodels)", of_test("mcnemar_p", 0.0)),
    "`agree`: McNemar, groups of items": ("the same, which assumes independence", of_test("mcnemar_p")),
    "labels are no random sample (at 0.01)": ("t (scipy), error over groups", refused),
    "`improve` keeps a change (a whole run)": ("t (scipy), influence over groups, alpha spending", improved),
}
STEPS = (100, 300, 1000)


def line(name: str, how: str, draw: Draw, runs: int, sizes: tuple[int, ...] = SIZES) -> str:
    """A row of a table: the share of runs by number of groups, and `-` where most runs gave nothing."""
    cells = []
    for groups in sizes:
        rng = np.random.default_rng([groups, len(name)])
        found = [each for _ in range(runs) if (each := draw(rng, groups)) is not None]
        cells.append(f"{np.mean(found):.3f}" if 2 * len(found) > runs else "-")
    return "| " + " | ".join([name, how, *cells]) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--only", default="", help="Part of the names of the rows to run.")
    args = parser.parse_args()
    for title, rows in (("interval: coverage", INTERVALS), ("test: found without an effect", TESTS)):
        print(f"\n| {title} | method | {' | '.join(map(str, SIZES))} |\n|{'---|' * (2 + len(SIZES))}")
        for name, (how, draw) in rows.items():
            if args.only in name:
                print(line(name, how, draw, args.runs), flush=True)
    if args.only in "reward_jump":
        print(f"\n| steps: runs with an alarm | method | {' | '.join(map(str, STEPS))} |\n|{'---|' * 5}")
        print(line("`reward_jump` on noise", "CUSUM, scale of up to 50 changes", jump, args.runs, STEPS))


if __name__ == "__main__":
    main()
