"""Comparison of a judge with labels or with another judge: all agreement figures with confidence intervals.

A [`Unit`] is one item about one target with the answers of both sides: a judge and the labels, or two judges. Units
left unanswered by a side count in the coverage and in no other figure. Targets without an answer count in no figure,
because a judge did not read them; `no_answer` has their number. Kappa is only defined for items with the same
possible answers, so each kind of item has its own section; levels in other words are of one kind ([`by_levels`]). With
several kinds, a further section covers all items with the figures that do not depend on the answer names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from checklist_rewards.checklists import YES, Checklist, ChecklistItem
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, Result, group_codes
from checklist_rewards.evaluation.intervals import SHARE
from checklist_rewards.evaluation.measures import (
    CORRELATIONS,
    NUMERICAL,
    Categories,
    Numbers,
    Preferences,
    Raters,
    connected,
    pairs_within,
)
from checklist_rewards.evaluation.scored import ItemAnswer, ScoredText, answer_given, by_levels, kind_of
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.judges.calibration import reliability
from checklist_rewards.scores import EQUAL, Verdict, score_checklist
from checklist_rewards.validation import import_extra, np

EXACT_BELOW = 25
"""With fewer discordant items than this, McNemar's test uses the exact binomial distribution."""
_FLIPS, _BATCH = 10_000, 100
_EXACT_GROUPS = 13
_LEAST_TEXTS = 5


class PairedTest(Result):
    """Two judges on the same labelled items.

    McNemar's test compares the items that only one of them answered correctly, and needs every item in a group of its
    own. The permutation test does not: if the judges are equal, their answers are exchangeable within each *group*, so
    it flips the signs of the differences of whole groups.
    """

    one: str
    other: str
    units: int
    """Labelled items that both judges answered."""
    only_one_right: int
    only_other_right: int
    accuracy_difference: float | None
    """Accuracy of `one` minus accuracy of `other`."""
    mcnemar_p: float | None
    """None if both judges are correct on exactly the same items, or if items share a group: the test assumes
    independent items."""
    permutation_p: float | None
    """Two-sided p-value of the difference in accuracy."""


def paired_test(
    names: tuple[str, str],
    right: tuple[Sequence[bool], Sequence[bool]],
    groups: Sequence[Hashable],
    seed: int = 0,
) -> PairedTest:
    """Compare two judges.

    Args:
        names (pair of `str`): of the two judges.
        right (pair of sequences of `bool`): for each judge, whether each answer equals the label.
        groups (sequence): the group of each item.
        seed (`int`, *optional*, defaults to `0`): seed of the permutations.
    """
    one, other = (np.asarray(side, dtype=bool) for side in right)
    gained, lost = int((one & ~other).sum()), int((~one & other).sum())
    difference = one.astype(float) - other
    mcnemar_p = None
    if gained + lost and len(set(groups)) == len(one):
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
    )


def permutation_p(differences: np.ndarray, groups: Sequence[Hashable], seed: int = 0) -> float | None:
    """Two-sided p-value of the sum of differences under sign flips of whole groups; None for fewer than two groups.

    Exact for up to 13 groups with a nonzero difference, otherwise estimated from 10,000 random flips.
    """
    codes = group_codes(groups)
    sums = np.bincount(codes, differences) if len(codes) else np.zeros(0)
    if len(sums) < 2:
        return None
    sums = sums[np.abs(sums) > EQUAL]  # flipping a zero changes nothing
    if len(sums) < 2:
        return 1.0
    if len(sums) <= _EXACT_GROUPS:
        [stats] = import_extra("scipy.stats")
        every = {"permutation_type": "samples", "vectorized": True, "n_resamples": np.inf}
        return float(stats.permutation_test((sums,), lambda flipped, axis: np.sum(flipped, axis=axis), **every).pvalue)
    # For random flips, scipy is forty times slower than this matrix product.
    rng = np.random.default_rng(seed)
    far, extreme = abs(sums.sum()) - EQUAL, 0
    for _ in range(_FLIPS // _BATCH):
        signs = 2.0 * rng.integers(0, 2, (_BATCH, len(sums)), dtype=np.int8) - 1
        extreme += int((np.abs(signs @ sums) >= far).sum())
    return (extreme + 1) / (_FLIPS + 1)


def check_plots(path: Path | None) -> None:
    """Raise [`SampleError`] if something is to be drawn to a path and matplotlib is missing."""
    if path is not None:
        import_extra("matplotlib.figure")


def yes_no_curve(units: Sequence[Unit]) -> tuple[list[float], list[float]]:
    """P(yes) of a judge's answers to yes/no items, and whether the other side says yes (1 or 0)."""
    known = [
        (unit.one.soft, float(unit.other.label == YES))
        for unit in units
        if unit.one is not None and unit.other is not None and unit.item.options is None and unit.one.probabilities
        if not unit.by_code and unit.one.soft is not None
    ]
    return [p for p, _ in known], [truth for _, truth in known]


def plot_reliability(path: Path, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], title: str) -> None:
    """Plot a reliability diagram: the observed frequency against the predicted probability.

    A calibrated judge lies on the diagonal.

    Args:
        path (`Path`): the PNG file.
        curves (mapping of `str` to a pair of sequences): by legend name, the probabilities and the outcomes (1 or 0).
        title (`str`): title of the plot.
    """
    with plot(path) as axes:
        axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle="--")
        for name, (probabilities, truths) in curves.items():
            bins = [bin for bin in reliability(probabilities, truths) if bin.count]
            [line] = axes.plot(
                [bin.confidence for bin in bins], [bin.frequency for bin in bins], marker="o", label=name
            )
            most = max(bin.count for bin in bins)
            for bin in bins:  # bar heights show how many reads a point is based on
                axes.bar(bin.confidence, 0.1 * bin.count / most, 0.02, color=line.get_color(), alpha=0.4)
        axes.set(xlabel="probability", ylabel="share that is true", title=title, xlim=(-0.02, 1.02), ylim=(0, 1.02))
        axes.legend()


@contextmanager
def plot(path: Path, size: tuple[float, float] = (4.2, 4.2), dpi: int = 120) -> Iterator[Any]:
    """The axes of a plot, which is then saved as a PNG file, atomically. Raises [`SampleError`] if matplotlib is not
    installed."""
    [figures] = import_extra("matplotlib.figure")
    figure = figures.Figure(figsize=size, layout="constrained")
    yield figure.subplots()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=dpi)


ALL = "all items"


@dataclass(frozen=True, slots=True)
class Unit:
    """One item about one target, answered by two sides."""

    key: tuple[str, str]
    """Row id and item key."""
    group: str
    item: ChecklistItem
    one: ItemAnswer | None
    other: ItemAnswer | None
    by_code: bool = False
    """Whether a code check answered on a side, so that the unit says nothing about a judge."""

    @property
    def answered(self) -> bool:
        """Whether both sides answered."""
        return self.one is not None and self.other is not None

    @property
    def equal(self) -> bool:
        """Whether both sides gave the same answer."""
        return self.one is not None and self.other is not None and self.one.label == self.other.label


@dataclass(frozen=True, slots=True)
class Target:
    """One target with the score from each side."""

    key: str
    group: str
    one: float | None
    """None if the target has no score, or no answer that a judge could have read."""
    other: float | None
    given: bool = False
    """Whether `other` is a label of the whole target, on its own scale, instead of a score."""
    no_answer: bool = False
    """Whether a judge did not read the target, because it has no answer."""


class Section(Result):
    """Figures over the same units."""

    units: int
    figures: dict[str, Figure]
    labels: tuple[str, ...] | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None
    """Counts of answers in the order of `labels`: the judge in rows, the other side in columns."""


class Comparison(Result):
    """All agreement figures of two sides."""

    one: str
    other: str
    units: int
    """Number of comparable items that judges answer: labelled, or present in both files."""
    coverage: Figure
    """Fraction of the units answered by both sides; with labels, by the judge."""
    unmatched_rows: int = 0
    """Rows present in only one of two files; with a separate label file, labelled rows without a score."""
    unmatched_items: int = 0
    """Items present in only one of the two scores of a row."""
    no_answer: int = 0
    """Targets left out because they have no answer."""
    code_checks: int = 0
    """Items with two answers of which a code check gave one. They are in none of `items`: they are no judge's."""
    code_checks_equal: int = 0
    """Those with equal answers."""
    items: dict[str, Section]
    """By kind of item: "yes/no", or its options."""
    ranked: bool = False
    """Whether the labels of targets are on a scale of their own, so that scores are only correlated with them."""
    targets: Section | None = None
    """Agreement of target scores, which include code checks."""
    preferences: Section | None = None
    """Agreement on pairs of targets of the same input."""


def units_against_labels(texts: Sequence[ScoredText]) -> tuple[list[Unit], list[Target]]:
    """Collect the labelled items and the targets that have a label or fully labelled items.

    If all items of a target are labelled, its labels are aggregated to a score in the same way as the judge's score:
    with its metric, threshold, `min_answered`, `abstention`, weights and required items. If
    the score records no `aggregation`, the defaults and the metric of the score are used.

    Args:
        texts (sequence of [`ScoredText`]): the texts, with their labels.
    """
    units: list[Unit] = []
    targets: list[Target] = []
    for row in texts:
        given, unread = row.labels, row.judged.no_answer
        judged = None if unread else row.judged.primary_score
        if isinstance(given, int | float):
            targets.append(Target(row.id, row.group, judged, given, True, unread))
        elif given is not None:
            units += [
                Unit((row.id, key), row.group, item, answer_given(item, line), label, line.by_code)
                for key, item, line, label in zip(row.keys, row.items, row.judged.items, given, strict=True)
                if label is not None and not unread
            ]
            targets.append(Target(row.id, row.group, judged, _true_score(row, given), False, unread))
    return units, targets


def units_of_judges(
    pairs: Sequence[tuple[ScoredText, ScoredText]],
) -> tuple[list[Unit], list[Target], int]:
    """Collect the items present in both scores of a row, and count the items present in only one."""
    units: list[Unit] = []
    targets: list[Target] = []
    unmatched = 0
    for one, other in pairs:
        theirs = dict(zip(other.keys, zip(other.items, other.judged.items, strict=True), strict=True))
        mine = list(zip(one.keys, one.items, one.judged.items, strict=True))
        unread = one.judged.no_answer or other.judged.no_answer
        judged = None if unread else one.judged.primary_score
        targets.append(Target(one.id, one.group, judged, other.judged.primary_score, no_answer=unread))
        if unread:
            continue
        shared = [line for line in mine if line[0] in theirs]
        unmatched += len(mine) + len(theirs) - 2 * len(shared)
        units += [
            Unit(
                (one.id, key),
                one.group,
                item,
                answer_given(item, line),
                answer_given(*theirs[key]),
                line.by_code or theirs[key][1].by_code,
            )
            for key, item, line in shared
        ]
    return units, targets, unmatched


def compare(
    names: tuple[str, str],
    units: Sequence[Unit],
    targets: Sequence[Target],
    bootstrap: Bootstrap,
    *,
    against_labels: bool,
    inputs: Sequence[str] | None = None,
    ranked: bool = False,
    **counts: int,
) -> Comparison:
    """Compute all agreement figures of two sides.

    Figures of items are over the answers of judges. Answers of code checks are counted.

    Args:
        names (pair of `str`): name of the judge, and of the other judge or the labels.
        units, targets (sequences of [`Unit`] and [`Target`]): from [`units_against_labels`] or [`units_of_judges`].
        bootstrap ([`Bootstrap`]): settings of the confidence intervals.
        against_labels (`bool`): the other side is the truth; adds precision, recall, F1 and phi.
        inputs (sequence of `str`, one per target, *optional*): the input of each target. Targets of the same input
            are also compared in pairs.
        ranked (`bool`, *optional*, defaults to `False`): the labels of targets are on a scale of their own, such as 1
            to 5 stars, so that scores are only correlated with them.
        counts: `unmatched_rows` and `unmatched_items`, copied to the result.
    """
    checks = [unit for unit in units if unit.by_code and unit.answered]
    units = [unit for unit in units if not unit.by_code]
    kinds: dict[str, list[Unit]] = {}
    levels = by_levels(unit.item for unit in units)
    for unit in units:
        if item := levels.get(kind_of(unit.item)):
            words = dict(zip(unit.item.values, item.values, strict=True))
            one, other = (side and replace(side, label=words[side.label]) for side in (unit.one, unit.other))
            unit = replace(unit, item=item, one=one, other=other)
        kinds.setdefault(kind_of(unit.item), []).append(unit)
    if len(kinds) > 1:
        kinds[ALL] = list(units)
    sections = {kind: _section(kind, members, bootstrap, against_labels) for kind, members in kinds.items()}
    known = [target for target in targets if target.one is not None and target.other is not None]
    return Comparison(
        one=names[0],
        other=names[1],
        units=len(units),
        coverage=bootstrap.mean([unit.answered for unit in units], [unit.group for unit in units], SHARE),
        no_answer=sum(target.no_answer for target in targets),
        code_checks=len(checks),
        code_checks_equal=sum(unit.equal for unit in checks),
        items=sections,
        ranked=ranked,
        targets=_targets(known, bootstrap, CORRELATIONS if ranked else NUMERICAL) if known else None,
        preferences=None if inputs is None else _preferences(targets, inputs, bootstrap),
        **counts,
    )


def verdict(comparison: Comparison) -> str | None:
    """Whether two sides agree better than chance, as a sentence. Its figure is the kappa of the largest kind of items,
    or without one Spearman's correlation of the target scores; None if there is neither."""
    kinds = {kind: section for kind, section in comparison.items.items() if "kappa" in section.figures}
    if kinds:
        kind, section = max(kinds.items(), key=lambda pair: pair[1].units)
        name, what = "kappa", f"{section.units} {kind} items"
    elif comparison.targets is not None:
        name, section = "spearman", comparison.targets
        what = f"the scores of {section.units} targets"
    else:
        return None
    figure, sides = section.figures[name], f"{comparison.one} agrees with {comparison.other}"
    low, high = figure.limits
    measured = f"on {what}: {name} {figure}."
    if low is None or high is None:
        return f"It is unknown whether {sides} better than chance {measured}"
    how = "better than chance" if low > 0 else "worse than chance" if high < 0 else "no better than chance"
    return f"{sides} {how} {measured}"


class ItemAgreement(NamedTuple):
    """The agreement of two sides on one question."""

    question: str
    answered: int
    """Texts for which both sides answered."""
    equal: float
    """Fraction of them with equal answers."""
    one: float | None
    """Mean value of the answers of the first side; of yes and no, the fraction of yes."""
    other: float | None


def by_item(units: Sequence[Unit]) -> list[ItemAgreement]:
    """The agreement on every question that both sides answered about 5 texts or more, lowest first. Answers of code
    checks are left out."""
    answers: dict[str, list[Unit]] = {}
    for unit in units:
        if unit.answered and not unit.by_code:
            answers.setdefault(unit.item.question, []).append(unit)
    found = []
    for question, own in answers.items():
        if len(own) >= _LEAST_TEXTS:
            sides = [
                [side.value for side in both if side and side.value is not None]
                for both in zip(*((unit.one, unit.other) for unit in own), strict=True)
            ]
            means = [fmean(values) if values else None for values in sides]
            found.append(ItemAgreement(question, len(own), fmean(unit.equal for unit in own), *means))
    return sorted(found, key=lambda line: line.equal)


def compare_raters(files: Sequence[Sequence[ScoredText]], bootstrap: Bootstrap) -> dict[str, Section]:
    """Agreement among several judges, by kind of item, on the rows and items that all files contain, without those
    that a code check answered."""
    shared = [{row.id: row for row in rows} for rows in files]
    units: list[tuple[ChecklistItem, str, list[str | None]]] = []
    for row in files[0]:
        if any(row.id not in rows for rows in shared):
            continue
        same_row = [rows[row.id] for rows in shared]
        lines = [one.lines for one in same_row]
        for key, item in zip(row.keys, row.items, strict=True):
            if all(key in answers and not answers[key].by_code for answers in lines):
                given = [None if a[key].unanswered is not None else a[key].answer for a in lines]
                if not all(one.judged.no_answer for one in same_row):
                    units.append((item, row.group, given))
    return agreement_of(units, bootstrap)


def agreement_of(
    units: Sequence[tuple[ChecklistItem, str, Sequence[str | None]]], bootstrap: Bootstrap
) -> dict[str, Section]:
    """Agreement among several judges or annotators, by kind of item.

    Args:
        units (sequence of item, group and answers): the answers of all judges to an item, None if unanswered.
        bootstrap ([`Bootstrap`]): settings of the confidence intervals.
    """
    kinds: dict[str, list[tuple[str, Sequence[str | None]]]] = {}
    values: dict[str, Mapping[str, float | None]] = {}
    levels = by_levels(item for item, _, _ in units)
    for item, group, given in units:
        if named := levels.get(kind_of(item)):
            words = dict(zip(item.values, named.values, strict=True))
            item, given = named, [None if label is None else words[label] for label in given]
        kinds.setdefault(kind_of(item), []).append((group, given))
        values[kind_of(item)] = item.values
    return {
        kind: Section(
            units=len(members),
            figures=bootstrap.figures(
                Raters([given for _, given in members], values[kind]), [group for group, _ in members]
            ),
        )
        for kind, members in kinds.items()
    }


def compare_judges(
    names: tuple[str, str], one: Sequence[Unit], other: Sequence[Unit], bootstrap: Bootstrap
) -> PairedTest:
    """Test whether one of two judges is closer to the labels, on the items that both judges answered."""
    theirs = {unit.key: unit for unit in other if unit.answered and not unit.by_code}
    both = [(unit, theirs[unit.key]) for unit in one if unit.answered and not unit.by_code and unit.key in theirs]
    right = [a.equal for a, _ in both], [b.equal for _, b in both]
    return paired_test(names, right, [a.group for a, _ in both], bootstrap.seed)


def _section(kind: str, units: Sequence[Unit], bootstrap: Bootstrap, against_labels: bool) -> Section:
    answered = [(unit, unit.one, unit.other) for unit in units if unit.one is not None and unit.other is not None]
    groups = [unit.group for unit, _, _ in answered]
    numbers = [
        (one.soft, against, unit.group)
        for unit, one, other in answered
        if one.soft is not None and (against := other.value if against_labels else other.soft) is not None
    ]
    figures: dict[str, Figure] = {}
    labels = confusion = None
    if kind == ALL:
        figures["accuracy"] = bootstrap.mean([unit.equal for unit, _, _ in answered], groups, SHARE)
    else:
        values = units[0].item.values
        positive = YES if against_labels and YES in values else None
        names = [one.label for _, one, _ in answered], [other.label for _, _, other in answered]
        categories = Categories(*names, values, positive)
        figures |= bootstrap.figures(categories, groups)
        labels, confusion = tuple(categories.labels), tuple(tuple(map(int, row)) for row in categories.confusion)
    measured = Numbers([one for one, _, _ in numbers], [other for _, other, _ in numbers])
    figures |= bootstrap.figures(measured, [group for _, _, group in numbers])
    return Section(units=len(answered), figures=figures, labels=labels, confusion=confusion)


def _targets(known: Sequence[Target], bootstrap: Bootstrap, only: Sequence[str]) -> Section:
    measured = Numbers([target.one or 0.0 for target in known], [target.other or 0.0 for target in known], only)
    return Section(units=len(known), figures=bootstrap.figures(measured, [target.group for target in known]))


def _preferences(targets: Sequence[Target], inputs: Sequence[str], bootstrap: Bootstrap) -> Section:
    known = {place for place, target in enumerate(targets) if None not in (target.one, target.other)}
    pairs = [pair for pair in pairs_within(inputs) if known.issuperset(pair)]
    judged, truth = (
        [getattr(targets[i], side) - getattr(targets[j], side) for i, j in pairs] for side in ("one", "other")
    )
    # Pairs that share a target or a group are not independent: all pairs of an input are resampled together.
    groups = connected([target.group for target in targets], pairs)
    measured = Preferences(judged, truth, groups=groups)
    return Section(units=len(pairs), figures=bootstrap.figures(measured, groups))


def _true_score(row: ScoredText, labels: Sequence[ItemAnswer | None]) -> float | None:
    """The score of the target computed from its labels, aggregated like the judge's score."""
    score = row.judged
    if not row.known or any(label is None for label in labels) or score.primary_metric == "quality":
        return None
    verdicts = [Verdict(answer=label.label) for label in labels if label is not None]
    return score_checklist(Checklist(items=row.items), verdicts, score.aggregation).primary_score
