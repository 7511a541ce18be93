"""Score stored texts again: by another judge, or from their stored answers with other weights or settings.

A [`Replay`] computes the new score of a [`ScoredText`] with its `sample`, of a scored file or of a reward log. With a
scorer, the questions are asked again. Without one, the stored answers are aggregated again, and no engine is used.

Metric, threshold, `min_answered` and `abstention` stay those of the stored score unless they are changed. The answers
of code checks are kept if the row has no longer the check itself, as in a reward log: they do not depend on the judge.

A text without an answer is never sent to the judge, unless `no_answer` is `judge`. Its state is that of the stored
score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.judges import Progress, Receipt
from checklist_rewards.judges.calibration import Calibration, kind_of, read_alike
from checklist_rewards.keys import worded
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores import (
    NO_ANSWER_STATES,
    Aggregation,
    Reason,
    Score,
    Unanswered,
    Verdict,
    item_keys,
    score_checklist,
)

_NOT_READ = Verdict(unanswered=Unanswered(Reason.NOT_READ))


@dataclass(frozen=True)
class Replay:
    """Scores stored rows again.

    Args:
        scorer ([`ChecklistScorer`], *optional*):
            Asks the questions again. Defaults to the stored answers.
        aggregation (mapping, *optional*):
            Fields of [`Aggregation`] to change.
        calibration ([`Calibration`], *optional*):
            Calibration of the stored answers; that of a scorer is part of it.
        repeats (`int`, *optional*, defaults to `1`):
            How often every question is asked; see `judges/variants.py`.

    Raises:
        SampleError: For settings that require a judge.
    """

    scorer: ChecklistScorer | None = None
    aggregation: Mapping[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None
    repeats: int = 1

    def __post_init__(self) -> None:
        if self.scorer is None and self.repeats > 1:
            raise SampleError(f"{self.repeats} repeats require a judge, which answers the questions again.")
        if self.scorer is None and self.calibration is not None and self.calibration.contextual:
            raise SampleError("a contextual calibration requires a judge, which reads an empty target.")
        _ = self._scorers  # refuses a judge that cannot be repeated

    @property
    def receipt(self) -> Receipt | None:
        """What all calls have cost; None without a judge."""
        return None if self.scorer is None else self.scorer.receipt

    def check(self, row: ScoredText) -> int:
        """Check a row, and return its number of reads. Raises a [`ChecklistRewardsError`] that names the row."""
        if self.scorer is None:
            self._from_store(row)
            return 0
        asked = self._asked(row)
        for item in asked.values():
            self.scorer.check_item(item, row.where)
        return len(asked) * self.repeats

    def scores(self, rows: Sequence[ScoredText], progress: Progress | None = None) -> list[tuple[Score, ...]]:
        """The scores of every row, one per repeat."""
        if self.scorer is None:
            return [(self._from_store(row),) for row in rows]
        asked = [self._asked(row) for row in rows]
        samples = [
            replace(row.to_judge, checklist=_readable(items.values()))
            for row, items in zip(rows, asked, strict=True)
            if items
        ]
        scores: list[list[Score]] = [[] for _ in rows]
        for scorer in self._scorers:
            answered = iter(scorer.score_batch(samples, progress))
            for number, (row, items) in enumerate(zip(rows, asked, strict=True)):
                score = next(answered) if items else None
                lines = () if score is None else score.items
                fresh = {key: line.verdict() for key, line in zip(items, lines, strict=True)}
                quality = None if score is None else score.quality
                answers = _kept(row) | fresh if self._judged(row) else _missing(row)
                scores[number].append(self._aggregated(row, answers, quality))
        return [tuple(of_row) for of_row in scores]

    def _judged(self, row: ScoredText) -> bool:
        """Whether the judge is asked about a row."""
        return has_answer(row) or self._rules(row).no_answer == "judge"

    def _asked(self, row: ScoredText) -> dict[str, ChecklistItem]:
        """The items that the judge is asked about, by key."""
        if not self._judged(row):
            return {}
        kept = _kept(row)
        return {key: item for key, item in _keyed(row) if key not in kept}

    @cached_property
    def _scorers(self) -> list[ChecklistScorer]:
        return [] if self.scorer is None else [_with_judge(self.scorer, number) for number in range(self.repeats)]

    def _from_store(self, row: ScoredText) -> Score:
        if row.score is None:
            raise SampleError(f"{row.where}: the row has no stored answers; set --model to ask a judge.")
        rule = self.aggregation.get("no_answer")
        if row.score.no_answer and rule == "judge":
            raise SampleError(
                f"{row.where}: no judge has read this text, because it has no answer ({row.score.state}); set "
                "--model to ask one."
            )
        if row.score.no_answer or (rule not in (None, "judge") and not has_answer(row)):
            return self._aggregated(row, _missing(row), None)
        lines = row.lines
        answers = {
            key: self._calibrated(item, lines[key].verdict(), row.where)
            for key, item in _keyed(row)
            if key in lines and worded(lines[key].question) == worded(item.question)
        }
        return self._aggregated(row, answers, row.score.quality)

    def _calibrated(self, item: ChecklistItem, verdict: Verdict, where: str) -> Verdict:
        calibration = self.calibration
        if calibration is None or verdict.probabilities is None or verdict.method == "check":
            return verdict
        if verdict.judge != calibration.judge:
            raise SampleError(
                f"{where}: the answers are those of {verdict.judge!r}, but the calibration was fitted on "
                f"{calibration.judge!r}; fit one on reads of this judge."
            )
        if not read_alike(verdict.method, calibration.read_by):
            raise SampleError(
                f"{where}: the answers were read by {verdict.method}, but the calibration was fitted on answers read "
                f"by {calibration.read_by}; fit one on answers read in this way."
            )
        if kind_of(item) not in calibration.maps:
            raise SampleError(
                f"{where}, item {item.id} ({item.question!r:.60}): the calibration has no map for {kind_of(item)} "
                f"items; it has {', '.join(calibration.maps)}."
            )
        raw = verdict.uncalibrated or verdict.probabilities
        return calibration.apply(item, replace(verdict, probabilities=raw, uncalibrated=None))

    def _rules(self, row: ScoredText) -> Aggregation:
        """The rules of the stored score, with the changes."""
        rules = Aggregation() if row.score is None else row.score.rules
        changes = dict(self.aggregation)
        if self.calibration is not None and self.calibration.threshold is not None:
            changes.setdefault("threshold", self.calibration.threshold)
        try:
            return replace(rules, **changes)
        except ValueError as error:
            raise SampleError(f"{row.where}: {error}.") from None

    def _aggregated(self, row: ScoredText, answers: Mapping[str, Verdict], quality: float | None) -> Score:
        sample, rules = row.to_judge, self._rules(row)
        ungraded = quality is None and (self.scorer is not None or has_answer(row))
        if ungraded and rules.primary_metric == "quality" and "primary_metric" not in self.aggregation:
            rules = replace(rules, primary_metric=Aggregation.primary_metric)  # this judge does not grade
        verdicts = [answers.get(key, _NOT_READ) for key in item_keys(sample.checklist.items)]
        try:
            return score_checklist(sample.checklist, verdicts, rules, quality=quality, state=sample.target_state)
        except ValueError as error:
            raise SampleError(f"{row.where}: {error}.") from None


def has_answer(text: ScoredText) -> bool:
    """Whether there is a text to judge."""
    return text.to_judge.target_state not in NO_ANSWER_STATES


def _kept(text: ScoredText) -> dict[str, Verdict]:
    """The stored answers of code checks whose check is not in the file, by item key."""
    lost = {key for key, item in _keyed(text) if item.check is None}
    return {key: line.verdict() for key, line in text.lines.items() if line.method == "check" and key in lost}


def _missing(row: ScoredText) -> dict[str, Verdict]:
    """The verdicts of a text without an answer."""
    missing = Verdict(unanswered=Unanswered(Reason.NO_ANSWER, row.to_judge.target_state))
    return dict.fromkeys(item_keys(row.to_judge.checklist.items), missing)


def _keyed(text: ScoredText) -> list[tuple[str, ChecklistItem]]:
    items = text.to_judge.checklist.items
    return list(zip(item_keys(items), items, strict=True))


def _readable(items: Iterable[ChecklistItem]) -> Checklist:
    # Weights change no answer, except by their sign in a panel's ties; a checklist of weights 0 would be refused.
    return Checklist(items=tuple(item.model_copy(update={"weight": item.weight or 1.0}) for item in items))


def _with_judge(scorer: ChecklistScorer, number: int) -> ChecklistScorer:
    again = scorer.repeated(number)
    again.aggregation = replace(scorer.aggregation, no_answer="judge")  # it gets only what it should read
    return again
