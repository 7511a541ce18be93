"""AUC of several judges on the same questions, kept in a folder: what `infobench.py` and `negated.py` share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from studies.common import DATA, judge_of, markdown, probabilities_of_yes, save_json
from studies.judges.floors import OVERLAP
from studies.judges.realsumm import content_recall

from checklist_rewards.evaluation.agreement import Bootstrap, Figure, Numbers
from checklist_rewards.judges import Ask
from checklist_rewards.progress import progress_on


@dataclass(frozen=True, slots=True)
class Case:
    """A question about a text, whether yes is right, and the group for the bootstrap."""

    read: Ask
    yes: bool
    group: str


def arguments(description: str, output: str, questions: int) -> argparse.ArgumentParser:
    """A parser with the judges, the folder of the results, the number of questions, and the folder of the data."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("judges", nargs="+", help="packaged models, encoder judges, folders or Hub ids")
    parser.add_argument("--output", type=Path, default=Path(output))
    parser.add_argument(
        "--questions", type=int, default=questions, help="questions per figure; for labels, as many of each"
    )
    parser.add_argument("--data", default=DATA, help="folder of the data sets")
    return parser


def compare(judges: Sequence[str], found: Mapping[str, Sequence[Case]], output: Path) -> dict[str, Any]:
    """The AUC of word overlap and of every judge, by kind of case, with intervals over groups.

    Writes `figures.json` and `figures.md`; judges that are in it are not read again.
    """
    output.mkdir(parents=True, exist_ok=True)
    path = output / "figures.json"
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name in (OVERLAP, *judges):
        if name not in figures:
            measured = measure(name, found)
            figures[name] = {kind: figure.model_dump() for kind, figure in measured.items()}
            save_json(path, figures)
    (output / "figures.md").write_text(table(figures), encoding="utf-8")
    Console(width=150).print(table(figures))
    return figures


def measure(name: str, found: Mapping[str, Sequence[Case]]) -> dict[str, Figure]:
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
        measured = Numbers(predicted, truths, only=["auc"])
        figures[kind] = Bootstrap().figures(measured, [case.group for case in some])["auc"]
    return figures


def table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures as Markdown."""
    kinds = list(next(iter(figures.values())))
    rows = [[name, *(Figure(**line[kind]).shown() for kind in kinds)] for name, line in figures.items()]
    return markdown(["judge", *kinds], rows) + "\n"
