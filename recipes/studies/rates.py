"""How often do 95 % intervals of judged rates cover the truth?

    python recipes/studies/rates.py --output runs/rates

The population is a labelled data set; the truth is its mean label. Each draw takes random groups (documents, exam
questions) with replacement, of which some are labelled, and computes three intervals: of the judge's rate with
independent units, as evaluation tools report it; of the labels alone; and of the judge corrected by the labels
(`evaluation/rates.py`). The judge is word overlap: the fraction of the statement's content words that are in the text,
which is weak and biased, and costs nothing. `biased` answers yes to all of them above 0.2.

For sets with a shift, the labelled groups are those with the highest judged rate; the share of draws in which the
correction is refused is shown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from english.tasks import DEV, TRAIN, load
from rich.console import Console
from studies.common import DATA, markdown, once, run_main
from studies.judges.realsumm import content_recall

from checklist_rewards.evaluation.rates import corrected_rate

TASKS = ("realsumm", "semeval", "evouna")
JUDGES = ("overlap", "biased")
METHODS = ("judge alone", "labels alone", "corrected")
_BIASED = 0.2


def population(task: str, data: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Judged values and labels of all units, and the units of each group."""
    examples = [example for split in (TRAIN, DEV) for example in load(task, split, data)]
    overlap = np.array([content_recall(example.target, example.statement) for example in examples])
    labels = np.array([float(example.label > 0.5) for example in examples])
    names = np.array([example.group for example in examples])
    return overlap, labels, [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]


def draw(
    values: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[np.ndarray],
    sizes: tuple[int, int, int],
    seed: int,
    shift: bool,
) -> dict[str, Any]:
    """The intervals of one draw of `sizes`: groups, labelled groups, and units of each group at most."""
    rng = np.random.default_rng(seed)
    count, labelled, most = sizes
    drawn = [rng.permutation(groups[place])[:most] for place in rng.integers(0, len(groups), count)]
    if shift:
        drawn.sort(key=lambda units: -float(values[units].mean()))
    units = np.concatenate(drawn)
    codes = np.repeat(np.arange(count), [len(each) for each in drawn])
    rate = corrected_rate(
        values[units].tolist(),
        [float(labels[unit]) if code < labelled else None for unit, code in zip(units, codes, strict=True)],
        codes.tolist(),
    )
    judged = values[units]
    half = 1.96 * float(judged.std(ddof=1)) / len(judged) ** 0.5
    return {
        "judge alone": (judged.mean() - half, judged.mean() + half),
        "labels alone": (rate.labelled.low, rate.labelled.high),
        "corrected": (rate.corrected.low, rate.corrected.high),
        "refused": rate.refused is not None,
    }


def study(task: str, args: argparse.Namespace) -> dict[str, Any]:
    """Coverage and mean width of all methods."""
    overlap, labels, groups = population(task, args.data)
    found: dict[str, Any] = {"units": len(labels), "groups": len(groups), "truth": float(labels.mean())}
    # The truth of a draw is the mean over groups, since every group gives the same number of units.
    for judge in JUDGES:
        values = overlap if judge == "overlap" else (overlap > _BIASED).astype(float)
        for labelled in args.labelled:
            sizes = (args.groups, labelled, args.units)
            cells = [draw(values, labels, groups, sizes, seed, False) for seed in range(args.draws)]
            truth = _truth(labels, groups, args.units)
            cell: dict[str, Any] = {}
            for method in METHODS:
                known = [each[method] for each in cells if each[method][0] is not None]
                cell[method] = {
                    "coverage": float(np.mean([low <= truth <= high for low, high in known])),
                    "width": float(np.mean([high - low for low, high in known])),
                }
            cell["refused"] = float(np.mean([each["refused"] for each in cells]))
            shifted = [draw(values, labels, groups, sizes, seed, True) for seed in range(max(1, args.draws // 10))]
            cell["refused if shifted"] = float(np.mean([each["refused"] for each in shifted]))
            found[f"{judge}, {labelled}"] = cell
    return found


def _truth(labels: np.ndarray, groups: Sequence[np.ndarray], most: int) -> float:
    sizes = np.array([min(most, len(units)) for units in groups], dtype=float)
    return float(sizes @ [labels[units].mean() for units in groups] / sizes.sum())


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the study; returns the figures by task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/rates"))
    parser.add_argument("--tasks", nargs="*", default=TASKS, choices=TASKS)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--groups", type=int, default=100, help="groups per draw")
    parser.add_argument("--labelled", type=int, nargs="*", default=(20, 50), help="labelled groups per draw")
    parser.add_argument("--units", type=int, default=8, help="units of each group, at most")
    parser.add_argument("--data", default=DATA, help="folder of the labelled data")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    settings = {name: getattr(args, name) for name in ("draws", "groups", "units")} | {"labelled": list(args.labelled)}
    found = {task: once(args.output / task, settings, lambda task=task: study(task, args)) for task in args.tasks}
    rows = [
        [
            f"{task}, {name}",
            *(f"{cell[method]['coverage']:.3f}, {cell[method]['width']:.3f}" for method in METHODS),
            f"{cell['refused']:.3f}",
            f"{cell['refused if shifted']:.3f}",
        ]
        for task, cells in found.items()
        for name, cell in cells.items()
        if isinstance(cell, dict) and "refused" in cell
    ]
    text = markdown(["coverage, width", *METHODS, "refused", "refused if shifted"], rows)
    (args.output / "table.md").write_text(text + "\n", encoding="utf-8")
    Console(width=160).print(text)
    return found


if __name__ == "__main__":
    run_main(main)
