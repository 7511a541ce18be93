"""Validate judges as AutoChecklist does: ratings of SummEval (its table 4) and pairs of texts (its table 3).

    python recipes/studies/judges/validation.py --output runs/validation --judge pocket=pocket \\
        --judge untrained=smollm2 --judge adapter=smollm2+runs/english/adapter-all \\
        --judge encoder=runs/english/encoder-all

A judge is NAME=MODEL, or NAME=MODEL+ADAPTER with the folder of a LoRA adapter. Floors need no judge and are always
included. Pairs are those of `pairs.py`, and of SummEval the best-rated against the worst-rated summary of every
article that is read. Scores are mean P(yes) over a checklist.

Writes the figures of each judge to `<output>/<name>.json`, and all tables to `<output>/tables.md`. A judge with a file
is skipped. Answers are kept in `<output>/store.sqlite`, so an interrupted judge continues.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from studies.common import DATA, judge_of, markdown, run_main, save_json
from studies.judges import summeval
from studies.judges.floors import LENGTH, OVERLAP, length, overlap
from studies.judges.pairs import SETS, by_rule, judged, pairs_of, preferences, reads_of

from checklist_rewards.errors import SampleError
from checklist_rewards.evaluation.agreement import Bootstrap, Figure
from checklist_rewards.files.store import Store
from checklist_rewards.judges import Judge
from checklist_rewards.progress import progress_on

SUMMEVAL = "summeval"
SOURCE = "AutoChecklist (Zhou and Tan), checklists of the named model, scored by gpt-5"
PUBLISHED_RATINGS = {
    "checkeval, gpt-5-mini": ((0.723, 1.104), (0.756, 0.925), (0.819, 0.829), (0.571, 0.719)),
    "checkeval, claude-sonnet-4.6": ((0.733, 1.041), (0.804, 0.627), (0.805, 0.863), (0.639, 0.652)),
    "interacteval, gpt-5-mini": ((0.755, 0.703), (0.835, 0.565), (0.670, 0.980), (0.612, 0.910)),
    "interacteval, claude-sonnet-4.6": ((0.775, 0.639), (0.808, 0.627), (0.759, 1.047), (0.587, 0.838)),
}
"""Spearman and MAE by dimension of 100 summaries of SummEval (table 4). The scores are pass rates."""
PUBLISHED_PAIRS = {
    "tick, gpt-5-mini": (75, 10, 15, 0.286, 0.919, 6.3e-15),
    "tick, claude-sonnet-4.6": (67, 11, 22, 0.259, 0.846, 3.0e-13),
    "rlcf, gpt-5-mini": (70, 16, 14, 0.228, 0.785, 4.9e-12),
    "rlcf, claude-sonnet-4.6": (54, 11, 35, 0.203, 0.696, 4.4e-10),
}
"""Wins, losses and ties in percent of 100 pairs of RewardBench, mean difference, Cohen's d, p of the t-test (table 3).
The scores are pass rates; RewardBench is not in the data."""


class Named(NamedTuple):
    """A judge of the command line."""

    name: str
    model: str
    adapter: str | None


def named(text: str) -> Named:
    """Parse NAME=MODEL or NAME=MODEL+ADAPTER."""
    name, equals, rest = text.partition("=")
    model, _, adapter = rest.partition("+")
    if not (equals and name and model):
        raise argparse.ArgumentTypeError(f"{text!r} is not a judge; write NAME=MODEL or NAME=MODEL+ADAPTER.")
    return Named(name, model, adapter or None)


class Validation:
    """The texts, and what is measured on them."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.bootstrap = Bootstrap(args.resamples)
        self.rated = summeval.load(args.data, args.documents)
        self.pairs = {task: pairs_of(task, args.pairs, args.data) for task in SETS}

    def judge(self, judge: Judge, name: str) -> dict[str, Any]:
        """The figures of a judge."""
        with progress_on(Console()) as bar:
            questions = sum(map(len, summeval.QUESTIONS.values()))
            scores = summeval.judged(judge, self.rated, bar(f"{name}, {SUMMEVAL}", questions * len(self.rated)))
            differences = {
                task: judged(judge, some, bar(f"{name}, {task}", sum(len(reads_of(s)) for p in some for s in p[1:])))
                for task, some in self.pairs.items()
            }
        return self._figures(scores, differences)

    def floors(self) -> dict[str, dict[str, Any]]:
        """The figures of the floors."""
        scores = summeval.floors(self.args.data, self.args.documents)
        found = {
            name: self._figures(scores[name], {task: by_rule(rule, some) for task, some in self.pairs.items()})
            for name, rule in ((OVERLAP, overlap), (LENGTH, length))
        }
        constant = summeval.measure(scores[summeval.CONSTANT], self.rated, self.bootstrap)
        return found | {summeval.CONSTANT: {"ratings": constant, "pairs": {}}}

    def _figures(self, scores: summeval.Scores, differences: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
        pairs = {SUMMEVAL: preferences(*summeval.best_and_worst(scores, self.rated), self.bootstrap)}
        for task, some in differences.items():
            pairs[task] = preferences(some, [pair.group for pair in self.pairs[task]], self.bootstrap)
        return {"ratings": summeval.measure(scores, self.rated, self.bootstrap), "pairs": pairs}


def evaluate(validation: Validation, judge: Named, store: Store) -> dict[str, Any]:
    """The figures of a judge; those of its file, if it has one with the same settings."""
    args = validation.args
    settings = {"documents": args.documents, "pairs": args.pairs, "resamples": args.resamples, **judge._asdict()}
    path: Path = args.output / f"{judge.name}.json"
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["settings"] != settings:
            raise SampleError(f"{path} has the settings {found['settings']}; choose another name or --output.")
        return found
    found = {"settings": settings, **validation.judge(judge_of(judge.model, judge.adapter, store), judge.name)}
    save_json(path, found)
    return found


def ratings_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Spearman and MAE by dimension as Markdown."""
    rows: list[Sequence[Any]] = []
    for name, one in found.items():
        dimensions = one["ratings"].values()
        cells = [", ".join(_shown(dimension[key]) for key in ("spearman", "mae")) for dimension in dimensions]
        rows.append([name, min(dimension["n"] for dimension in dimensions), *cells])
    for name, row in PUBLISHED_RATINGS.items():
        rows.append([f"published: {name}", 100, *(f"{spearman:.3f}, {mae:.3f}" for spearman, mae in row)])
    return markdown(["Spearman, MAE", "n", *summeval.QUESTIONS], rows)


def pairs_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Wins, effect sizes and tests as Markdown. The interval of the wins is Wilson's."""
    columns = ("wins", "losses", "ties", "difference", "Cohen's d", "p, t-test", "p, permutation")
    rows: list[Sequence[Any]] = []
    for name, one in found.items():
        for task, row in one["pairs"].items():
            if not row["n"]:
                rows.append([name, task, f"0 ({row['unread']} do not fit)", *[""] * len(columns)])
                continue
            low, high = row["wilson"]
            cells = [_shown(row[key]) for key in ("difference", "cohens_d")]
            tests = [_p(row["t_test_p"]["value"]), _p(row["permutation_p"])]
            shares = [f"{row['wins']['value']:.3f} [{low:.3f}, {high:.3f}]"]
            shares += [f"{row[key]['value']:.3f}" for key in ("losses", "ties")]
            rows.append([name, task, row["n"], *shares, *cells, *tests])
    for name, (wins, losses, ties, difference, d, p) in PUBLISHED_PAIRS.items():
        shares = [f"{percent / 100:.2f}" for percent in (wins, losses, ties)]
        rows.append([f"published: {name}", "RewardBench", 100, *shares, difference, d, _p(p), ""])
    return markdown(["", "pairs", "n", *columns], rows)


def _shown(figure: Mapping[str, Any] | None) -> str:
    return "" if figure is None or figure["value"] is None else Figure(**figure).shown()


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Validate judges; returns the figures by name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--judge", type=named, action="append", default=[], help="NAME=MODEL or NAME=MODEL+ADAPTER")
    parser.add_argument("--output", type=Path, default=Path("runs/validation"))
    parser.add_argument("--documents", type=int, default=25, help="articles of SummEval, with four summaries each")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of each other set, at most")
    parser.add_argument("--data", default=DATA, help="folder of the tasks")
    parser.add_argument("--resamples", type=int, default=1000)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    validation, store = Validation(args), Store(args.output / "store.sqlite")
    found = validation.floors()
    for judge in args.judge:
        found[judge.name] = evaluate(validation, judge, store)
    tables = f"{ratings_table(found)}\n\n{pairs_table(found)}\n\nPublished: {SOURCE}.\n"
    (args.output / "tables.md").write_text(tables, encoding="utf-8")
    Console(width=220).print(tables)
    return found


if __name__ == "__main__":
    run_main(main)
