"""Stop reading when the decision is fixed.

A score has bounds: the lowest and the highest value that it can have, whatever the items that are not read yet answer.
So a decision can be fixed before all items are read:

- *a score*: a failed required item fixes it at 0 ([`not_fixed`]);
- *best-of-N*: a candidate whose upper bound is below the lower bound of another one is not the best ([`may_be_best`]);
- *a pair of the best and the worst candidate*: a candidate that can be neither is in no pair ([`may_be_either`]).

Items are read in rounds: checks by code and required items in the first, then the others from the greatest weight
down. After each round, only the targets that are still open are read on. An item that is not read is unanswered with
the reason `not_needed`. It is no failure: it is not counted as one, and a retry does not ask for it.

Each round sends the target again. With a prefix cache (vLLM, most servers) only the questions are new; an engine
without one computes the target once per round. [`ReadResult`] counts both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.judges import BatchJudge, Judge, RemoteJudge
from checklist_rewards.judges.panel import JudgeGroup
from checklist_rewards.scores import EQUAL, Score

ROUNDS = 4
"""Number of rounds after the first one. Each asks for an equal share of the weight."""
Open = Callable[[Sequence[Score]], Sequence[bool]]
"""Which scores of a group can still change the decision."""


def not_fixed(scores: Sequence[Score]) -> list[bool]:
    """Open are scores whose bounds differ."""
    return [s.lower is None or s.upper is None or s.upper - s.lower > EQUAL for s in scores]


def may_be_best(scores: Sequence[Score]) -> list[bool]:
    """Open are scores that can be the highest of their group, or equal to it."""
    floor = max((score.lower for score in _counted(scores) if score.lower is not None), default=-math.inf)
    return [score.upper is None or score.upper >= floor - EQUAL for score in scores]


def may_be_either(scores: Sequence[Score]) -> list[bool]:
    """Open are scores that can be the highest or the lowest of their group, or equal to one of them."""
    ceiling = min((score.upper for score in _counted(scores) if score.upper is not None), default=math.inf)
    lowest = [score.lower is None or score.lower <= ceiling + EQUAL for score in scores]
    return [best or worst for best, worst in zip(may_be_best(scores), lowest, strict=True)]


def _counted(scores: Sequence[Score]) -> list[Score]:
    """Without those that have been read and have no score: nothing is better or worse than them."""
    return [score for score in scores if score.primary_score is not None or score.not_needed]


def rounds(items: Sequence[ChecklistItem], is_free: Callable[[ChecklistItem], bool]) -> Iterator[list[int]]:
    """The places of the items of each round, the most decisive ones first.

    Args:
        items (sequence of [`ChecklistItem`]): The items of a checklist.
        is_free (callable): Whether an item is answered without the judge.
    """
    first = [place for place, item in enumerate(items) if is_free(item) or item.required]
    if first:
        yield first
    others = sorted(set(range(len(items))) - set(first), key=lambda place: -abs(items[place].weight))
    reached = list(accumulate(abs(items[place].weight) for place in others))
    start = 0
    for number in range(1, ROUNDS + 1):
        share = reached[-1] * number / ROUNDS + EQUAL if reached else 0.0
        end = max(min(start + 1, len(others)), sum(weight <= share for weight in reached))
        if end > start:
            yield others[start:end]
        start = end


def one_by_one(judge: Judge) -> bool:
    """Whether a judge answers each item without seeing the others, so that leaving some out changes no answer. A
    reward server does not tell."""
    if isinstance(judge, JudgeGroup):
        return all(map(one_by_one, judge.judges))
    inner = getattr(judge, "inner", None)
    return not isinstance(judge, BatchJudge | RemoteJudge) and (inner is None or one_by_one(inner))
