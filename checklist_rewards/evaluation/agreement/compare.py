"""The comparison of two sides: units in, every figure with its interval out.

A [`Unit`] is one item about one target as two sides answered it: a judge and the labels, or two judges. Units that a
side left unanswered are counted in the coverage and are in no other figure. Items with different possible answers have
no common kappa, so there is a section for each kind of item, and where there are several one more for all together
with what does not depend on the answers' names.
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
    """One item about one target."""

    key: tuple[str, str]
    """Row and item."""
    group: str
    item: ChecklistItem
    one: Answer | None
    other: Answer | None

    @property
    def answered(self) -> bool:
        """By both sides."""
        return self.one is not None and self.other is not None


@dataclass(frozen=True, slots=True)
class Target:
    """One target with the number that each side gives it."""

    key: str
    group: str
    one: float | None
    other: float | None
    given: bool = False
    """Whether `other` is a label by itself, a number on a scale of its own."""


class Section(BaseModel):
    """Figures of the same units."""

    model_config = ConfigDict(frozen=True)

    units: int
    figures: dict[str, Figure]
    labels: tuple[str, ...] | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None
    """Counts of answers, the judge's down, the other side's across, in the order of `labels`."""


class Comparison(BaseModel):
    """Everything about two sides."""

    model_config = ConfigDict(frozen=True)

    one: str
    other: str
    units: int
    """Items that could be compared: with a label, or in both files."""
    coverage: Figure
    """Share of the units that both sides answered; with labels, that the judge answered."""
    unmatched_rows: int = 0
    """Rows that only one of two files has; with labels in a file of their own, labelled rows that were not scored."""
    unmatched_items: int = 0
    """Items that only one of two scores of a row has."""
    items: dict[str, Section]
    """By kind of item: "yes/no", or the options."""
    targets: Section | None = None
    """The scores of whole targets."""
    preferences: Section | None = None
    """Pairs of targets of the same input."""


def units_against_labels(
    rows: Sequence[JudgedRow], labels: Sequence[list[Answer | None] | float | None]
) -> tuple[list[Unit], list[Target]]:
    """What can be compared with labels: items that have one, and targets that have a number.

    A target whose items are all labelled also gets a score from its labels. It is aggregated by the rules that the
    judge's score was made with: its metric, threshold, `min_answered` and `abstention`, and the checklist's weights
    and required items. A score without recorded rules (`aggregation`) uses the defaults and its own metric.

    Args:
        rows (sequence of [`JudgedRow`]).
        labels (sequence, one per row): from [`labels_of`].
    """
    units: list[Unit] = []
    targets: list[Target] = []
    for row, given in zip(rows, labels, strict=True):
        if isinstance(given, float):
            targets.append(Target(row.id, row.group, row.score.primary_score, given, True))
        elif given is not None:
            units += [
                Unit((row.id, key), row.group, item, answer_given(item, line), label)
                for key, item, line, label in zip(row.keys, row.items, row.score.items, given, strict=True)
                if label is not None
            ]
            targets.append(Target(row.id, row.group, row.score.primary_score, _true_score(row, given)))
    return units, targets


def units_of_judges(
    pairs: Sequence[tuple[JudgedRow, JudgedRow]],
) -> tuple[list[Unit], list[Target], int]:
    """What two judges can be compared on: items that both scores of a row have; and how many only one has."""
    units: list[Unit] = []
    targets: list[Target] = []
    unmatched = 0
    for one, other in pairs:
        theirs = dict(zip(other.keys, zip(other.items, other.score.items, strict=True), strict=True))
        mine = list(zip(one.keys, one.items, one.score.items, strict=True))
        shared = [line for line in mine if line[0] in theirs]
        unmatched += len(mine) + len(theirs) - 2 * len(shared)
        units += [
            Unit((one.id, key), one.group, item, answer_given(item, line), answer_given(*theirs[key]))
            for key, item, line in shared
        ]
        targets.append(Target(one.id, one.group, one.score.primary_score, other.score.primary_score))
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
    """All figures of two sides.

    Args:
        names (pair of `str`): of the judge, and of the other judge or the labels.
        units, targets (sequences): what is compared.
        bootstrap ([`Bootstrap`]).
        against_labels (`bool`): the other side is the truth: precision, recall, F1 and phi make sense.
        inputs (sequence of `str`, one per target, *optional*): what each target answers; makes pairs of them.
        counts: `unmatched_rows`, `unmatched_items`.
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
        items=sections,
        targets=_targets(known, bootstrap) if known else None,
        preferences=None if inputs is None else _preferences(targets, inputs, bootstrap),
        **counts,
    )


def compare_raters(files: Sequence[Sequence[JudgedRow]], bootstrap: Bootstrap) -> dict[str, Section]:
    """Agreement among several judges, by kind of item; rows and items that not every file has are left out."""
    shared = [{row.id: row for row in rows} for rows in files]
    kinds: dict[str, list[tuple[str, list[str | None]]]] = {}
    values: dict[str, dict[str, float | None]] = {}
    for row in files[0]:
        if any(row.id not in rows for rows in shared):
            continue
        found = [rows[row.id] for rows in shared]
        lines = [dict(zip(one.keys, one.score.items, strict=True)) for one in found]
        for key, item in zip(row.keys, row.items, strict=True):
            if all(key in answers for answers in lines):
                given = [None if a[key].unanswered is not None else a[key].answer for a in lines]
                kinds.setdefault(kind_of(item), []).append((row.group, given))
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
    """Test whether one of two judges is nearer to the labels, on the items that both answered."""
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
    found: dict[str, Figure] = {}
    labels = confusion = None
    if kind == ALL:
        equal: Measure = Mean("accuracy", [one.label == other.label for _, one, other in answered])
        found |= bootstrap.figures(equal, groups)
    else:
        values = units[0].item.values
        positive = YES if against_labels and YES in values else None
        names = [one.label for _, one, _ in answered], [other.label for _, _, other in answered]
        categories = Categories(*names, values, positive)
        found |= bootstrap.figures(categories, groups)
        labels, confusion = tuple(categories.labels), tuple(tuple(map(int, row)) for row in categories.confusion)
    measured = Numbers([one for one, _, _ in numbers], [other for _, other, _ in numbers])
    found |= bootstrap.figures(measured, [group for _, _, group in numbers])
    return Section(units=len(answered), figures=found, labels=labels, confusion=confusion)


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
    # Pairs that share a target are not independent: an input's pairs are drawn together.
    return Section(units=len(pairs), figures=bootstrap.figures(measured, [group for _, _, group in pairs]))


def _true_score(row: JudgedRow, labels: Sequence[Answer | None]) -> float | None:
    """The score that the labels give the target, by the rules of the judge's score."""
    score = row.score
    if not row.known or any(label is None for label in labels) or score.primary_metric == "quality":
        return None
    rules = score.aggregation or Aggregation(primary_metric=score.primary_metric)  # type: ignore[arg-type]
    verdicts = [Verdict(answer=label.label) for label in labels if label is not None]
    return score_checklist(Checklist(items=row.items), verdicts, rules).primary_score


def _error(unit: Unit) -> float | None:
    if unit.one is None or unit.other is None or unit.one.soft is None or unit.other.value is None:
        return None
    return abs(unit.one.soft - unit.other.value)
