"""The checklist-guided quality judge: answers every question with a short justification, then grades from 1 to 5.

It extends the batch judge. The grade depends on all answers, so a reply with a missing answer or without a grade is
requested again as a whole. If no reply is complete, the valid part of the last one counts: its answers become verdicts
and its grade the `quality` of the score; the rest is unanswered or None.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.judges.asking import Unreadable
from checklist_rewards.judges.batch import (
    Answers,
    BatchJudge,
    answers_schema,
    json_of,
    object_schema,
    read_answers,
)
from checklist_rewards.scores import BEST_QUALITY, LEAST_QUALITY

QUALITY_PROMPT = "judges/quality"
JUSTIFICATION, GRADE = "justification", "grade"
_GRADES = tuple(range(LEAST_QUALITY, BEST_QUALITY + 1))
_FORM = (
    "There are {count} questions, numbered from 1. Reply with a JSON object only: first one entry per question under "
    "its own number, in order, with a justification of one or two sentences before the answer; then your "
    "grade from {least} to {best}:\n{example}"
)


class QualityJudge(BatchJudge):
    """Answers the checklist of a target and grades it, in one call.

    Takes the arguments of [`BatchJudge`] except `reasoning`, which is always on.
    """

    default_prompt = QUALITY_PROMPT

    max_questions = None  # the grade depends on all answers

    def __init__(self, model: str | Engine = "pocket", **options: Any):
        super().__init__(model, reasoning=True, **options)

    def form(self, items: Sequence[ChecklistItem]) -> str:
        """The part of the prompt that describes the reply format."""
        entry = json.dumps({"index": 1, JUSTIFICATION: "...", "answer": "yes or no"})
        example = f'{{"answers": [{entry}, ...], "{GRADE}": {LEAST_QUALITY} to {BEST_QUALITY}}}'
        return _FORM.format(count=len(items), least=LEAST_QUALITY, best=BEST_QUALITY, example=example)

    def schema(self, items: Sequence[ChecklistItem]) -> str:
        """The JSON schema of a reply about these items."""
        answers = answers_schema(items, JUSTIFICATION)
        return json.dumps(object_schema({"answers": answers, GRADE: {"type": "integer", "enum": list(_GRADES)}}))

    def read(self, reply: str, items: Sequence[ChecklistItem]) -> Answers:
        """Parse a reply about these items. Raises [`Unreadable`] if an answer or the grade is missing."""
        value = json_of(reply)
        answers = read_answers(value, items, JUSTIFICATION)
        answers.grade = _grade(value.get(GRADE)) if isinstance(value, dict) else None
        missing = [number for number in range(1, len(items) + 1) if number - 1 not in answers.labels]
        if missing:
            raise Unreadable(f"the questions {missing} have no answer that is possible", answers)
        if answers.grade is None:
            raise Unreadable(f'"{GRADE}" must be a whole number from {LEAST_QUALITY} to {BEST_QUALITY}', answers)
        return answers


def _grade(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _GRADES else None
