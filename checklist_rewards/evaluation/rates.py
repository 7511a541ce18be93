"""Rates that one can trust: what a judge says about many texts, corrected by the labels of a few.

A judged pass rate has an error that no number of texts makes smaller: that of the judge. Prediction-powered inference
measures it on labelled units. With judged values f and labels y, both in [0, 1], the corrected rate is

    rate = lambda * mean of f over all units + mean of (y - lambda f) over the labelled

which is unbiased for every lambda, whatever the judge does. lambda is cov(y, f) / var(f) on the labelled units, but at
least 0, as in PPI++ (Angelopoulos, Duchi and Zrnic 2023, arXiv:2311.01453; there f is averaged over the unlabelled
units only, so that their lambda is this one times the fraction of unlabelled units). With a useless judge it is near
0, and the rate is that of the labels alone; with a judge that is right but timid it is above 1.

Units of a group are not independent, so the error is that of sums per group, and the interval is Wilson's with the
quantile of t (`evaluation/intervals.py`). Labels on which the judge is never wrong do not show that it never is: the
error is at least that of one more wrong label, or of one more group of them where all labels and values are equal.

The labelled units must be a random sample, in which every unit has a known probability: the same for all, or that of
a [`LabelSample`], which prefers texts about which the judge is uncertain. Means over labelled units, cov and var are
then weighted by 1 / probability (active inference: Zrnic and Candes 2024, arXiv:2403.03208). If the judge's mean on
the labelled units differs from that of all by more than chance (p below 0.01), the labels are of another kind and the
rate is not corrected.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import units_against_labels
from checklist_rewards.evaluation.bootstrap import Figure, Result, group_codes
from checklist_rewards.evaluation.intervals import MIN_GROUPS, Groups, clustered_error, rate_interval, t_test_p
from checklist_rewards.evaluation.labels import pairs_of
from checklist_rewards.evaluation.scored import ScoredText, answer_given
from checklist_rewards.judges.labels import on_unit_scale
from checklist_rewards.scores import EQUAL, ItemScore, Score
from checklist_rewards.validation import np

MIN_LABELLED = 20
"""A rate with fewer labels, or labels of fewer groups than an interval needs, is not corrected."""
SHIFT_P = 0.01
ALL, TARGETS = "all items", "targets"


class Rate(Result):
    """A rate by the judge, by the labels alone, and by the judge corrected by the labels; all in [0, 1]."""

    name: str
    judged_units: int
    labelled_units: int
    judged: Figure
    """Of all units. Its interval holds for the judge's own opinion, not for the truth."""
    labelled: Figure
    corrected: Figure = Figure(value=None)
    """None, with the reason in `refused`, if the labels do not allow it."""
    weight: float | None = None
    """lambda: 0 if the judge is not used."""
    shift_p: float | None = None
    """Two-sided p-value of the difference of the judge's means on labelled and on all units."""
    refused: str | None = None


def corrected_rate(
    judged: Sequence[float],
    labels: Sequence[float | None],
    groups: Sequence[Hashable],
    name: str = ALL,
    probabilities: Sequence[float | None] | None = None,
) -> Rate:
    """Correct a judged rate by labels.

    Args:
        judged (sequence of `float`): the judge's value of every unit, in [0, 1].
        labels (sequence of `float` or None, one per unit): the true value, None for an unlabelled unit.
        groups (sequence, one per unit): units of a group are dependent.
        name (`str`, *optional*): name of the rate.
        probabilities (sequence of `float` or None, one per unit, *optional*): with which a unit was chosen for
            labelling, in (0, 1]. Labels without one are not used. Defaults to equal ones.

    Raises:
        SampleError: If there are no units.
    """
    if not len(judged):
        raise SampleError(f"{name}: no judged unit, so there is no rate.")
    f, codes = np.asarray(judged, dtype=float), group_codes(groups)
    chances = [1.0] * len(f) if probabilities is None else probabilities
    known = np.array([None not in pair for pair in zip(labels, chances, strict=True)])
    y = np.array([0.0 if label is None else label for label in labels], dtype=float)
    use = np.array([1 / chance if chance and own else 0.0 for chance, own in zip(chances, known, strict=True)])
    n, clusters = int(known.sum()), Groups.of(codes, use)
    every = np.ones(len(f))
    by_judge = _figure(f.mean(), _part(f, every), codes, Groups.of(codes), len(f), seen=False)
    by_labels = _figure(float(use @ y / use.sum()), _part(y, use), codes, clusters, n) if n else Figure(value=None)
    rate = partial(Rate, name=name, judged_units=len(f), labelled_units=n, judged=by_judge, labelled=by_labels)
    reason = clusters.too_few()
    if n < MIN_LABELLED or clusters.number < MIN_GROUPS:
        reason = f"{n} labels in {clusters.number} groups; at least {MIN_LABELLED} in {MIN_GROUPS} are needed"
    if reason is not None:
        return rate(refused=reason)
    own = float(use @ f / use.sum())
    p = _shift(own - f.mean(), f, use, codes, clusters)
    if p < SHIFT_P:
        reason = (
            f"the judge's mean on labelled units differs from that of all ({own:.3f} and {f.mean():.3f}, "
            f"p = {p:.2g}): the labels are not a random sample"
        )
        return rate(shift_p=p, refused=reason)
    spread = np.cov(y, f, aweights=use)
    weight = max(0.0, float(spread[0, 1] / spread[1, 1])) if spread[1, 1] > EQUAL else 0.0
    residual = y - weight * f
    value = weight * f.mean() + use @ residual / use.sum()
    parts = _part(residual, use) + weight * _part(f, every)
    return rate(corrected=_figure(value, parts, codes, clusters, n), weight=weight, shift_p=p)


def corrected_rates(texts: Sequence[ScoredText]) -> list[Rate]:
    """The rates of scored texts of which some are labelled: of all items, of every item with enough labels, and of the
    targets. None if all are labelled.

    The value of an item is that of its answer for the score, for a penalty as it is answered (1 is yes). There is no
    rate of targets if their labels are on another scale than 0 to 1.

    Args:
        texts (sequence of [`ScoredText`]): the texts, with their labels and the chances of being labelled.
    """
    if all(text.labels is not None for text in texts):
        return []
    units: dict[str, list[_Unit]] = {}
    targets: list[_Unit] = []
    for row in texts:
        given, score, chance = row.labels, row.judged, row.chance
        if score.no_answer:
            continue
        if score.primary_score is not None and not isinstance(given, Sequence):
            targets.append((score.primary_score, given, row.group, chance))
        for place, (key, item, line) in enumerate(zip(row.keys, row.items, score.items, strict=True)):
            answer = answer_given(item, line)
            if answer is None or answer.soft is None:
                continue
            label = given[place] if isinstance(given, Sequence) else None
            unit = (answer.soft, None if label is None else label.value, row.group, chance)
            for name in dict.fromkeys((ALL, item.question if key == item.id else f"{item.question} ({key})")):
                units.setdefault(name, []).append(unit)
    enough = {
        name: some for name, some in units.items() if sum(label is not None for _, label, *_ in some) >= MIN_LABELLED
    }
    if len(enough) == 2:
        enough.pop(ALL)  # the only item is all items
    if any(label is not None for _, label, *_ in targets) and on_unit_scale([text.labels for text in texts]):
        enough[TARGETS] = targets
    return [_rate(name, some) for name, some in enough.items()]


def win_rate(
    one: Sequence[ScoredText],
    other: Sequence[ScoredText],
    names: tuple[str, str],
) -> Rate:
    """How often the texts of one file are better than those of another, corrected by the labels of both.

    A pair is two rows of the same id. It counts 1 if the first has the higher score, 0.5 if they are equal; its label
    is the same of the scores by labels, as `agree` computes them.

    Args:
        one, other (sequences of [`ScoredText`]): the texts of either file, with their labels. The chance of a pair is
            that of its text in `one`.
        names (pair of `str`): of the files.

    Raises:
        SampleError: If the files have no scored row of the same id.
    """
    truth = [{target.key: target.other for target in units_against_labels(texts)[1]} for texts in (one, other)]
    units: list[_Unit] = []
    for first, second in pairs_of(one, other, names, same_texts=False)[0]:
        judged = _win(first.judged.primary_score, second.judged.primary_score)
        if judged is not None and not (first.judged.no_answer or second.judged.no_answer):
            true = _win(truth[0].get(first.id), truth[1].get(second.id))
            units.append((judged, true, first.group, first.chance))
    return _rate(f"wins of {names[0]} over {names[1]}", units)


_Unit = tuple[float, float | None, str, float | None]
"""Judged value, label, group, and the probability with which it was chosen for labelling."""


def _rate(name: str, units: Sequence[_Unit]) -> Rate:
    judged, labels, groups, chances = zip(*units, strict=True) if units else ((),) * 4
    return corrected_rate(judged, labels, groups, name, chances)


def _win(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return None
    return 0.5 if abs(one - other) <= EQUAL else float(one > other)


@dataclass(frozen=True)
class LabelSample:
    """A random order of texts in which uncertain ones come early, but every text can come first.

    The size of a text is the standard deviation of its answers under the judge's probabilities plus the mean of these
    over the texts, so that a text is at least half as likely as in an equal draw. The order is that of u / size, with
    u uniform in [0, 1): priority sampling (Duffield, Lund and Thorup 2007, arXiv:cs/0509026). A person may stop
    anywhere: given the number of texts, each of them had one of the `probabilities`, and sums of label / probability
    over them are unbiased.
    """

    order: tuple[int, ...]
    sizes: tuple[float, ...]
    keys: tuple[float, ...]

    @classmethod
    def of(cls, names: Sequence[str], scores: Sequence[Score | None], seed: int = 0) -> LabelSample:
        """The order of texts with unique names; the same names and seed give the same numbers u."""
        spreads = [math.sqrt(sum(map(_variance, () if score is None else score.items))) for score in scores]
        middle = fmean(spreads) if spreads else 0.0
        sizes = [spread + middle or 1.0 for spread in spreads]
        keys = [random.Random(f"{seed} {name}").random() / size for name, size in zip(names, sizes, strict=True)]
        return cls(tuple(sorted(range(len(keys)), key=lambda place: keys[place])), tuple(sizes), tuple(keys))

    def probabilities(self, count: int) -> dict[int, float]:
        """By place, the probability of the first `count` texts of the order."""
        if count >= len(self.order):
            return dict.fromkeys(self.order, 1.0)
        bound = self.keys[self.order[count]]
        return {place: min(1.0, self.sizes[place] * bound) for place in self.order[:count]}


def _variance(line: ItemScore) -> float:
    """The variance of an answer that is 0 or 1 under the judge's probability of its own answer; the largest one, 0.25,
    without probabilities."""
    if line.not_needed:
        return 0.0
    chance = max(line.probabilities.values(), default=0.5) if line.probabilities else 0.5
    return chance * (1 - chance)


def _part(values: np.ndarray, use: np.ndarray) -> np.ndarray:
    """Every unit's part of the error of a mean with weights."""
    return use * (values - use @ values / use.sum()) / use.sum()


def _figure(
    value: float, parts: np.ndarray, codes: np.ndarray, clusters: Groups, units: int, *, seen: bool = True
) -> Figure:
    """A rate with the interval of its parts, summed by group. `seen` is False for the judge's own rate, whose error is
    only bounded from below if all its values are equal."""
    value = min(max(float(value), 0.0), 1.0)  # a correction may leave [0, 1]
    if (reason := clusters.too_few()) is not None:
        return Figure(value=value, refused=reason)
    error = clustered_error(parts, codes, clusters.effective)
    least = 0.0
    if seen or error < EQUAL:
        least = math.hypot(value, 1 - value) / (clusters.effective if error < EQUAL else units)
    low, high = rate_interval(value, error, clusters.effective, units, least=least)
    return Figure(value=value, low=low, high=high)


def _shift(difference: float, f: np.ndarray, use: np.ndarray, codes: np.ndarray, clusters: Groups) -> float:
    """Two-sided p-value of a difference; 1 if all units are labelled. If the labelled units are a random sample, its
    error is also known from all units, also where the judge's values of the labelled ones happen to be equal."""
    every = _part(f, np.ones(len(f)))
    groups = Groups.of(codes)
    sampled = math.sqrt(groups.number / clusters.number - 1) * clustered_error(every, codes, groups.effective)
    error = max(clustered_error(_part(f, use) - every, codes, clusters.effective), sampled)
    if error < EQUAL:
        return 1.0 if abs(difference) < EQUAL else 0.0
    return t_test_p(difference / error, clusters.effective)
