"""Pairs of a better and a worse text, made from people's labels, and how often a judge prefers the better one.

| set | chosen | rejected | checklist |
|---|---|---|---|
| `realsumm` | the summary in which people found more of the facts | another summary of the document | the facts |
| `semeval` | a correct answer of a student | an incorrect one to the same exam question | three wordings |
| `evouna` | a system's right answer | a wrong one to the same trivia question | three wordings |

The three wordings are those of `english/tasks.py` that quote the expected answer; in `semeval` it is the accepted
answer that is nearest to each student's answer. All pairs are from the dev splits.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from itertools import combinations, zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from english.tasks import DEV, Example, load
from studies.common import checklist_scores

from checklist_rewards.backends import Progress
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.evaluation.agreement import Bootstrap, Preferences, permutation_p
from checklist_rewards.judges import Ask, Judge
from checklist_rewards.scores.tally import wilson

SUMMARIES = "realsumm"
SETS = (SUMMARIES, "semeval", "evouna")
WANTED = ("wins", "losses", "ties", "difference", "cohens_d", "t_test_p")

Side = tuple[Example, ...]
"""The labels of one text: one per fact of a summary, a single one of an answer."""


class Pair(NamedTuple):
    """A better and a worse text for the same input."""

    group: str
    chosen: Side
    rejected: Side


def pairs_of(task: str, number: int, data: str | Path, seed: int = 0) -> list[Pair]:
    """At most `number` pairs of a task, in random order; of every group as equally many as possible for `realsumm`,
    otherwise one of each."""
    rng = random.Random(f"{seed}/{task}")
    sides: dict[str, dict[str, dict[str, Example]]] = {}
    for example in load(task, DEV, data):
        sides.setdefault(example.group, {}).setdefault(example.target, {}).setdefault(example.statement, example)
    by_group = []
    for group in rng.sample(sorted(sides), len(sides)):
        texts = [tuple(by_statement.values()) for by_statement in sides[group].values()]
        if task != SUMMARIES:  # an answer has one label
            texts = [text for text in texts if len(text) == 1]
        found = [_ordered(group, *both) for both in combinations(texts, 2) if _yes(both[0]) != _yes(both[1])]
        by_group.append(rng.sample(found, len(found)) if task == SUMMARIES else rng.sample(found, min(1, len(found))))
    in_turn = [pair for turn in zip_longest(*by_group) for pair in turn if pair is not None]
    return in_turn[:number]


def _yes(side: Side) -> int:
    return sum(example.label > 0.5 for example in side)


def _ordered(group: str, one: Side, other: Side) -> Pair:
    return Pair(group, one, other) if _yes(one) > _yes(other) else Pair(group, other, one)


def reads_of(side: Side) -> list[Ask]:
    """The checklist of a text: its facts in the first wording, or its only label in three wordings."""
    wordings = range(1 if side[0].task == SUMMARIES else 3)
    asked = [example.pair(wording) for example in side for wording in wordings]
    return [Ask(ChecklistItem(question=pair.question), pair.target, pair.input) for pair in asked]


def judged(judge: Judge, pairs: Sequence[Pair], progress: Progress | None = None) -> list[float | None]:
    """Score of the chosen text minus that of the rejected one; None where one of them does not fit the model."""
    scores = checklist_scores(judge, [reads_of(side) for pair in pairs for side in pair[1:]], progress)
    return [
        None if chosen is None or rejected is None else chosen - rejected
        for chosen, rejected in zip(scores[::2], scores[1::2], strict=True)
    ]


def by_rule(rule: Any, pairs: Sequence[Pair]) -> list[float | None]:
    """The same for a floor of `floors.py`: its mean over the labels of a text."""
    return [fmean(rule(pair.chosen)) - fmean(rule(pair.rejected)) for pair in pairs]


def preferences(
    differences: Sequence[float | None], groups: Sequence[Hashable], bootstrap: Bootstrap
) -> dict[str, Any]:
    """How often the chosen text has the higher score, and by how much.

    Args:
        differences (sequence of `float` or None): score(chosen) - score(rejected).
        groups (sequence, one per pair): pairs of the same group are resampled together.
        bootstrap ([`Bootstrap`]): settings of the intervals.

    Returns:
        `dict[str, Any]`: the figures of [`Preferences`] with intervals over groups (`WANTED`), the Wilson interval of
        the wins, which treats pairs as independent, and `permutation_p`, which flips the signs of whole groups; `n`
        pairs with two scores, and `unread` ones.
    """
    known = [(d, group) for d, group in zip(differences, groups, strict=True) if d is not None]
    values, places = [d for d, _ in known], [group for _, group in known]
    found: dict[str, Any] = {"n": len(known), "unread": len(differences) - len(known), "groups": len(set(places))}
    if not known:
        return found
    figures = bootstrap.figures(Preferences(values, [1.0] * len(values)), places)
    wins = figures["wins"].value
    assert wins is not None
    return (
        found
        | {name: figures[name].model_dump() for name in WANTED}
        | {
            "wilson": wilson(round(wins * len(values)), len(values)),
            "permutation_p": permutation_p(np.array(values), places, bootstrap.seed),
        }
    )
