"""The rubric loop: a checklist that is changed as long as it agrees better with labels.

    >>> found = improve(checklist, rows)  # doctest: +SKIP
    >>> print(found.diff())  # doctest: +SKIP

The groups of the rows are divided at random into three parts of equal size, so that no row is used for two purposes:

- the *choosing* rows show the weak items, and the gain of every proposed change orders the proposals;
- the *confirming* rows test a chosen change. It is kept if the agreement rises there;
- the *test* rows are used once, at the end, for the figures before and after.

Agreement is Pearson's correlation of the scores, as the judge's scorer computes them, with the labels. Scores include
the code checks of a checklist. With
preferences for labels it is the fraction of pairs in which the chosen text has the higher score; ties count half. Test
number t has the one-sided level 0.05 / (t (t + 1)) on a gain divided by its standard error, which follows from the
influence of every row on a correlation r, z z' - r (z^2 + z'^2) / 2 (Devlin et al. 1975), or of every pair on a
fraction, summed over the rows or pairs of a group. The quantile is that of Student's t with one degree of freedom
fewer than there are groups. These levels sum to 0.05, so the probability that a run keeps any change without an effect
is at most about 5 %, however many changes it tries (alpha spending, Lan and DeMets 1983, with a sum that telescopes).

There are three stages, and after a kept change the loop starts again with the first one:

1. changes that cost no read: *drop* a weak item, *merge* two that give the same answers, *turn* the sign of a weight
   whose item disagrees with the labels;
2. changes that a writer proposes: *reword* an item, *split* one that asks two things, and *new* items, from texts that
   the labels and the scores order differently;
3. *reweight* all items by their labels, as `fit` does. Items whose weight becomes 0 are dropped.

All proposals follow from the rows and the seed. With a store, a run that stopped is repeated without a new read or
reply up to the place where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure, group_codes
from checklist_rewards.evaluation.fitting import Compared, cross_fitted, labelled_scores
from checklist_rewards.evaluation.intervals import Groups, clustered_error, t_quantile
from checklist_rewards.evaluation.items import OFTEN_UNANSWERED, STABLE
from checklist_rewards.evaluation.measures import correlation, standardized
from checklist_rewards.evaluation.replay import Replay
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.evaluation.wording import ITEM_QUESTIONS
from checklist_rewards.evolving.proposer import Group
from checklist_rewards.evolving.rewriting import Change, Finding, Rewriter
from checklist_rewards.images import shown
from checklist_rewards.judges.faults import question_fault
from checklist_rewards.keys import prompt_identity
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import EQUAL, ItemScore, Score, rescore
from checklist_rewards.validation import np, whole_number

MIN_LABELS, MIN_GROUPS = 60, 15
"""Fewer labelled rows, or groups of them, are refused: each part has a third."""
FORMAT = "checklist-rewards-improve-1"
"""Names what [`Improvement.dumped`] returns, so that the app recognizes the file."""
LEVEL = 0.05
"""One-sided level of all tests of a run together."""
CONSTANT = 0.05
"""An item has no variance if the standard deviation of its credits is below this."""
SAME = 0.9
"""Two items are redundant if the credits have at least this correlation; they contradict each other at minus this."""
_CHANCE = 1.96
_REPEATED_ROWS = 40
_MOST_GROUPS, _OF_EACH_END = 3, 2
_LEAST_WEIGHT = 0.05

FAULTS = {
    "no_variance": f"the credits have a standard deviation below {CONSTANT}",
    "disagrees": "the credits fall where the labels rise",
    "unrelated": "the credits do not follow the labels",
    "redundant": f"another item has the same answers (correlation {SAME} or more)",
    "contradicts": f"another item has the opposite answers (correlation -{SAME} or less)",
    "ambiguous": f"fewer than {STABLE:.0%} of the answers stay when the judge is asked in other words",
    "often_unanswered": f"{OFTEN_UNANSWERED:.0%} of the reads or more are unanswered",
    "wording": "the question is not one yes/no question",
    "review": "the judge says that the question fails the meta-checklist",
}
"""Why an item is weak."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change that was tested."""

    change: Change
    kept: bool
    chosen: float
    """Gain in agreement on the choosing rows; of new weights, out-of-fold."""
    gain: Figure
    """Gain on the confirming rows, with its 95 % interval."""
    level: float
    """One-sided level of the test."""

    def lines(self, number: int) -> list[str]:
        """The step as text: what was changed, with its figures."""
        verdict = "kept" if self.kept else "refused"
        head = f"{number}. {self.change.kind}, {verdict}: {self.change.reason}"
        figures = f"   gain {self.chosen:+.3f} on choosing rows, {self.gain.shown()} on confirming rows"
        removed = [f"   - {_shown(item)}" for item in self.change.before]
        return [
            head,
            f"{figures} (level {self.level:.2g})",
            *removed,
            *(f"   + {_shown(i)}" for i in self.change.after),
        ]


@dataclass(frozen=True, slots=True)
class Improvement:
    """The improved checklist, and how it came about."""

    before: Checklist
    checklist: Checklist
    findings: tuple[Finding, ...]
    """Weak items of the given checklist, on the choosing rows."""
    steps: tuple[Step, ...]
    figures: dict[str, Figure]
    """`before`, `after` and `gain` on the test rows, which chose nothing: correlations with the labels, or fractions
    of pairs in order."""
    rows: tuple[int, int, int]
    """Numbers of choosing, confirming and test rows, or pairs."""
    reads: int
    """Answers of the judge that the changes took, stored ones included."""
    stopped: Literal["no gain", "patience", "budget"]
    measure: str = "correlation"
    """Or `"in order"`: of pairs."""

    def diff(self) -> str:
        """All steps as text, and the figures on the test rows."""
        steps = [line for number, step in enumerate(self.steps, start=1) for line in step.lines(number)]
        before, after, gain = (self.figures[name].shown() for name in ("before", "after", "gain"))
        what = "rows" if self.measure == "correlation" else "pairs"
        last = f"agreement on {self.rows[2]} test {what}: {before} before, {after} after, gain {gain}"
        count = f"{len(self.before)} items before, {len(self.checklist)} after; stopped: {self.stopped}"
        return "\n".join([*steps, last, count])

    def dumped(self) -> dict[str, Any]:
        """Everything as plain values, for a JSON file."""
        return {
            "format": FORMAT,
            "checklist": _dumped(self.checklist.items),
            "before": _dumped(self.before.items),
            "findings": [
                {"question": one.item.question, "fault": one.fault, "detail": one.detail} for one in self.findings
            ],
            "steps": [
                {
                    "kind": step.change.kind,
                    "kept": step.kept,
                    "reason": step.change.reason,
                    "before": _dumped(step.change.before),
                    "after": _dumped(step.change.after),
                    "chosen": step.chosen,
                    "gain": step.gain.model_dump(),
                    "level": step.level,
                }
                for step in self.steps
            ],
            "figures": {name: figure.model_dump() for name, figure in self.figures.items()},
            "rows": dict(zip(("choosing", "confirming", "test"), self.rows, strict=True)),
            "measure": self.measure,
            "reads": self.reads,
            "stopped": self.stopped,
        }


class _OutOfReadsError(Exception):
    """The budget of reads is spent."""


@dataclass
class _Rows:
    """Labelled rows with all answers that were read about them."""

    rows: Sequence[ScoredText]
    parts: Sequence[np.ndarray]
    """Places of the choosing, confirming and test rows."""
    scorer: ChecklistScorer | None
    max_reads: int | None
    progress: Progress | None
    pairs: Sequence[np.ndarray] | None = None
    """For preferences: by part, the chosen and the rejected row of every pair, as places in the part."""
    reads: int = 0
    lines: list[dict[str, ItemScore]] = field(default_factory=list)
    rules: list[Score] = field(default_factory=list)
    """One score per row, whose rules and state apply."""
    _known: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    """Scores by checklist and part."""
    _columns: dict[tuple[str, int], np.ndarray | None] = field(default_factory=dict)
    """Soft values by item and part."""

    def start(self, checklist: Checklist) -> None:
        """Read the checklist about all rows, or take the stored answers."""
        if self.scorer is not None:
            samples = [replace(one.to_judge, checklist=checklist) for one in self.rows]
            scores: Sequence[Score | None] = self.scorer.score_batch(samples, self.progress)
        else:
            scores = [one.score for one in self.rows]
        for one, score in zip(self.rows, scores, strict=True):
            if score is None or score.aggregation.primary_metric == "quality":
                raise SampleError(f"{one.where}: the row has no score of a checklist; set a judge.")
            lines = {line.id: line for line in score.items}
            missing = [item for item in checklist.items if item.id not in lines]
            if missing and not score.no_answer:
                raise SampleError(
                    f"{one.where}: item {missing[0].id} ({missing[0].question!r:.60}) of the checklist has no "
                    "stored answer; score the rows by this checklist, or set a judge."
                )
            self.lines.append(lines)
            self.rules.append(score)

    def read(self, items: Iterable[ChecklistItem], part: int) -> None:
        """Ask the judge about items that have no answer yet."""
        every = list({item.id: item.model_copy(update={"weight": 1.0}) for item in items}.values())
        asked = {n: [item for item in every if item.id not in self.lines[n]] for n in self.parts[part].tolist()}
        asked = {n: some for n, some in asked.items() if some and not self.rules[n].no_answer}
        count = sum(map(len, asked.values()))
        if not count:
            return
        assert self.scorer is not None
        if self.max_reads is not None and self.reads + count > self.max_reads:
            raise _OutOfReadsError
        samples = [replace(self.rows[n].to_judge, checklist=Checklist(items=tuple(some))) for n, some in asked.items()]
        for n, score in zip(asked, self.scorer.score_batch(samples, self.progress), strict=True):
            self.lines[n] |= {line.id: line for line in score.items}
        self._columns.clear()
        self.reads += count

    def scored(self, checklist: Checklist, part: int) -> list[Score]:
        """The scores of a part. Nothing is read."""
        found = []
        for n in self.parts[part].tolist():
            lines = tuple(self.lines[n][item.id] for item in checklist.items if item.id in self.lines[n])
            found.append(rescore(checklist, self.rules[n].model_copy(update={"items": lines})))
        return found

    def scores(self, checklist: Checklist, part: int) -> np.ndarray:
        """The scores as numbers, and the mean for a row without an answered item."""
        key = _content(checklist), part
        if key not in self._known:
            values, weights = self._values(checklist, part), np.array([item.weight for item in checklist.items])
            if values is None or any(item.required for item in checklist.items):
                numbers = [score.primary_score for score in self.scored(checklist, part)]
                found = np.array([np.nan if number is None else number for number in numbers])
            else:  # the same numbers, a hundred times as fast
                total = weights[weights > 0].sum()
                found = values @ weights / total if total > 0 else 1 + values @ weights / np.abs(weights).sum()
                found = np.clip(found, 0, 1)
            known = np.isfinite(found)
            self._known[key] = np.where(known, found, found[known].mean() if known.any() else 0.0)
        return self._known[key]

    def credits(self, checklist: Checklist, part: int) -> np.ndarray:
        """Soft credits of rows and items; NaN where unanswered."""
        values = self._values(checklist, part)
        if values is not None:
            return np.where([item.weight >= 0 for item in checklist.items], values, 1 - values)
        rows = [[line.credit(True) for line in score.items] for score in self.scored(checklist, part)]
        return np.array([[np.nan if credit is None else credit for credit in row] for row in rows])

    def _values(self, checklist: Checklist, part: int) -> np.ndarray | None:
        """Soft values of rows and items; None if one is unanswered or an abstention, or another metric applies."""
        columns = []
        for item in checklist.items:
            if (item.id, part) not in self._columns:
                self._columns[item.id, part] = self._column(item, part)
            columns.append(self._columns[item.id, part])
        if any(column is None for column in columns):
            return None
        return np.array(columns).T

    def _column(self, item: ChecklistItem, part: int) -> np.ndarray | None:
        found = []
        for n in self.parts[part].tolist():
            line = self.lines[n].get(item.id)
            plain = line is not None and line.answer is not None and item.values.get(line.answer) is not None
            if self.rules[n].no_answer or self.rules[n].primary_metric != "expected" or not plain:
                return None
            assert line is not None
            found.append(line.soft)
        return np.array(found, float)

    def labels(self, part: int) -> np.ndarray:
        """The labels of a part; of preferences, how often a row was chosen minus how often it was rejected."""
        if self.pairs is None:
            return np.array([self.rows[n].labels for n in self.parts[part].tolist()])
        chosen, rejected = self.pairs[part].T
        size = len(self.parts[part])
        return (np.bincount(chosen, minlength=size) - np.bincount(rejected, minlength=size)).astype(float)

    def units(self, values: np.ndarray, part: int) -> np.ndarray:
        """Values of the rows of a part, or their differences in its pairs."""
        return values if self.pairs is None else values[self.pairs[part][:, 0]] - values[self.pairs[part][:, 1]]

    def groups(self, part: int) -> list[str]:
        """The group of every row, or pair, of a part."""
        groups = [self.rows[n].group for n in self.parts[part].tolist()]
        return groups if self.pairs is None else [groups[place] for place in self.pairs[part][:, 0].tolist()]

    def follows(self, values: np.ndarray, part: int) -> tuple[float, int]:
        """The correlation of values with the labels and its number of rows; with preferences that of the differences,
        counted with both signs, with 1 and -1."""
        own = self.units(values, part)
        known = np.isfinite(own)
        if self.pairs is None:
            return correlation(own[known], self.labels(part)[known]) or 0.0, int(known.sum())
        scale = math.sqrt(float((own[known] ** 2).mean())) if known.any() else 0.0
        return (float(own[known].mean()) / scale if scale > 0 else 0.0), int(known.sum())

    def gain(self, before: Checklist, after: Checklist, part: int, bootstrap: Bootstrap) -> dict[str, Figure]:
        """Agreement of both checklists with the labels, and the gain."""
        one, other = (self.units(self.scores(each, part), part) for each in (before, after))
        labels = self.labels(part) if self.pairs is None else np.ones(len(one))
        figures = bootstrap.figures(Compared(labels, one, other, self.pairs is not None), self.groups(part))
        return {"before": figures["present"], "after": figures["fitted"], "gain": figures["gain"]}

    def difference(self, before: Checklist, after: Checklist, part: int) -> tuple[float, float]:
        """The gain in agreement, and its standard error over groups."""
        one, other = (self.units(self.scores(each, part), part) for each in (before, after))
        gain, influence = _agreement(None if self.pairs is not None else self.labels(part), one, other)
        return gain, _error(influence, self.groups(part))


CHOOSING, CONFIRMING, TEST = range(3)


def improve(
    checklist: Checklist,
    rows: Sequence[ScoredText],
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    scorer: ChecklistScorer | None = None,
    writer: Rewriter | None = None,
    tolerance: float = 0.0,
    patience: int = 3,
    max_reads: int | None = None,
    bootstrap: Bootstrap | None = None,
    progress: Progress | None = None,
) -> Improvement:
    """Improve a checklist on labelled rows.

    Args:
        checklist ([`Checklist`]): one checklist for all rows.
        rows (sequence of [`ScoredText`]): at least 60 in 15 groups; see the module docstring for their use.
        pairs (sequence of pairs of `int`, *optional*): preferences instead of labels, at least 60 in 15 groups: the
            places of the chosen and the rejected row, which are of one group.
        scorer ([`ChecklistScorer`], *optional*): the judge. Defaults to the stored answers of the rows.
        writer ([`Rewriter`], *optional*): proposes wordings and new items, which the judge reads.
        tolerance (`float`, *optional*, defaults to `0.0`): also keep a drop or merge if the same test shows that the
            agreement is less than this below that of the given checklist, or of the one at the last rise.
        patience (`int`, *optional*, defaults to `3`): refused changes in a row after which a stage ends.
        max_reads (`int`, *optional*): most reads of new items before the last figures. Reads of the given checklist
            and of the final one about the test rows are not counted.
        bootstrap ([`Bootstrap`], *optional*): the intervals; its seed also divides the groups.
        progress (callable, *optional*): called with the number of reads since its last call.

    Raises:
        SampleError: If there are too few labels, all labels of a part are equal, the texts of a pair are of two
            groups, a row has no answer to an item and no judge is set, or a writer has no judge.
    """
    whole_number("patience", patience)
    if not 0 <= tolerance < 1:
        raise SampleError(f"tolerance={tolerance:g} is not allowed; it must be from 0 to below 1.")
    if writer is not None and scorer is None:
        raise SampleError("a writer's items have no stored answers; set a judge that reads them.")
    if scorer is not None and scorer.weights is not None:
        raise SampleError("the judge has weights of its own, which would hide changes of weights; omit them.")
    bootstrap = bootstrap or Bootstrap()
    if pairs is not None:
        rows, pairs = _paired(rows, pairs)
    parts, pairs_of_parts = _parts(rows, pairs, bootstrap.seed)
    if scorer is not None:
        checklist = scorer.prepared(checklist)
    if writer is not None:
        writer.validate()
    data = _Rows(rows, parts, scorer, max_reads, progress, pairs_of_parts)
    data.start(checklist)
    loop = _Loop(data, writer, tolerance, patience, replace(bootstrap, progress=None), checklist)
    findings = loop.weak(checklist)
    best, stopped = loop.run(checklist)
    data.max_reads = None
    data.read(best.items, TEST)
    return Improvement(
        before=checklist,
        checklist=best,
        findings=tuple(findings),
        steps=tuple(loop.steps),
        figures=data.gain(checklist, best, TEST, bootstrap),
        rows=(len(data.groups(0)), len(data.groups(1)), len(data.groups(2))),
        reads=data.reads,
        stopped=stopped,
        measure="correlation" if pairs is None else "in order",
    )


def _paired(
    rows: Sequence[ScoredText], pairs: Sequence[tuple[int, int]]
) -> tuple[list[ScoredText], list[tuple[int, int]]]:
    """The rows that are in pairs, and the pairs with their places among them."""
    for one, other in pairs:
        if rows[one].group != rows[other].group:
            raise SampleError(
                f"{rows[one].where} and {rows[other].where} are a pair, but of the groups "
                f"{rows[one].group!r:.60} and {rows[other].group!r:.60}; the texts of a pair need one group."
            )
    used = sorted({place for pair in pairs for place in pair})
    places = {place: number for number, place in enumerate(used)}
    return [rows[place] for place in used], [(places[one], places[other]) for one, other in pairs]


def _parts(
    rows: Sequence[ScoredText], pairs: Sequence[tuple[int, int]] | None, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """The places of choosing, confirming and test rows, and the pairs of each part by places in it."""
    groups = list(dict.fromkeys(row.group for row in rows))
    where = rows[0].where.rpartition(",")[0] if rows else "the data"
    count, what = (len(rows), "labelled rows") if pairs is None else (len(pairs), "pairs")
    if count < MIN_LABELS or len(groups) < MIN_GROUPS:
        raise SampleError(
            f"{where} has {count} {what} in {len(groups)} groups; improving a checklist needs at least "
            f"{MIN_LABELS} in {MIN_GROUPS} groups, a third of them for each of choosing, confirming and testing."
        )
    order = np.random.default_rng(seed).permutation(len(groups))
    part_of = {groups[place]: n for n, some in enumerate(np.array_split(order, 3)) for place in some}
    parts = [np.array([n for n, row in enumerate(rows) if part_of[row.group] == part], int) for part in range(3)]
    if pairs is not None:
        places = [{n: place for place, n in enumerate(part.tolist())} for part in parts]
        return parts, [np.array([(own[a], own[b]) for a, b in pairs if a in own], int) for own in places]
    for part in parts:
        if len({rows[n].labels for n in part.tolist()}) < 2:
            raise SampleError(f"{where}: all labels of a third of the groups are equal; more labels are needed.")
    return parts, None


@dataclass
class _Loop:
    data: _Rows
    writer: Rewriter | None
    tolerance: float
    patience: int
    bootstrap: Bootstrap
    agreed: Checklist
    """The checklist at the last rise, or the given one: falls within the tolerance do not add up."""
    steps: list[Step] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    """Checklists that were tested."""
    stays: dict[str, float] = field(default_factory=dict)
    """By item id, the fraction of answers that stay in other words."""
    reviews: dict[str, str] = field(default_factory=dict)
    """By item id, the categories of the meta-checklist that the question fails."""
    impatient: bool = False

    def run(self, checklist: Checklist) -> tuple[Checklist, Literal["no gain", "patience", "budget"]]:
        """Change the checklist until no stage keeps a change."""
        stages = (self._replayed, self._written, self._reweighted)
        while True:
            self.impatient = False
            try:
                for stage in stages:
                    better = self._stage(checklist, stage(checklist))
                    if better is not None:
                        checklist = better
                        break
                else:
                    return checklist, "patience" if self.impatient else "no gain"
            except _OutOfReadsError:
                return checklist, "budget"

    def _stage(self, checklist: Checklist, proposed: Sequence[tuple[Change, float]]) -> Checklist | None:
        """Test the proposals, those with the highest gain on the choosing rows first, until one is kept."""
        refused = 0
        for change, chosen in sorted(proposed, key=lambda pair: -pair[1]):
            changed = change.of(checklist)
            key = _content(changed)
            if key in self.tried:
                continue
            if refused == self.patience:
                self.impatient = True
                break
            self.data.read(changed.items, CONFIRMING)
            self.tried.add(key)
            step = self._tested(checklist, changed, change, chosen)
            self.steps.append(step)
            if step.kept:
                return changed
            refused += 1
        return None

    def _tested(self, before: Checklist, after: Checklist, change: Change, chosen: float) -> Step:
        """The test of a change on the confirming rows."""
        number = len(self.steps) + 1
        level = LEVEL / (number * (number + 1))
        bound = t_quantile(len(set(self.data.groups(CONFIRMING))), level)
        gain, error = self.data.difference(before, after, CONFIRMING)
        rises = gain - bound * error > 0
        kept = rises or self._tolerated(after, change, CONFIRMING, bound)
        self.agreed = after if rises else self.agreed
        return Step(change, kept, chosen, self.data.gain(before, after, CONFIRMING, self.bootstrap)["gain"], level)

    def _promising(self, checklist: Checklist, changes: Iterable[Change]) -> list[tuple[Change, float]]:
        """The changes whose gain on the choosing rows is above 0 by a standard error."""
        found = []
        for change in changes:
            try:
                after = change.of(checklist)
            except ValueError:  # no item with a weight is left
                continue
            if _content(after) in self.tried:
                continue
            gain, error = self.data.difference(checklist, after, CHOOSING)
            if gain - error > 0 or self._tolerated(after, change, CHOOSING, 1.0):
                found.append((change, gain))
        return found

    def _tolerated(self, after: Checklist, change: Change, part: int, bound: float) -> bool:
        """Whether a drop or a merge costs less agreement than the tolerance."""
        if not self.tolerance or change.kind not in ("drop", "merge"):
            return False
        since, error = self.data.difference(self.agreed, after, part)
        return since - bound * error > -self.tolerance

    def _replayed(self, checklist: Checklist) -> list[tuple[Change, float]]:
        """Stage 1: drop, merge and turn."""
        findings = self.weak(checklist)
        details = {id(one.item): one.detail for one in reversed(findings)}
        changes = []
        for one, other, r in self._alike(checklist):
            if r > 0 and one.weight * other.weight > 0:
                merged = one.model_copy(
                    update={"weight": (one.weight + other.weight) / 2, "required": one.required or other.required}
                )
                changes.append(Change("merge", (one, other), (merged,), f"the same answers as {other.question!r:.60}"))
        for item in checklist.items:
            if id(item) in details:
                changes.append(Change("drop", (item,), (), details[id(item)]))
        for finding in findings:
            if finding.fault == "disagrees":
                turned = finding.item.model_copy(update={"weight": -finding.item.weight})
                changes.append(Change("turn", (finding.item,), (turned,), finding.detail))
        return self._promising(checklist, changes)

    def _written(self, checklist: Checklist) -> list[tuple[Change, float]]:
        """Stage 2: what the writer proposes. The judge reads it about the choosing rows."""
        if self.writer is None or self.data.scorer is None:
            return []
        prepared = self.data.scorer.prepared
        found = []
        for change in self.writer.changes(checklist, self.weak(checklist), self._groups(checklist)):
            after = prepared(Checklist(items=change.after)).items
            found.append(replace(change, after=after))
        self.data.read([item for change in found for item in change.after], CHOOSING)
        return self._promising(checklist, found)

    def _reweighted(self, checklist: Checklist) -> list[tuple[Change, float]]:
        """Stage 3: new weights for all items."""
        rows, labels = self.data.rows, self.data.labels(CHOOSING).tolist()
        pairs = None if self.data.pairs is None else list(map(tuple, self.data.pairs[CHOOSING].tolist()))
        judged = [
            ScoredText(str(n), rows[n].where, score, rows[n].group, labels=label)
            for n, label, score in zip(
                self.data.parts[CHOOSING].tolist(), labels, self.data.scored(checklist, CHOOSING), strict=True
            )
        ]
        try:
            labelled = labelled_scores(judged, by="item", pairs=pairs)
        except SampleError:  # too few answers, or a single item
            return []
        weights, held_out = cross_fitted(labelled, self.bootstrap.seed)
        own = labelled.labels if pairs is None else None
        gain, influence = _agreement(own, labelled.judged(labelled.present), held_out)
        if gain <= _error(influence, labelled.groups):
            return []
        largest = max(map(abs, weights.values()))
        after = []
        for item in checklist.items:
            weight = weights.get(item.id, item.weight)
            if abs(weight) >= _LEAST_WEIGHT * largest:
                after.append(item.model_copy(update={"weight": float(f"{weight:.2g}")}))
        change = Change("reweight", checklist.items, tuple(after), "weights fitted to the labels")
        return [(change, gain)]

    def weak(self, checklist: Checklist) -> list[Finding]:
        """The weak items, by the choosing rows; an item can have several faults."""
        credits = self.data.credits(checklist, CHOOSING)
        stability, reviews = self._stability(checklist), self._reviews(checklist)
        alike = self._alike(checklist)
        found = []
        for place, item in enumerate(checklist.items):
            own = credits[:, place]
            known = np.isfinite(own)
            r, count = self.data.follows(own, CHOOSING)
            faults: list[tuple[str, str]] = []
            if 1 - known.mean() >= OFTEN_UNANSWERED:
                faults.append(("often_unanswered", f"{1 - known.mean():.0%} of its reads are unanswered"))
            if not known.any() or own[known].std() < CONSTANT:
                spread = own[known].std() if known.any() else 0.0
                faults.append(("no_variance", f"standard deviation {spread:.3f}"))
            elif r * math.sqrt(count) < _CHANCE:
                fault = "disagrees" if r * math.sqrt(count) < -_CHANCE else "unrelated"
                faults.append((fault, f"correlation with the labels {r:+.2f}"))
            for one, other, r in alike:
                if item is other or (item is one and r < 0):  # of equal items the second, of opposite ones both
                    name, partner = "redundant" if r > 0 else "contradicts", one if item is other else other
                    faults.append((name, f"answers correlate {r:+.2f} with those to {partner.question!r:.60}"))
            if stability.get(item.id, 1.0) < STABLE:
                faults.append(("ambiguous", f"{stability[item.id]:.0%} of the answers stay in other words"))
            if item.check is item.options is None and (wrong := question_fault(item.question)) is not None:
                faults.append(("wording", f"it {wrong}"))
            if reviews.get(item.id):
                faults.append(("review", f"it is {reviews[item.id]}"))
            found += [Finding(item, name, detail) for name, detail in faults]
        return found

    def _alike(self, checklist: Checklist) -> list[tuple[ChecklistItem, ChecklistItem, float]]:
        """Pairs of items whose credits are equal or opposite, with the correlation."""
        credits = self.data.credits(checklist, CHOOSING)
        found = []
        for second, other in enumerate(checklist.items):
            for first, one in enumerate(checklist.items[:second]):
                both = np.isfinite(credits[:, first]) & np.isfinite(credits[:, second])
                r = correlation(credits[both, first], credits[both, second]) or 0.0
                if abs(r) >= SAME:
                    found.append((one, other, r))
        return found

    def _reviews(self, checklist: Checklist) -> dict[str, str]:
        """By item id, the categories of the meta-checklist that the judge says the question fails. It is asked if a
        writer can reword what it finds; these reads are not in the budget."""
        new = [item for item in checklist.items if item.id not in self.reviews and item.check is None]
        if self.data.scorer is None or self.writer is None or not new:
            return self.reviews
        scores = self.data.scorer.score_batch([Sample(ITEM_QUESTIONS, item.question) for item in new])
        for item, score in zip(new, scores, strict=True):
            failed = [f"not {line.category}" for line in score.items if line.passed is False]
            self.reviews[item.id] = ", ".join(failed).replace("not not_", "")
        return self.reviews

    def _stability(self, checklist: Checklist) -> dict[str, float]:
        """By item id, the fraction of answers that stay when the judge is asked in other words. Each item is read
        again once, about some of the choosing rows; these reads are not in the budget."""
        new = tuple(item for item in checklist.items if item.id not in self.stays)
        if self.data.scorer is None or not new:
            return self.stays
        self.stays |= {item.id: 1.0 for item in new}
        try:
            again = Replay(self.data.scorer, repeats=2)
        except SampleError:  # this judge has no other words
            return self.stays
        asked = Checklist(items=tuple(item.model_copy(update={"weight": 1.0}) for item in new))
        rows = [self.data.rows[n] for n in self.data.parts[CHOOSING].tolist()[:_REPEATED_ROWS]]
        scores = again.scores([replace(row, sample=replace(row.to_judge, checklist=asked)) for row in rows])
        stays: dict[str, list[bool]] = {}
        for first, second in scores:
            for one, other in zip(first.items, second.items, strict=True):
                if one.answer is not None and other.answer is not None:
                    stays.setdefault(one.id, []).append(one.answer == other.answer)
        self.stays |= {name: fmean(some) for name, some in stays.items()}
        return self.stays

    def _groups(self, checklist: Checklist) -> list[Group]:
        """Texts that labels and scores order differently, by input: those with the highest and lowest residuals."""
        part = self.data.parts[CHOOSING]
        labels, scores = self.data.labels(CHOOSING), self.data.scores(checklist, CHOOSING)
        residuals = standardized(labels) - standardized(scores)  # of preferences, labels are wins minus losses
        by_input: dict[Any, list[int]] = {}
        for place, n in enumerate(part.tolist()):
            row, sample = self.data.rows[n], self.data.rows[n].to_judge
            by_input.setdefault(prompt_identity((sample.input, sample.history), row.prompt_images), []).append(place)
        several = [some for some in by_input.values() if len(some) > 1] or [list(range(len(part)))]
        several.sort(key=lambda some: residuals[some].min() - residuals[some].max())
        groups = []
        for some in several[:_MOST_GROUPS]:
            ranked = sorted(some, key=lambda place: -residuals[place])
            ends = list(dict.fromkeys([*ranked[:_OF_EACH_END], *ranked[-_OF_EACH_END:]]))
            samples = [self.data.rows[int(part[place])].to_judge for place in ends]
            groups.append(
                Group(
                    input=samples[0].input or "Write a response.",
                    history=samples[0].history,
                    reference=samples[0].reference,
                    responses=tuple(shown(sample.target) for sample in samples),
                    scores=tuple(float(residuals[place]) for place in ends),
                    persistent=checklist.items,
                    active=(),
                )
            )
        return groups


def _agreement(labels: np.ndarray | None, before: np.ndarray, after: np.ndarray) -> tuple[float, np.ndarray]:
    """The gain in correlation with the labels, and the influence of every row on it. Without labels, the scores are
    differences in pairs, and the gain is that in the fraction above 0."""
    if labels is None:
        one, other = ((each > EQUAL) + 0.5 * (np.abs(each) <= EQUAL) for each in (before, after))
        gain = float((other - one).mean())
        return gain, other - one - gain
    one, other, own = standardized(before), standardized(after), standardized(labels)
    was, now = float((one * own).mean()), float((other * own).mean())
    influence = other * own - now * (other**2 + own**2) / 2 - (one * own - was * (one**2 + own**2) / 2)
    return round(now - was, 9), influence  # equal scores differ by rounding


def _error(influence: np.ndarray, groups: Sequence[str]) -> float:
    """The standard error of a mean of influences."""
    codes = group_codes(groups)
    return clustered_error(influence / len(influence), codes, Groups.of(codes).effective)


def _content(checklist: Checklist) -> str:
    return repr([(item.id, item.weight, item.required) for item in checklist.items])


def _dumped(items: Iterable[ChecklistItem]) -> list[dict[str, Any]]:
    return [item.model_dump(mode="json", exclude_defaults=True) for item in items]


def _shown(item: ChecklistItem) -> str:
    return f"{item.question} (weight {item.weight:g})"
