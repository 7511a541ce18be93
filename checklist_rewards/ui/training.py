"""The figures of a training run: reward, scores, items and lengths over steps, and what the policy learned.

Questions that differ only in a quoted text or a number are shown as one *pattern*: checklists of single prompts
rarely repeat a question, but often ask the same about another word. What was learned compares the answers of the
first and the last third of the steps.

The checklist of a prompt may change during a run (`evolving/`). Rewards under different checklists are not comparable,
so the curves are interrupted at steps where a prompt comes with another checklist than before.

A completion without an answer counts in rewards and scores. It is left out of lengths and of what was learned: the
judge was not asked about it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

from checklist_rewards.evaluation.stored_scores import recorded_state
from checklist_rewards.rewards.shaping import length
from checklist_rewards.scores import NO_ANSWER_STATES, TargetState
from checklist_rewards.scores.tally import PassRate, Tally
from checklist_rewards.ui.figures import STATES, rates
from checklist_rewards.ui.records import Record, draw

MIN_ANSWERS = 5
"""Answers that a pattern needs in the first and in the last third."""
MOST_PATTERNS = 500
"""Patterns on the page: those with the most answers."""
_VARIABLE = re.compile(r"""(?<!\w)(?:"[^"]*"|“[^”]*”|'[^']*')(?!\w)|\b\d+(?:\.\d+)?\b""")


@dataclass
class _Step:
    tally: Tally = field(default_factory=Tally)
    groups: dict[int, list[float]] = field(default_factory=dict)
    rewards: list[float] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    completions: int = 0
    states: Counter[TargetState] = field(default_factory=Counter)
    """Number of completions by state, if that is recorded."""
    patterns: dict[str, PassRate] = field(default_factory=dict)
    checklists: dict[int, str] = field(default_factory=dict)
    """Hash of the checklist by prompt."""


class TrainingFigures:
    """Figures of one reward log."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}

    def add(self, record: Record) -> None:
        """Add a completion."""
        step = self._steps.setdefault(record.step or 0, _Step())
        step.completions += 1
        group = step.groups.setdefault(draw(record.key, 0), [])  # by a hash: keys are whole prompts
        if record.reward is not None:
            step.rewards.append(record.reward)
            group.append(record.reward)
        if record.checklist_hash is not None and record.prompt is not None:
            step.checklists[draw(record.prompt, 0)] = record.checklist_hash
        state = recorded_state(record.score)
        if state is not None:
            step.states[state] += 1
        if record.target is not None and state not in NO_ANSWER_STATES:
            step.words.append(length(record.target))
        if record.score is None:
            return
        step.tally.add(record.score)
        if record.score.no_answer:
            return
        for line in record.score.items:
            rate = step.patterns.setdefault(pattern_of(line.question), PassRate())
            if line.passed is not None:
                rate.add(int(line.passed), 1)

    def as_json(self) -> dict[str, Any]:
        """The figures for the page."""
        numbers = sorted(self._steps)
        steps = [self._steps[number] for number in numbers]
        categories = dict.fromkeys(name for step in steps for name in step.tally.by_category)
        return {
            "steps": numbers,
            "changed": _changed(steps),
            "series": {
                "reward": [_mean(step.rewards) for step in steps],
                "score": [step.tally.mean for step in steps],
                "pass_rate": [step.tally.micro for step in steps],
                "words": [_mean(step.words) for step in steps],
                "without_reward": [1 - len(step.rewards) / step.completions for step in steps],
                "reward_std_in_group": [
                    _mean([pstdev(group) for group in step.groups.values() if group]) for step in steps
                ],
                "groups_without_variance": [
                    _mean([float(len(set(group)) < 2) for group in step.groups.values()]) for step in steps
                ],
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
        third = max(1, len(steps) // 3)
        answers: Counter[str] = Counter()
        for step in steps:
            answers.update({name: rate.counted for name, rate in step.patterns.items()})
        lines = []
        for name, count in answers.most_common(MOST_PATTERNS):
            before, after = (_total(name, part) for part in (steps[:third], steps[-third:]))
            enough = len(steps) > 1 and min(before.counted, after.counted) >= MIN_ANSWERS
            lines.append(
                {
                    "pattern": name,
                    "before": rates(before),
                    "after": rates(after),
                    "change": (after.micro or 0.0) - (before.micro or 0.0) if enough else None,
                    "answers": count,
                    "series": [_rate(step.patterns.get(name)) for step in steps] if enough else None,
                }
            )
        return sorted(lines, key=lambda line: (line["change"] is None, -(line["change"] or 0.0)))


def _changed(steps: list[_Step]) -> list[int]:
    """Number of prompts at each step that come with another checklist than before."""
    last: dict[int, str] = {}
    changed = []
    for step in steps:
        changed.append(sum(last.get(prompt, name) != name for prompt, name in step.checklists.items()))
        last |= step.checklists
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
            total.add(step.patterns[name].passed, step.patterns[name].counted)
    return total


def _rate(rate: PassRate | None) -> float | None:
    return None if rate is None else rate.micro


def _mean(values: list[Any]) -> float | None:
    return fmean(values) if values else None
