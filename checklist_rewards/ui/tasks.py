"""What people annotate: the rows of a file with a checklist, in the order in which they are shown.

A file is a scored file, or has the columns `target` (or `completion`), `checklist`, and optionally `prompt` (or
`input`) and `id`. Rows and items have the names that `agree` uses, so that labels match the scored file. A task has no
answer of the judge: people who see it follow it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from checklist_rewards.chat import completion_text
from checklist_rewards.checklists import CANNOT_ASSESS, NO, YES, Checklist, ChecklistItem, content_hash
from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import read_scored
from checklist_rewards.files.rows import read_rows
from checklist_rewards.scores import DEFAULT_THRESHOLD, ItemScore, Score, item_keys
from checklist_rewards.scores.table import SCORE_COLUMN
from checklist_rewards.ui.records import CHECKLIST, ID, INPUTS, TARGETS, shown_prompt

Order = Literal["random", "uncertain", "differ"]
_NO_MARGIN = 2.0
"""Above every margin: judges without probabilities come last."""
ORDERS: tuple[str, ...] = get_args(Order)


@dataclass(frozen=True, slots=True)
class Task:
    """A response with the items that people answer about it."""

    id: str
    prompt: str | None
    target: str
    items: tuple[ChecklistItem, ...]
    keys: tuple[str, ...]
    """One per item: its id, with "#2" appended for a repeated question."""
    score: Score | None = None
    """The judge's answers, for the order of the tasks only."""
    group: str | None = None

    @property
    def text(self) -> str:
        """Hash of what people see. Answers about another text are not used."""
        return content_hash(self.prompt, self.target)

    def shown(self) -> dict[str, Any]:
        """The task for the page."""
        items = [
            {
                "key": key,
                "question": item.question,
                "category": item.category,
                "labels": [label for label, value in item.values.items() if value is not None],
                "abstention": abstention(item),
                "yes_no": item.yes_no,
            }
            for key, item in zip(self.keys, self.items, strict=True)
        ]
        return {"id": self.id, "prompt": self.prompt, "target": self.target, "text": self.text, "items": items}


def abstention(item: ChecklistItem) -> str:
    """The label of "cannot assess": that of the item, or one that only annotations have."""
    return next((label for label, value in item.values.items() if value is None), CANNOT_ASSESS)


def read_tasks(path: Path) -> list[Task]:
    """The tasks of a file, in order. Raises [`SampleError`] if it has no responses with checklists."""
    first = next(iter(read_rows(path)), None)
    if first is None:
        raise SampleError(f"{path.name} has no rows.")
    tasks = _scored(path) if SCORE_COLUMN in first.data else _unscored(path)
    if not tasks:
        raise SampleError(f"{path.name} has no row with a checklist.")
    return tasks


def ordered(tasks: Sequence[Task], order: Order, seed: int, others: Sequence[Task] | None = None) -> list[int]:
    """The places of the tasks in the order in which people see them.

    Args:
        tasks (sequence of [`Task`]):
            All tasks.
        order (`str`):
            `random`; `uncertain`: those first about which the judge is least certain; `differ`: those first
            about which most items differ between the judges, in `others` or in the votes of a panel.
        seed (`int`):
            Seed of the random order, which also orders equal tasks.
        others (sequence of [`Task`], *optional*):
            The tasks of a second scored file.

    Raises:
        SampleError: If the file has no scores, or no second judge, for this order.
    """
    if order not in ORDERS:
        raise SampleError(f"order {order!r} is not allowed; allowed: {', '.join(ORDERS)}.")
    places = list(range(len(tasks)))
    random.Random(seed).shuffle(places)
    if order == "random":
        return places
    if not any(task.score for task in tasks):
        raise SampleError(f"order {order!r} requires a scored file; score the file, or choose the order random.")
    if order == "uncertain":
        return sorted(places, key=lambda place: _margin(tasks[place]))
    partners = {task.id: task for task in others or ()}
    if others is None and not any(line.votes for task in tasks if task.score for line in task.score.items):
        raise SampleError("order 'differ' requires a second scored file, or scores of a panel with votes.")
    return sorted(places, key=lambda place: -_differing(tasks[place], partners.get(tasks[place].id)))


def _scored(path: Path) -> list[Task]:
    return [
        Task(row.id, _prompt(row.data), _target(row.data, row.where), row.items, row.keys, row.score, _group(row.data))
        for row in read_scored(path)
    ]


def _unscored(path: Path) -> list[Task]:
    rows = list(read_rows(path))
    named = all(row.data.get(ID) is not None for row in rows)
    tasks: list[Task] = []
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        name = str(row.data[ID]) if named else str(number)
        if name in seen:
            raise SampleError(f"{row.where}: duplicate id {name!r}; ids must be unique.")
        seen.add(name)
        if CHECKLIST not in row.data:
            raise SampleError(f"{row.where}: column {CHECKLIST!r} not found; the row has {', '.join(row.data)}.")
        if row.data[CHECKLIST] in (None, ""):
            continue
        items = Checklist.parse(row.data[CHECKLIST], f"{row.where}, checklist").items
        target = _target(row.data, row.where)
        tasks.append(Task(name, _prompt(row.data), target, items, item_keys(items), group=_group(row.data)))
    return tasks


def _prompt(data: Mapping[str, Any]) -> str | None:
    return next((shown_prompt(data[name]) for name in INPUTS if data.get(name) is not None), None)


def _target(data: Mapping[str, Any], where: str) -> str:
    name = next((name for name in TARGETS if data.get(name) is not None), None)
    if name is None:
        raise SampleError(f"{where}: column 'target' not found; the row has {', '.join(map(repr, data))}.")
    return completion_text(data[name])


def _group(data: Mapping[str, Any]) -> str | None:
    return None if data.get("group") in (None, "") else str(data["group"])


def _margin(task: Task) -> float:
    if task.score is None:
        return _NO_MARGIN
    threshold = DEFAULT_THRESHOLD if task.score.aggregation is None else task.score.aggregation.threshold
    margins = [_certainty(line, threshold) for line in task.score.items]
    return min((margin for margin in margins if margin is not None), default=_NO_MARGIN)


def _certainty(line: ItemScore, threshold: float) -> float | None:
    """How far the judge was from another answer; 0 where it gave none. None without probabilities."""
    if line.unanswered is not None:
        return 0.0
    shares = line.probabilities or {}
    if set(shares) == {YES, NO}:
        return abs(shares[YES] - threshold)
    known = sorted(shares.values(), reverse=True)
    return known[0] - known[1] if len(known) > 1 else None


def _differing(task: Task, other: Task | None) -> int:
    if task.score is None:
        return -1
    theirs = dict(zip(other.keys, other.score.items, strict=True)) if other is not None and other.score else {}
    differing = 0
    for key, line in zip(task.keys, task.score.items, strict=True):
        among = {vote.answer for vote in line.votes or () if vote.answer is not None}
        differing += len(among) > 1 or (key in theirs and theirs[key].answer != line.answer)
    return differing
