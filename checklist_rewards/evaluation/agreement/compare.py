"""Comparison of a judge with labels or with another judge: all agreement figures with confidence intervals.

A [`Unit`] is one item about one target with the answers of both sides: a judge and the labels, or two judges. Units
left unanswered by a side count in the coverage and in no other figure. Targets without an answer count in no figure,
because a judge did not read them; `no_answer` has their number. Kappa is only defined for items with the same
possible answers, so each kind of item has its own section. With several kinds, a further section covers all items
with the figures that do not depend on the answer names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from checklist_rewards.checklists import YES, Checklist, ChecklistItem
from checklist_rewards.evaluation.agreement.bootstrap import Bootstrap, Figure, Measure
from checklist_rewards.evaluation.agreement.categories import Categories
from checklist_rewards.evaluation.agreement.numbers import Mean, Numbers
from checklist_rewards.evaluation.agreement.paired import PairedTest, paired_test
from checklist_rewards.evaluation.agreement.pairs import Preferences, pairs_within
from checklist_rewards.evaluation.agreement.raters import Raters
from checklist_rewards.evaluation.agreement.scored import Answer, JudgedRow, answer_given, kind_of
from checklist_rewards.scores import Aggregation, Verdict, score_checklist

ALL = "all items"


@dataclass(frozen=True, slots=True)
class Unit:
    """One item about one target, answered by two sides."""

    key: tuple[str, str]
    """Row id and item key."""
    group: str
    item: ChecklistItem
    one: Answer | None
    other: Answer | None

    @property
    def answered(self) -> bool:
        """Whether both sides answered."""
        return self.one is not None and self.other is not None


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


class Section(BaseModel):
    """Figures over the same units."""

    model_config = ConfigDict(frozen=True)

    units: int
    figures: dict[str, Figure]
    labels: tuple[str, ...] | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None
    """Counts of answers in the order of `labels`: the judge in rows, the other side in columns."""


class Comparison(BaseModel):
    """All agreement figures of two sides."""

    model_config = ConfigDict(frozen=True)

    one: str
    other: str
    units: int
    """Number of comparable items: labelled, or present in both files."""
    coverage: Figure
    """Fraction of the units answered by both sides; with labels, by the judge."""
    unmatched_rows: int = 0
    """Rows present in only one of two files; with a separate label file, labelled rows without a score."""
    unmatched_items: int = 0
    """Items present in only one of the two scores of a row."""
    no_answer: int = 0
    """Targets left out because they have no answer."""
    items: dict[str, Section]
    """By kind of item: "yes/no", or its options."""
    targets: Section | None = None
    """Agreement of target scores."""
    preferences: Section | None = None
    """Agreement on pairs of targets of the same input."""


def units_against_labels(
    rows: Sequence[JudgedRow], labels: Sequence[list[Answer | None] | float | None]
) -> tuple[list[Unit], list[Target]]:
    """Collect the labelled items and the targets that have a label or fully labelled items.

    If all items of a target are labelled, its labels are aggregated to a score in the same way as the judge's score:
    with its metric, threshold, `min_answered` and `abstention`, and the checklist's weights and required items. If
    the score records no `aggregation`, the defaults and the metric of the score are used.

    Args:
        rows (sequence of [`JudgedRow`]).
        labels (sequence, one per row): from [`labels_of`].
    """
    units: list[Unit] = []
    targets: list[Target] = []
    for row, given in zip(rows, labels, strict=True):
        unread = row.score.no_answer
        judged = None if unread else row.score.primary_score
        if isinstance(given, float):
            targets.append(Target(row.id, row.group, judged, given, True, unread))
        elif given is not None:
            units += [
                Unit((row.id, key), row.group, item, answer_given(item, line), label)
                for key, item, line, label in zip(row.keys, row.items, row.score.items, given, strict=True)
                if label is not None and not unread
            ]
            targets.append(Target(row.id, row.group, judged, _true_score(row, given), False, unread))
    return units, targets


def units_of_judges(
    pairs: Sequence[tuple[JudgedRow, JudgedRow]],
) -> tuple[list[Unit], list[Target], int]:
    """Collect the items present in both scores of a row, and count the items present in only one."""
    units: list[Unit] = []
    targets: list[Target] = []
    unmatched = 0
    for one, other in pairs:
        theirs = dict(zip(other.keys, zip(other.items, other.score.items, strict=True), strict=True))
        mine = list(zip(one.keys, one.items, one.score.items, strict=True))
        unread = one.score.no_answer or other.score.no_answer
        judged = None if unread else one.score.primary_score
        targets.append(Target(one.id, one.group, judged, other.score.primary_score, no_answer=unread))
        if unread:
            continue
        shared = [line for line in mine if line[0] in theirs]
        unmatched += len(mine) + len(theirs) - 2 * len(shared)
        units += [
            Unit((one.id, key), one.group, item, answer_given(item, line), answer_given(*theirs[key]))
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
    **counts: int,
) -> Comparison:
    """Compute all agreement figures of two sides.

    Args:
        names (pair of `str`): name of the judge, and of the other judge or the labels.
        units, targets (sequences of [`Unit`] and [`Target`]): from [`units_against_labels`] or [`units_of_judges`].
        bootstrap ([`Bootstrap`]): settings of the confidence intervals.
        against_labels (`bool`): the other side is the truth; adds precision, recall, F1 and phi.
        inputs (sequence of `str`, one per target, *optional*): the input of each target. Targets of the same input
            are also compared in pairs.
        counts: `unmatched_rows` and `unmatched_items`, copied to the result.
    """
    kinds: dict[str, list[Unit]] = {}
    for unit in units:
        kinds.setdefault(kind_of(unit.item), []).append(unit)
    if len(kinds) > 1:
        kinds[ALL] = list(units)
    sections = {kind: _section(kind, members, bootstrap, against_labels) for kind, members in kinds.items()}
    covered = bootstrap.figures(Mean("coverage", [unit.answered for unit in units]), [unit.group for unit in units])
    known = [target for target in targets if target.one is not None and target.other is not None]
    return Comparison(
        one=names[0],
        other=names[1],
        units=len(units),
        coverage=covered["coverage"],
        no_answer=sum(target.no_answer for target in targets),
        items=sections,
        targets=_targets(known, bootstrap) if known else None,
        preferences=None if inputs is None else _preferences(targets, inputs, bootstrap),
        **counts,
    )


def compare_raters(files: Sequence[Sequence[JudgedRow]], bootstrap: Bootstrap) -> dict[str, Section]:
    """Agreement among several judges, by kind of item, on the rows and items that all files contain."""
    shared = [{row.id: row for row in rows} for rows in files]
    units: list[tuple[ChecklistItem, str, list[str | None]]] = []
    for row in files[0]:
        if any(row.id not in rows for rows in shared):
            continue
        same_row = [rows[row.id] for rows in shared]
        lines = [dict(zip(one.keys, one.score.items, strict=True)) for one in same_row]
        for key, item in zip(row.keys, row.items, strict=True):
            if all(key in answers for answers in lines):
                given = [None if a[key].unanswered is not None else a[key].answer for a in lines]
                if not all(one.score.no_answer for one in same_row):
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
    values: dict[str, dict[str, float | None]] = {}
    for item, group, given in units:
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
    theirs = {unit.key: unit for unit in other if unit.answered}
    both = [(unit, theirs[unit.key]) for unit in one if unit.answered and unit.key in theirs]
    right = [[unit.one.label == unit.other.label for unit in side] for side in zip(*both, strict=True)]
    errors = [(_error(a), _error(b), a.group) for a, b in both]
    known = [(a, b, group) for a, b, group in errors if a is not None and b is not None]
    return paired_test(
        names,
        (right[0], right[1]) if right else ((), ()),
        ([a for a, _, _ in known], [b for _, b, _ in known]),
        [unit.group for unit, _ in both],
        [group for _, _, group in known],
        bootstrap.seed,
    )


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
        equal: Measure = Mean("accuracy", [one.label == other.label for _, one, other in answered])
        figures |= bootstrap.figures(equal, groups)
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


def _targets(known: Sequence[Target], bootstrap: Bootstrap) -> Section:
    measured = Numbers([target.one or 0.0 for target in known], [target.other or 0.0 for target in known])
    return Section(units=len(known), figures=bootstrap.figures(measured, [target.group for target in known]))


def _preferences(targets: Sequence[Target], inputs: Sequence[str], bootstrap: Bootstrap) -> Section:
    pairs = [
        (targets[i].one - targets[j].one, targets[i].other - targets[j].other, inputs[i])  # type: ignore[operator]
        for i, j in pairs_within(inputs)
        if None not in (targets[i].one, targets[j].one, targets[i].other, targets[j].other)
    ]
    measured = Preferences([judged for judged, _, _ in pairs], [truth for _, truth, _ in pairs])
    # Pairs that share a target are not independent, so all pairs of an input are resampled together.
    return Section(units=len(pairs), figures=bootstrap.figures(measured, [group for _, _, group in pairs]))


def _true_score(row: JudgedRow, labels: Sequence[Answer | None]) -> float | None:
    """The score of the target computed from its labels, aggregated like the judge's score."""
    score = row.score
    if not row.known or any(label is None for label in labels) or score.primary_metric == "quality":
        return None
    rules = score.aggregation or Aggregation(primary_metric=score.primary_metric)
    verdicts = [Verdict(answer=label.label) for label in labels if label is not None]
    return score_checklist(Checklist(items=row.items), verdicts, rules).primary_score


def _error(unit: Unit) -> float | None:
    if unit.one is None or unit.other is None or unit.one.soft is None or unit.other.value is None:
        return None
    return abs(unit.one.soft - unit.other.value)
