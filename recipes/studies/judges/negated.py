"""Does a judge follow the *not* of a question? The dev labels of the tasks, asked plainly and the other way round.

    python recipes/studies/judges/negated.py english-encoder english --output runs/negated

Two figures per task and judge, each an AUC with a bootstrap interval over groups: the first wording of the task, and a
wording that asks for the opposite, with the opposite label. No judge was trained on these opposite wordings
(`english/opposites.py` has others). A judge that ignores the *not* has 1 minus its first AUC as the second.

Writes `figures.json` and `figures.md`; judges that are in it are not read again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from english.tasks import DEV, TASKS, Example, load, sample
from studies.common import run_main
from studies.judges.comparison import Case, arguments, compare

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.judges import Ask

WORDINGS = {
    "realsumm": "Does the summary omit the following: '{}'?",
    "semeval": "Does the answer lack the following: '{}'?",
    "argkp": "Is this point missing in the text: '{}'?",
    "evouna": "Is the answer incorrect, given that the right answer is '{}'?",
}
"""Opposite questions that are in no training."""


def cases(example: Example) -> tuple[Case, Case]:
    """The plain question, and the opposite one."""
    yes, opposite = example.label > 0.5, WORDINGS[example.task].replace("{}", example.statement)
    plain = example.pair().question
    return (
        Case(Ask(ChecklistItem(question=plain), example.target, example.input), yes, example.group),
        Case(Ask(ChecklistItem(question=opposite), example.target, example.input), not yes, example.group),
    )


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure the judges; returns their figures."""
    args = arguments(__doc__ or "", "runs/negated", 250).parse_args(argv)
    found = {}
    for task in TASKS:
        plain, opposite = zip(*map(cases, sample(load(task, DEV, args.data), args.questions)), strict=True)
        found |= {task: plain, f"{task}, not": opposite}
    return compare(args.judges, found, args.output)


if __name__ == "__main__":
    run_main(main)
