"""Questions of a kind that no judge here was trained on: InFoBench's criteria of answers to instructions.

    python recipes/studies/judges/infobench.py english-encoder english smollm2 --output runs/infobench

Experts wrote the questions ("Does the letter mention the date?"), GPT-4 wrote one answer to each instruction, and the
labels are yes or no by GPT-4. Two figures per judge, each an AUC with a bootstrap interval over instructions:

- *labels*: questions with the label no, against as many with yes. GPT-4 found few faults in its own answers, and
  many of them are a matter of form or of counting.
- *another answer*: questions with yes, asked about the right answer, and about an answer to another instruction of
  another category, where nearly every one is wrong.

Word overlap is the floor. Texts are cut to the lengths below. Writes `figures.json` and `figures.md`; judges that are
in it are not read again.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from studies.common import run_main
from studies.judges.comparison import Case, arguments, compare

from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.files.rows import read_rows
from checklist_rewards.judges import Ask

FILE = "infobench/infobench_en_gpt4out_gpt4judge.jsonl"
LABELS, OTHER = "labels", "another answer"
TARGET_LETTERS, INPUT_LETTERS = 1500, 1200


def cases(path: Path, count: int, seed: int = 0) -> dict[str, list[Case]]:
    """For each figure, `count` questions where yes is right and `count` where no is."""
    rows = [row.data for row in read_rows(path)]
    rng = random.Random(seed)
    asked = [
        (number, *pair)
        for number, row in enumerate(rows)
        for pair in zip(row["decomposed_questions"], row["eval"], strict=True)
    ]
    rng.shuffle(asked)
    wrong, right = ([one for one in asked if one[2] is label][:count] for label in (False, True))

    def case(number: int, question: str, yes: bool, answered: int) -> Case:
        row = rows[number]
        instruction = f"{row['instruction']}\n{row['input'] or ''}"[:INPUT_LETTERS]
        target = rows[answered]["output"][:TARGET_LETTERS]
        return Case(Ask(ChecklistItem(question=question), target, instruction), yes, str(number))

    def another(number: int) -> int:
        category = rows[number]["category"]
        return rng.choice([place for place, row in enumerate(rows) if row["category"] != category])

    own = [case(number, question, True, number) for number, question, _ in right]
    return {
        LABELS: [*own, *(case(number, question, False, number) for number, question, _ in wrong)],
        OTHER: [*own, *(case(number, question, False, another(number)) for number, question, _ in right)],
    }


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure the judges; returns their figures."""
    args = arguments(__doc__ or "", "runs/infobench", 150).parse_args(argv)
    return compare(args.judges, cases(Path(args.data) / FILE, args.questions), args.output)


if __name__ == "__main__":
    run_main(main)
