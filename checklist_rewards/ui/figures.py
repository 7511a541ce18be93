"""The figures of one file, over all of its rows, and those of a training run.

Rows are added one at a time. Means and pass rates are those of [`Tally`], as in the summary of `score`; item
statistics are those of [`ItemAnalysis`], as in `inspect`. A row without an answer has a score, but the judge was not
asked about it: it counts in the means, and not in reads and items. A row without a score counts in no mean and no rate
of several items. The rate of one item has all answers to it, also those of rows without a score: which reads a failing
judge loses does not depend on their answers.

A training run has reward, scores, items and lengths over steps, and what the policy learned. Questions that differ
only in a quoted text or a number are shown as one *pattern*: checklists of single prompts rarely repeat a question,
but often ask the same about another word. What was learned compares the answers of the first and the last third of the
steps.

The checklist of a prompt may change during a run (`evolving/`). Rewards under different checklists are not comparable,
so the curves are interrupted at steps where a prompt comes with another checklist than before.

A completion without an answer counts in rewards and scores. It is left out of lengths and of what was learned: the
judge was not asked about it.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from statistics import fmean
from typing import Any

from checklist_rewards.backends.embedding import IN_WORD, QUOTED
from checklist_rewards.checklists import EVOLVING_CATEGORY, content_hash
from checklist_rewards.errors import ChecklistError
from checklist_rewards.evaluation.items import ItemAnalysis
from checklist_rewards.evaluation.scored import ScoredText
from checklist_rewards.monitor.text import words
from checklist_rewards.scores import NO_ANSWER_STATES, ItemScore, Score, TargetState, item_keys
from checklist_rewards.scores.reasons import ADVICE
from checklist_rewards.scores.tally import PassRate, Tally

SCORE_BINS = 20
_CHECKLISTS = 1000
"""Checklists that are counted."""
STATES: Mapping[TargetState, str] = {
    "empty": "no answer: the response has no text",
    "cut_in_thought": "no answer: the thought was cut or never closed",
    "unfinished": "no answer: the response ends with a tool call or its result",
    "cut": "the answer reached the length limit; what was written is judged",
}
"""What the states of responses other than `answered` mean."""


def draw(key: str, seed: int) -> int:
    """A pseudo-random 64-bit number of a row."""
    return int.from_bytes(blake2b(f"{seed}:{key}".encode(errors="replace"), digest_size=8).digest(), "big")


class FileFigures:
    """Figures of one file."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.analysis = ItemAnalysis()
        self.rows = self.without_score = self.without_state = self.not_asked = 0
        self.states: Counter[TargetState] = Counter()
        self.items: dict[str, tuple[ItemScore, PassRate, Counter[str]]] = {}
        """By item key: the item as it first appeared, its pass rate and the reasons of lost reads."""
        self.judges: Counter[tuple[str, str]] = Counter()
        self.settings: Counter[str] = Counter()
        self.thresholds: set[float] = set()
        self.details: dict[str, str] = {}
        self.checklists: Counter[str] = Counter()
        self._ids: dict[str, str] = {}
        """By the text of a cell: the id of its checklist. Most files repeat a checklist in many rows."""
        self.score_bins: Counter[int] = Counter()
        """Scores by their number of bins of width 1 / 20 from 0; `net` scores may be below 0."""
        self._mass, self._masses = 0.0, 0

    @property
    def answered(self) -> int:
        """Number of questions with an answer."""
        return self.tally.reads - self.tally.unanswered.total()

    @property
    def mass(self) -> float | None:
        """Mean label mass of the questions; None if no judge reports it."""
        return self._mass / self._masses if self._masses else None

    @property
    def counted_states(self) -> list[tuple[str, int, str]]:
        """The states of responses other than `answered`, with their numbers and what they mean."""
        return [(state, self.states[state], meaning) for state, meaning in STATES.items() if self.states[state]]

    @property
    def is_cut_off(self) -> bool:
        """Whether there were too many checklists to count."""
        return len(self.checklists) >= _CHECKLISTS

    def add(self, record: ScoredText) -> None:
        """Add a row."""
        self.rows += 1
        score = record.score
        if score is None:
            self.without_score += 1
            return
        state = record.state
        if state is None:
            self.without_state += 1
        else:
            self.states[state] += 1
        self.tally.add(score)
        self.analysis.add(score)
        self.settings[_settings(score)] += 1
        self.thresholds.add(score.aggregation.threshold)
        name = self._checklist_id(record)
        if name in self.checklists or len(self.checklists) < _CHECKLISTS:
            self.checklists[name] += 1
        if score.primary_score is not None:
            self.score_bins[min(SCORE_BINS - 1, math.floor(score.primary_score * SCORE_BINS))] += 1
        if score.no_answer:
            self.not_asked += 1
            return
        for key, line in zip(item_keys(score.items), score.items, strict=True):
            _, rate, reasons = self.items.setdefault(key, (line, PassRate(), Counter()))
            if line.not_needed:
                continue
            if line.passed is not None:
                rate.add(int(line.passed), 1)
            if line.unanswered is not None:
                reason = str(line.unanswered.reason)
                reasons[reason] += 1
                self.details.setdefault(reason, line.unanswered.detail)
            self.judges[line.judge or "", line.method or ""] += 1
            if line.mass is not None:
                self._mass += line.mass
                self._masses += 1

    def _checklist_id(self, record: ScoredText) -> str:
        """The content hash of a row's checklist; without a checklist column, a hash of the items of the score."""
        try:
            cell = json.dumps(record.cell, default=str)
            if cell not in self._ids and record.checklist is not None:
                if len(self._ids) >= _CHECKLISTS:
                    return record.checklist.id
                self._ids[cell] = record.checklist.id
            if cell in self._ids:
                return self._ids[cell]
        except ChecklistError:  # a column of this name with other content
            pass
        items = () if record.score is None else record.score.items
        return content_hash(*(f"{line.id} {line.weight} {line.required} {line.category}" for line in items))

    def verdict(self) -> str:
        """What the figures say, in one or two sentences."""
        tally = self.tally
        if not tally.scored:
            return "No response has a score."
        scored = f"The mean score of {many(tally.scored, 'response')} is {tally.mean:.3f}."
        if tally.unscored:
            scored = f"{scored[:-1]}; {tally.unscored:,} more could not be scored."
        if not tally.reads:
            return f"{scored} The judge was asked no question."
        lost, questions = tally.unanswered.total(), many(tally.reads, "question")
        if lost:
            return f"{scored} The judge could not read {lost:,} of {questions}."
        return f"{scored} The judge answered {'all ' * (tally.reads != 1)}{questions}."

    def overview(self) -> dict[str, Any]:
        """The figures of the overview, without those that it shows as tiles and tables."""
        items = [
            {"id": id, "question": line.question, "category": line.category, **rates(rate)}
            | {"penalty": line.weight < 0, "unanswered": dict(reasons)}
            for id, (line, rate, reasons) in self.items.items()
        ]
        lowest = min(0, min(self.score_bins, default=0) // SCORE_BINS)
        bins = [0] * SCORE_BINS  # from `lowest` to 1
        for place, count in self.score_bins.items():
            bins[(place - lowest * SCORE_BINS) // (1 - lowest)] += count
        return {
            "verdict": self.verdict(),
            "rows": self.rows,
            "scored": self.tally.scored,
            "unscored": self.tally.unscored,
            "reads": self.tally.reads,
            "advice": {reason: ADVICE.get(reason) for reason in self.tally.unanswered},
            "score_bins": bins,
            "lowest": lowest,
            "items": items,
            "categories": [{"category": name, **rates(rate)} for name, rate in self.tally.by_category.items()],
            "judges": list(dict.fromkeys(judge for (judge, _), _ in self.judges.most_common())),
            "thresholds": sorted(self.thresholds),
        }


def rates(rate: PassRate) -> dict[str, Any]:
    """A pass rate with its number of answers and its Wilson interval."""
    return {"counted": rate.counted, "rate": rate.micro, "interval": rate.interval}


def many(count: int, noun: str) -> str:
    """The number of something: "1 row", "1,200 rows"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _settings(score: Score) -> str:
    rules = score.aggregation
    shown = (
        f"metric {rules.primary_metric}, threshold {rules.threshold:g}, min_answered {rules.min_answered:g}, "
        f"abstention {rules.abstention}"
    )
    return shown if score.recorded_state is None else f"{shown}, no_answer {rules.no_answer}"


MIN_ANSWERS = 5
"""Answers that a pattern needs in the first and in the last third."""
MOST_PATTERNS = 500
"""Patterns on the page: those with the most answers."""
_VARIABLE = re.compile(rf"{QUOTED.pattern}|(?<!{IN_WORD})\d+(?:\.\d+)?(?!{IN_WORD})")


@dataclass
class _Step:
    tally: Tally = field(default_factory=Tally)
    rewards: list[float] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    completions: int = 0
    states: Counter[TargetState] = field(default_factory=Counter)
    """Of the completions whose state is recorded."""
    patterns: dict[str, PassRate] = field(default_factory=dict)
    checklists: dict[int, dict[int, str]] = field(default_factory=dict)
    """Hash of the checklist by prompt, and by the items that do not evolve: those of a row of the dataset."""


class TrainingFigures:
    """Figures of one reward log."""

    def __init__(self) -> None:
        self.steps: dict[int, _Step] = {}

    def add(self, record: ScoredText) -> None:
        """Add a completion."""
        step = self.steps.setdefault(record.step or 0, _Step())
        step.completions += 1
        if record.reward is not None:
            step.rewards.append(record.reward)
        if (checklist := record.checklist_hash) is not None and record.prompt_key is not None:
            items = () if record.score is None else record.score.items
            own = [item.id for item in items if item.category != EVOLVING_CATEGORY]
            step.checklists.setdefault(draw(record.prompt_key, 0), {})[draw(repr(own), 0)] = checklist
        state = record.state
        if state is not None:
            step.states[state] += 1
        if record.text is not None and state not in NO_ANSWER_STATES:
            step.words.append(words(record.text))
        if record.score is None:
            return
        step.tally.add(record.score)
        if record.score.no_answer:
            return
        for line in record.score.items:
            rate = step.patterns.setdefault(pattern_of(line.question), PassRate())
            if line.passed is not None and record.score.primary_score is not None:
                rate.add(int(line.passed), 1)

    def as_json(self) -> dict[str, Any]:
        """The figures for the page."""
        numbers = sorted(self.steps)
        steps = [self.steps[number] for number in numbers]
        categories = dict.fromkeys(name for step in steps for name in step.tally.by_category)
        return {
            "verdict": _learned_verdict(steps),
            "steps": numbers,
            "changed": _changed(steps),
            "series": {
                "reward": [_mean(step.rewards) for step in steps],
                "score": [step.tally.mean for step in steps],
                "pass_rate": [step.tally.micro for step in steps],
                "words": [_mean(step.words) for step in steps],
                "without_reward": [1 - len(step.rewards) / step.completions for step in steps],
            },
            "states": {
                state: [step.states[state] / step.states.total() if step.states else None for step in steps]
                for state in STATES
                if any(step.states[state] for step in steps)
            },
            "categories": {name: [_rate(step.tally.by_category.get(name)) for step in steps] for name in categories},
            "learned": self._learned(steps),
        }

    def _learned(self, steps: list[_Step]) -> list[dict[str, Any]]:
        answers: Counter[str] = Counter()
        for step in steps:
            answers.update({name: rate.counted for name, rate in step.patterns.items()})
        lines = []
        for name, _ in answers.most_common(MOST_PATTERNS):
            before, after = (_total(name, part) for part in _ends(steps))
            enough = len(steps) > 1 and min(before.counted, after.counted) >= MIN_ANSWERS
            change = (after.micro or 0.0) - (before.micro or 0.0) if enough else None
            series = [_rate(step.patterns.get(name)) for step in steps] if enough else None
            ends = {"before": rates(before), "after": rates(after)}
            lines.append({"pattern": name, **ends, "change": change, "series": series})
        return sorted(lines, key=lambda line: (line["change"] is None, -(line["change"] or 0.0)))


def _ends(steps: list[_Step]) -> tuple[list[_Step], list[_Step]]:
    """The first and the last third."""
    third = max(1, len(steps) // 3)
    return steps[:third], steps[-third:]


def _learned_verdict(steps: list[_Step]) -> str:
    """How the mean reward changed, in one sentence."""
    first, last = _ends(steps)
    before, after = (_mean([reward for step in part for reward in step.rewards]) for part in (first, last))
    if before is None or after is None:
        return "The run has no rewards in its first or in its last steps."
    if len(steps) < 3:
        return f"The mean reward is {after:.3f}; a change shows after 3 steps."
    before, after = round(before, 3), round(after, 3)
    how = "rose" if after > before else "fell" if after < before else "stayed"
    ends = f"from {before:.3f} to {after:.3f}" if after != before else f"at {after:.3f}"
    return f"The reward {how} {ends}: means of the first and of the last {len(last)} of {len(steps)} steps."


def _changed(steps: list[_Step]) -> list[int]:
    """Number of checklists at each step that are others than before of their prompt, or their row of the dataset."""
    last: dict[int, dict[int, str]] = {}
    changed = []
    for step in steps:
        known = [(last[prompt], rows) for prompt, rows in step.checklists.items() if prompt in last]
        changed.append(sum(had.get(own) != name for had, rows in known for own, name in rows.items()))
        for prompt, rows in step.checklists.items():
            last[prompt] = last.get(prompt, {}) | rows
    return changed


def pattern_of(question: str) -> str:
    """The question with "…" in place of quoted texts and numbers.

    >>> pattern_of('Does it have 3 sentences with "rain"?')
    'Does it have … sentences with …?'
    """
    return _VARIABLE.sub("…", question)


def _total(name: str, steps: list[_Step]) -> PassRate:
    total = PassRate()
    for step in steps:
        if name in step.patterns:
            total += step.patterns[name]
    return total


def _rate(rate: PassRate | None) -> float | None:
    return None if rate is None else rate.micro


def _mean(values: list[Any]) -> float | None:
    return fmean(values) if values else None
