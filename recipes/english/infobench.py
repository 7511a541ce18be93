"""Questions of a kind that no judge here was trained on: InFoBench's criteria of answers to instructions.

    python recipes/english/infobench.py english-encoder english smollm2 --output runs/infobench

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

import argparse
import json
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.floors import OVERLAP  # noqa: E402
from english.judges import judge_of, probabilities_of_yes  # noqa: E402
from english.tasks import DATA  # noqa: E402
from evaluate.realsumm import content_recall  # noqa: E402
from rich.console import Console  # noqa: E402

from checklist_rewards.checklists import ChecklistItem  # noqa: E402
from checklist_rewards.errors import ChecklistRewardsError  # noqa: E402
from checklist_rewards.evaluation.agreement import Bootstrap, Figure, Numbers  # noqa: E402
from checklist_rewards.files.rows import read_rows  # noqa: E402
from checklist_rewards.judges import Read  # noqa: E402
from checklist_rewards.progress import progress_on  # noqa: E402

FILE = "infobench/infobench_en_gpt4out_gpt4judge.jsonl"
LABELS, OTHER = "labels", "another answer"
TARGET_LETTERS, INPUT_LETTERS = 1500, 1200


@dataclass(frozen=True, slots=True)
class Case:
    """A question about an answer, and whether yes is right."""

    read: Read
    yes: bool
    instruction: int


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
        return Case(Read(ChecklistItem(question=question), target, instruction), yes, number)

    def another(number: int) -> int:
        category = rows[number]["category"]
        return rng.choice([place for place, row in enumerate(rows) if row["category"] != category])

    own = [case(number, question, True, number) for number, question, _ in right]
    return {
        LABELS: [*own, *(case(number, question, False, number) for number, question, _ in wrong)],
        OTHER: [*own, *(case(number, question, False, another(number)) for number, question, _ in right)],
    }


def measure(name: str, found: Mapping[str, list[Case]], bootstrap: Bootstrap) -> dict[str, Figure]:
    """The AUC of a judge, or of word overlap, on each kind of case."""
    judge = None if name == OVERLAP else judge_of(name)
    figures = {}
    for kind, some in found.items():
        reads = [case.read for case in some]
        if judge is None:
            predicted = [content_recall(read.target, read.item.question) for read in reads]
        else:
            with progress_on(Console()) as bar:
                predicted = probabilities_of_yes(judge, reads, bar(f"{name}, {kind}", len(reads)))
        truths = [float(case.yes) for case in some]
        figures[kind] = bootstrap.figures(Numbers(predicted, truths), [case.instruction for case in some])["auc"]
    return figures


def table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures as Markdown."""
    lines = [f"| judge | {LABELS} | {OTHER} |", "|---|---|---|"]
    for name, line in figures.items():
        lines.append(f"| {name} | {' | '.join(Figure(**line[kind]).shown() for kind in (LABELS, OTHER))} |")
    return "\n".join([*lines, ""])


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure the judges; returns their figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("judges", nargs="+", help="packaged models, encoder judges, folders or Hub ids")
    parser.add_argument("--output", type=Path, default=Path("runs/infobench"))
    parser.add_argument("--questions", type=int, default=150, help="questions with yes, and as many with no")
    parser.add_argument("--data", default=DATA, help="folder of the data sets")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "figures.json"
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found = cases(Path(args.data) / FILE, args.questions)
    for name in (OVERLAP, *args.judges):
        if name not in figures:
            measured = measure(name, found, Bootstrap())
            figures[name] = {kind: figure.model_dump() for kind, figure in measured.items()}
            path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    (args.output / "figures.md").write_text(table(figures), encoding="utf-8")
    Console(width=150).print(table(figures))
    return figures


if __name__ == "__main__":
    try:
        main()
    except ChecklistRewardsError as error:
        raise SystemExit(f"error: {error}") from None
