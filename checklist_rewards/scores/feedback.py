"""A score as feedback for the writer of the text: what is wrong, what it should be, and what is right."""

from __future__ import annotations

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.scores.score import ItemScore, Score


def feedback_of(checklist: Checklist, score: Score) -> str:
    """The verdicts as feedback text, one line per answered item: failed items first, then passed ones.

    Lines of failed items state the required answer (such as "no" for a penalty) and the judge's reasoning, if any.
    """
    wrong: list[str] = []
    right: list[str] = []
    for item, line in zip(checklist.items, score.items, strict=True):
        if line.passed is None:
            continue
        (right if line.passed else wrong).append(_line(item, line))
    parts = [("Wrong:", wrong), ("Right:", right)]
    return "\n\n".join("\n".join([title, *lines]) for title, lines in parts if lines)


def _line(item: ChecklistItem, line: ItemScore) -> str:
    said = f"- {item.question} {line.answer}"
    if line.passed:
        return said
    values = {label: value for label, value in item.values.items() if value is not None}
    wanted = (max if item.weight >= 0 else min)(values, key=values.__getitem__)
    reason = " ".join((line.reasoning or "").split())
    return f"{said}, but it should be {wanted}." + (f" {reason}" if reason else "")
