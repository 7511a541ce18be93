"""Evaluate English judges on people's labels: trained on a task, or never shown an example of it.

    python recipes/english/evaluate.py --output runs/english

Reads the dev split of every task (`english/tasks.py`) with the judges in `<output>` (`english/train.py`): *within* is
a judge that was trained on all tasks, *unseen* one that was trained on the others only. The floors (`floors.py`) are
next to them, and with `--untrained` the base model. The threshold of kappa and accuracy is chosen on other tasks: a
judge's answers to the dev splits of the tasks that it was trained on, without the one that is tested.

Intervals are from the bootstrap over groups. With `--reads`, a random sample of each split is read. Answers are kept
in `<output>/store.sqlite`, so the same command continues. Writes `figures.json` and `figures.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english.common import DATA, judge_of, markdown, probabilities_of_yes, run_main, save_json
from english.floors import OVERLAP, REGRESSION, overlap, regression
from english.tasks import DEV, TASKS, TRAIN, Example, load, sample
from english.train import ADAPTER, ENCODER, RECORD, name_of
from rich.console import Console

from checklist_rewards.backends.packaged import SMOLLM2
from checklist_rewards.checklists import NO, YES, ChecklistItem
from checklist_rewards.evaluation.bootstrap import Bootstrap, Figure
from checklist_rewards.evaluation.calibration import Probabilities, ThresholdChoice
from checklist_rewards.evaluation.measures import Categories, Numbers
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Ask, Judge
from checklist_rewards.progress import progress_on

FIGURES = ("auc", "kappa", "accuracy", "ece")
_CHOSEN_ON = 150
"""Number of reads per task on which thresholds are chosen."""
_FITTED_ON = 4000
"""Number of labels per task on which a lexical regression is fitted; more do not change its eight weights."""


@dataclass(frozen=True, slots=True)
class Answers:
    """P(yes) of a judge for the examples of a task, with the threshold of yes; None for figures of rank only."""

    examples: Sequence[Example] = field(repr=False)
    predicted: Sequence[float]
    threshold: float | None


def figures(answers: Answers, bootstrap: Bootstrap) -> dict[str, Figure]:
    """AUC, and with a threshold kappa, accuracy and ECE, with intervals over groups. Labels above 0.5 are yes."""
    groups = [example.group for example in answers.examples]
    truths = [YES if example.label > 0.5 else NO for example in answers.examples]
    predicted, threshold = list(answers.predicted), answers.threshold
    found = bootstrap.figures(Numbers(predicted, [float(t == YES) for t in truths], only=["auc"]), groups)
    if threshold is not None:
        called = [YES if p >= threshold else NO for p in predicted]
        categories = bootstrap.figures(Categories(called, truths, {YES: 1.0, NO: 0.0}), groups)
        both = Probabilities([{YES: p, NO: 1 - p} for p in predicted], truths, [threshold] * len(truths))
        found |= {name: categories[name] for name in ("kappa", "accuracy")}
        found["ece"] = bootstrap.figures(both, groups)["ece"]
    return found


def read(judge: Judge, examples: Sequence[Example], name: str) -> list[float]:
    """P(yes) of every example."""
    pairs = [example.pair() for example in examples]
    items = {pair.question: ChecklistItem(question=pair.question) for pair in pairs}
    reads = [Ask(items[pair.question], pair.target, pair.input, pair.reference) for pair in pairs]
    with progress_on(Console()) as bar:
        return probabilities_of_yes(judge, reads, bar(f"{name}, {examples[0].task}", len(reads)))


def best_threshold(predicted: Sequence[float], examples: Sequence[Example]) -> float:
    """The threshold with the fewest wrong answers."""
    truths = np.array([example.label > 0.5 for example in examples], dtype=float)
    return ThresholdChoice("cost").best(np.array(predicted), truths)


class Evaluation:
    """The dev splits, and the judges in a folder."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.store = Store(args.output / "store.sqlite")
        reads = args.reads or sys.maxsize
        self.dev = {task: sample(load(task, DEV, args.data), reads) for task in TASKS}

    def judge(self, name: str) -> Judge | None:
        """The judge of a folder; None if it is not trained. `base` is the untrained model."""
        if name == "base":
            return judge_of(SMOLLM2, store=self.store)
        folder: Path = self.args.output / name
        if not (folder / RECORD).is_file():
            return None
        if name.startswith(ENCODER):
            return judge_of(str(folder), store=self.store)
        base = json.loads((folder / RECORD).read_text(encoding="utf-8"))["base"]
        return judge_of(base, str(folder), self.store)

    def answers(self, name: str, task: str) -> Answers | None:
        """The answers of a judge for a task, with a threshold chosen on the other tasks."""
        judge = self.judge(name)
        if judge is None:
            return None
        predicted = read(judge, self.dev[task], name)
        others = [sample(self.dev[other], _CHOSEN_ON) for other in TASKS if other != task]
        known = [p for examples in others for p in read(judge, examples, f"{name}, threshold")]
        return Answers(self.dev[task], predicted, best_threshold(known, [e for some in others for e in some]))

    def floors(self, task: str) -> dict[str, Answers]:
        """The floors of a task; the regression is trained on the task, or on the others."""
        examples = self.dev[task]
        training = {name: sample(load(name, TRAIN, self.args.data), _FITTED_ON) for name in TASKS}
        others = [example for name in TASKS if name != task for example in training[name]]
        return {
            OVERLAP: Answers(examples, overlap(examples), None),
            f"{REGRESSION}, within": Answers(examples, regression(training[task], examples), 0.5),
            f"{REGRESSION}, unseen": Answers(examples, regression(others, examples), 0.5),
        }

    def methods(self, task: str) -> dict[str, Answers]:
        """All methods that have answers for a task."""
        names = {"SmolLM2, untrained": "base"} if self.args.untrained else {}
        for kind, title in ((ENCODER, "encoder"), (ADAPTER, "SmolLM2 adapter")):
            names |= {f"{title}, within": name_of(kind, None), f"{title}, unseen": name_of(kind, task)}
        found = {title: self.answers(name, task) for title, name in names.items()}
        return self.floors(task) | {title: answers for title, answers in found.items() if answers is not None}


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures as Markdown, one table per task."""
    lines: list[str] = []
    for task, task_figures in found.items():
        lines += [f"{task}: n = {task_figures['n']}, {task_figures['groups']} groups", ""]
        rows = [
            [method, *(Figure(**line[name]).shown() if name in line else "" for name in FIGURES)]
            for method, line in task_figures["methods"].items()
        ]
        lines += [markdown(["", *FIGURES], rows), ""]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Evaluate; returns the figures by task and method."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/english"))
    parser.add_argument("--reads", type=int, help="number of reads per task; all by default")
    parser.add_argument("--untrained", action="store_true", help="read with SmolLM2 without an adapter, too")
    parser.add_argument("--data", default=DATA, help="folder of the tasks")
    parser.add_argument("--resamples", type=int, default=1000)
    args = parser.parse_args(argv)
    evaluation = Evaluation(args)
    bootstrap = Bootstrap(args.resamples)
    found: dict[str, Any] = {}
    for task in TASKS:
        methods = {
            method: {name: figure.model_dump() for name, figure in figures(answers, bootstrap).items()}
            for method, answers in evaluation.methods(task).items()
        }
        examples = evaluation.dev[task]
        found[task] = {"n": len(examples), "groups": len({e.group for e in examples}), "methods": methods}
    save_json(args.output / "figures.json", found)
    (args.output / "figures.md").write_text(table(found), encoding="utf-8")
    Console(width=150).print(table(found))
    return found


if __name__ == "__main__":
    run_main(main)
