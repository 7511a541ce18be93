"""Adapt a judge to a new domain by prompts alone: what does each change of a prompt buy?

    python recipes/studies/judges/domain.py smollm2 --name untrained
    python recipes/studies/judges/domain.py smollm2 --adapter runs/english/adapter-not-semeval --name adapter

The domain is `semeval`: students' answers to science questions, compared with the answers that teachers expect. No
weight is trained. The changes ([`CHANGES`]) are tried in order: the judge prompt of the domain (`prompts/grade.md`),
the expected answer as the reference of the read, examples from the training split, the expected answer split into
points, several wordings. A score is the mean P(yes) over the items of an answer.

Everything is chosen on the training split: a change is kept if it raises the AUC of the training reads, the next one
is tried on top of the changes that were kept, and each threshold has the fewest wrong answers on the training reads.
Examples are never answers that are read. The figures are those of the dev split, which has new answers to the same
exam questions. Each line is compared with the changes kept before it, in the same resamples of the bootstrap over exam
questions.

With `--writer MODEL`, that model writes the questions about the points with `prompts/points.md`. Expected answers that
it cannot split, and all of them by default, are split at their clauses. Answers are kept in `<output>/store.sqlite`,
so the same command continues. Writes `<output>/<name>.json` and `<output>/<name>.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from english.tasks import DEV, TRAIN, Example, load, sample
from rich.console import Console
from studies.common import DATA, Difference, add_judge, judge_of, markdown, probabilities_of_yes, run_main, save_json
from studies.judges.floors import OVERLAP, overlap
from studies.judges.grading import (
    MOST_POINTS,
    PROMPTS,
    SAME,
    SHOWN,
    SUBJECT,
    TASK,
    Setup,
    answer_key,
    expected,
    point_questions,
    shots,
)
from studies.judges.protocol import Answers, best_threshold, figures

from checklist_rewards.backends import Engine, is_encoder
from checklist_rewards.checklists import NO, YES
from checklist_rewards.errors import ModelError
from checklist_rewards.evaluation.agreement import Bootstrap, Categories, Figure, Numbers
from checklist_rewards.files.store import Store
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.judges import Ask, LogprobJudge
from checklist_rewards.progress import progress_on

FIGURES = ("auc", "kappa", "accuracy")
CHANGES: dict[str, Mapping[str, Any]] = {
    "judge prompt of the domain": {"prompt": str(PROMPTS / "grade.md")},
    "reference shown": {"reference": True},
    "four examples of the subject": {"examples": SUBJECT},
    "four examples of each exam question": {"examples": SAME},
    "expected answer split into points": {"points": True},
    "three wordings": {"wordings": len(SHOWN)},
}
BASELINE = "shipped prompt, plain question"


def _measures(answers: Answers) -> tuple[Numbers, Categories]:
    assert answers.threshold is not None
    right = [example.label > 0.5 for example in answers.examples]
    said = [YES if p >= answers.threshold else NO for p in answers.predicted]
    truths = [YES if label else NO for label in right]
    numbers = Numbers(answers.predicted, [float(label) for label in right], only=["auc"])
    return numbers, Categories(said, truths, {YES: 1, NO: 0})


class Study:
    """The reads of a judge under different setups."""

    def __init__(self, args: argparse.Namespace):
        if is_encoder(args.model):
            raise ModelError(f"{args.model}: an encoder judge has no prompt; choose a generative model.")
        self.store = Store(args.output / "store.sqlite")
        self.engine = judge_of(args.model, args.adapter, self.store).engine
        everything = load(TASK, TRAIN, args.data)
        self.train = sample(everything, args.train_reads)
        self.dev = sample(load(TASK, DEV, args.data), args.reads)
        read = {answer_key(example) for example in self.train}
        others = [e for e in sample(everything, len(everything), seed=1) if answer_key(e) not in read]
        self.examples = {which: shots(others, which) for which in (SUBJECT, SAME)}
        writer = None
        if args.writer is not None:
            writer = DirectGenerator(
                Engine(args.writer, "transformers"),
                prompt=PROMPTS / "points.md",
                min_items=1,
                max_items=MOST_POINTS,
                temperature=0,
                max_tokens=160,
                store=self.store,
            )
        self.points, self.unsplit = point_questions([*self.train, *self.dev], writer)

    def reads(self, setup: Setup, examples: Sequence[Example]) -> list[list[Ask]]:
        """The reads of every answer."""
        return [setup.reads(example, self.points[expected(example)]) for example in examples]

    def answers(self, setup: Setup, name: str) -> tuple[Answers, Answers]:
        """Scores of the training and dev answers, with the threshold of the training answers."""
        judge = LogprobJudge(
            self.engine,
            prompt=setup.prompt,
            mass_floor=0,
            examples=None if setup.examples is None else self.examples[setup.examples],
            store=self.store,
        )
        predicted = []
        for examples in (self.train, self.dev):
            reads = self.reads(setup, examples)
            flat = [read for some in reads for read in some]
            with progress_on(Console()) as bar:
                yes = iter(probabilities_of_yes(judge, flat, bar(name, len(flat))))
            predicted.append([fmean(next(yes) for _ in some) for some in reads])
        threshold = best_threshold(predicted[0], self.train)
        return Answers(self.train, predicted[0], threshold), Answers(self.dev, predicted[1], threshold)

    def run(self, bootstrap: Bootstrap) -> dict[str, Any]:
        """Try the changes in order; returns the figures by change."""
        kept = Setup()
        train, first = self.answers(kept, BASELINE)
        best, last = self._auc(train), first
        lines = {BASELINE: self._line(kept, train, first, bootstrap) | {"kept": True}}
        for name, change in CHANGES.items():
            setup = replace(kept, **change)
            train, dev = self.answers(setup, name)
            lines[name] = self._line(setup, train, dev, bootstrap) | {"gain": _gain(dev, last, bootstrap)}
            lines[name]["kept"] = self._auc(train) > best
            if lines[name]["kept"]:
                kept, best, last = setup, self._auc(train), dev
        floor = [overlap(examples) for examples in (self.train, self.dev)]
        threshold = best_threshold(floor[0], self.train)
        floors = [Answers(self.train, floor[0], threshold), Answers(self.dev, floor[1], threshold)]
        lines[OVERLAP] = self._line(None, *floors, bootstrap)
        return {
            "reads": {"train": len(self.train), "dev": len(self.dev)},
            "groups": len({example.group for example in self.dev}),
            "split": sum(map(bool, self.points.values())),
            "expected_answers": len(self.points),
            "not_split_by_writer": self.unsplit,
            "lines": lines,
            "all_kept": _gain(last, first, bootstrap),
        }

    @staticmethod
    def _auc(answers: Answers) -> float:
        auc = _measures(answers)[0].figures()["auc"]
        if auc is None:
            raise ModelError("the training reads have one label only; read more with --train-reads.")
        return auc

    def _line(self, setup: Setup | None, train: Answers, dev: Answers, bootstrap: Bootstrap) -> dict[str, Any]:
        found = figures(dev, bootstrap)
        counts = Counter() if setup is None else Counter(map(len, self.reads(setup, self.dev)))
        return {
            "reads_per_answer": sum(size * n for size, n in counts.items()) / len(self.dev),
            "train_auc": self._auc(train),
            "threshold": dev.threshold,
            "figures": {name: found[name].model_dump() for name in FIGURES},
        }


def _gain(now: Answers, before: Answers, bootstrap: Bootstrap) -> dict[str, Any]:
    groups = [example.group for example in now.examples]
    (numbers, labels), (numbers_before, labels_before) = _measures(now), _measures(before)
    found = bootstrap.figures(Difference(numbers, numbers_before, ["auc"]), groups)
    found |= bootstrap.figures(Difference(labels, labels_before, ["kappa", "accuracy"]), groups)
    return {name: figure.model_dump() for name, figure in found.items()}


def table(found: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    columns = ("", "kept", "reads per answer", "AUC on train", *FIGURES, *(f"change of {name}" for name in FIGURES))
    rows = []
    for name, line in found["lines"].items():
        shown = [Figure(**line["figures"][figure]).shown() for figure in FIGURES]
        gains = [Figure(**line["gain"][figure]).shown() if "gain" in line else "" for figure in FIGURES]
        kept = {True: "yes", False: "no", None: ""}[line.get("kept")]
        rows.append([name, kept, f"{line['reads_per_answer']:.2f}", f"{line['train_auc']:.3f}", *shown, *gains])
    total = ", ".join(f"{name} {Figure(**found['all_kept'][name]).shown()}" for name in FIGURES)
    about = f"dev n = {found['reads']['dev']}, {found['groups']} exam questions; train n = {found['reads']['train']}"
    split = f"{found['split']} of {found['expected_answers']} expected answers have several points"
    total = f"All kept changes against the first line: {total}."
    return "\n".join([f"{about}; {split}.", "", markdown(columns, rows), "", total, ""])


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Try the changes; returns the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_judge(parser)
    parser.add_argument("--output", type=Path, default=Path("runs/domain"))
    parser.add_argument("--name", default="judge", help="name of the files of the figures")
    parser.add_argument("--reads", type=int, default=250, help="number of dev answers")
    parser.add_argument("--train-reads", type=int, default=150, help="number of training answers")
    parser.add_argument("--writer", help="model that splits the expected answers; by default, code does")
    parser.add_argument("--data", default=DATA, help="folder of the tasks")
    parser.add_argument("--resamples", type=int, default=1000)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    found = {
        "model": args.model,
        "adapter": args.adapter,
        "writer": args.writer,
        **Study(args).run(Bootstrap(args.resamples)),
    }
    save_json(args.output / f"{args.name}.json", found)
    (args.output / f"{args.name}.md").write_text(table(found), encoding="utf-8")
    Console(width=220).print(table(found))
    return found


if __name__ == "__main__":
    run_main(main)
