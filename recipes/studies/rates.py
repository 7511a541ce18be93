"""How often do 95 % intervals of judged rates cover the truth?

    python recipes/studies/rates.py --output runs/rates

The population is a labelled data set; the truth is its mean label. Each draw takes random groups (documents, exam
questions, prompts) with replacement, of which some are labelled, and computes intervals: of the judge's rate with
independent units, as evaluation tools report it; of the labels alone; of the judge corrected by the labels
(`evaluation/rates.py`); and, if the package `cje-eval` is installed, of its `calibrated_mean_ci` with the groups as
clusters.

The judge is word overlap: the fraction of the content words of the statement that are in the text. It is weak, biased,
and free. `biased` answers yes to all of them above 0.2. In *pocket*, texts of the pocket world with random
faults, a judge answers the questions about their constraints with P(yes) from a beta distribution that is wrong in one
of five answers; *semeval, english-encoder* is that judge on its held-out answers. *pocket, wins* are pairs of texts of
a careful and a careless writer for one prompt: the truth is how often the first meets more constraints, and the judge
compares mean P(yes).

*sampled* are labels that were not chosen by group, but one by one, in the order of `LabelSample`; for it and for an
equal draw, a unit is a group of its own.

For sets with a shift, the labelled groups are those with the highest judged rate; the share of draws in which the
correction is refused is shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from english.tasks import DEV, TRAIN, load
from pocket.world import tasks, write_response
from rich.console import Console
from studies.common import DATA, markdown, once, run_main
from studies.judges.realsumm import content_recall

from checklist_rewards import Checklist, ChecklistScorer, Sample
from checklist_rewards.evaluation.rates import LabelSample, corrected_rate
from checklist_rewards.scores import Score, Verdict, score_checklist

TASKS = ("realsumm", "semeval", "semeval, english-encoder", "pocket", "pocket, wins")
JUDGES = ("overlap", "biased")
METHODS = ("judge alone", "labels alone", "corrected", "cje-eval")
OWN_JUDGE = TASKS[2:]
SAMPLED = ("equal", "sampled")
_BIASED = 0.2
_PROMPTS, _OF_PROMPT = 300, 4


def population(task: str, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Judged values and labels of all units, and the units of each group."""
    if task.startswith("pocket"):
        judged, labels, names = _pocket("wins" in task)
    else:
        name, _, model = task.partition(", ")
        splits = (DEV,) if model else (TRAIN, DEV)  # the encoder has seen the other split
        examples = [example for split in splits for example in load(name, split, args.data)]
        if model:
            pairs = [(example, example.pair(0)) for example in examples]
            samples = [Sample([pair.question], one.target, one.input, pair.reference) for one, pair in pairs]
            scores = ChecklistScorer(model, store=args.output / "store.sqlite").score_batch(samples)
            judged = np.array([score.items[0].soft for score in scores], float)
        else:
            judged = np.array([content_recall(example.target, example.statement) for example in examples])
        labels = np.array([float(example.label > 0.5) for example in examples])
        names = np.array([example.group for example in examples])
    return judged, labels, [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]


def _pocket(wins: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng, noise = random.Random(7), np.random.default_rng(7)
    judged, labels, names = [], [], []
    for number, item in enumerate(tasks(_PROMPTS, seed=11, split="test")):
        for _ in range(_OF_PROMPT):
            of_pair = []
            for misses in (0.2, 0.4) if wins else (0.3,):
                text = write_response(rng, item, misses, "test")
                met = np.array([float(constraint.holds(text)) for constraint in item.constraints])
                side = np.where(noise.random(len(met)) < 0.2, 1 - met, met)
                of_pair.append((met, np.where(side, noise.beta(4, 1, len(met)), noise.beta(1, 4, len(met)))))
            if wins:
                (one, said), (other, said_of_other) = of_pair
                labels.append((1 + np.sign(one.mean() - other.mean())) / 2)
                judged.append((1 + np.sign(said.mean() - said_of_other.mean())) / 2)
                names.append(number)
            else:
                labels += of_pair[0][0].tolist()
                judged += of_pair[0][1].tolist()
                names += [number] * len(of_pair[0][0])
    return np.array(judged, float), np.array(labels, float), np.array(names)


def draw(
    values: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[np.ndarray],
    sizes: tuple[int, int, int],
    seed: int,
    shift: bool,
    other: bool = False,
) -> dict[str, Any]:
    """The intervals of one draw of `sizes`: groups, labelled groups, and units of each group at most. `other` adds
    that of the package `cje-eval`."""
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
    found = {
        "judge alone": (judged.mean() - half, judged.mean() + half),
        "labels alone": (rate.labelled.low, rate.labelled.high),
        "corrected": (rate.corrected.low, rate.corrected.high),
        "refused": rate.refused is not None,
    }
    if other:
        found["cje-eval"] = _cje(judged, np.where(codes < labelled, labels[units], np.nan), codes)
    return found


def _cje(judged: np.ndarray, labels: np.ndarray, codes: np.ndarray) -> tuple[float, float]:
    from cje import calibrated_mean_ci

    low, high = calibrated_mean_ci(judged, labels, cluster_ids=codes).ci
    return float(low), float(high)


def one_by_one(
    values: np.ndarray, scores: Sequence[Score], labels: np.ndarray, sizes: tuple[int, int], seed: int
) -> dict[str, Any]:
    """The corrected intervals of random units of which some are labelled: an equal draw, and a sample that prefers
    uncertain ones. `scores` are the values in steps of a hundredth."""
    count, labelled = sizes
    rng = np.random.default_rng(seed)
    units = rng.integers(0, len(labels), count)
    said = [scores[step] for step in np.round(100 * values[units]).astype(int).tolist()]
    names = [str(place) for place in range(count)]
    found: dict[str, Any] = {}
    for method, of_judge in (("equal", [None] * count), ("sampled", said)):
        chances = LabelSample.of(names, of_judge, seed).probabilities(labelled)
        known = [float(labels[unit]) if place in chances else None for place, unit in enumerate(units)]
        of_units = [chances.get(place) for place in range(count)]
        rate = corrected_rate(values[units].tolist(), known, names, probabilities=of_units)
        found[method] = (rate.corrected.low, rate.corrected.high)
    return found


def study(task: str, args: argparse.Namespace) -> dict[str, Any]:
    """Coverage and mean width of all methods."""
    overlap, labels, groups = population(task, args)
    found: dict[str, Any] = {"units": len(labels), "groups": len(groups), "truth": float(labels.mean())}
    # The truth of a draw is the mean over groups, since every group gives the same number of units.
    truth = _truth(labels, groups, args.units)
    others = args.other_draws if importlib.util.find_spec("cje") else 0
    for judge in JUDGES[: 1 if task in OWN_JUDGE else None]:
        values = overlap if judge == "overlap" else (overlap > _BIASED).astype(float)
        for labelled in args.labelled:
            sizes = (args.groups, labelled, args.units)
            cells = [
                draw(values, labels, groups, sizes, seed, False, seed < others and judge == "overlap")
                for seed in range(args.draws)
            ]
            cell: dict[str, Any] = covered(cells, METHODS, truth)
            cell["refused"] = float(np.mean([each["refused"] for each in cells]))
            shifted = [draw(values, labels, groups, sizes, seed, True) for seed in range(max(1, args.draws // 10))]
            cell["refused if shifted"] = float(np.mean([each["refused"] for each in shifted]))
            found[f"{judge}, {labelled}"] = cell
    yes_no = Checklist.parse(["Is it so?"])
    scores = [score_checklist(yes_no, [Verdict({"yes": p / 100, "no": 1 - p / 100})]) for p in range(101)]
    singles = [one_by_one(overlap, scores, labels, (400, 80), seed) for seed in range(args.single_draws)]
    found["one by one"] = covered(singles, SAMPLED, float(labels.mean()))
    return found


def covered(cells: Sequence[dict[str, Any]], methods: Sequence[str], truth: float) -> dict[str, Any]:
    """Coverage and mean width by method, over the draws that have the interval."""
    found: dict[str, Any] = {}
    for method in methods:
        known = [each[method] for each in cells if each.get(method, (None,))[0] is not None]
        if known:
            found[method] = {
                "coverage": float(np.mean([low <= truth <= high for low, high in known])),
                "width": float(np.mean([high - low for low, high in known])),
                "draws": len(known),
            }
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
    parser.add_argument("--other-draws", type=int, default=100, help="draws for the package cje-eval, which is slow")
    parser.add_argument("--single-draws", type=int, default=500, help="draws of labels one by one")
    parser.add_argument("--groups", type=int, default=100, help="groups per draw")
    parser.add_argument("--labelled", type=int, nargs="*", default=(20, 50), help="labelled groups per draw")
    parser.add_argument("--units", type=int, default=8, help="units of each group, at most")
    parser.add_argument("--data", default=DATA, help="folder of the labelled data")
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", module="cje")
    numbers = ("draws", "other_draws", "single_draws", "groups", "units")
    settings = {name: getattr(args, name) for name in numbers} | {"labelled": list(args.labelled)}
    found = {task: once(args.output / task, settings, lambda task=task: study(task, args)) for task in args.tasks}
    rows, singles = [], []
    for task, cells in found.items():
        for name, cell in cells.items():
            if isinstance(cell, dict) and "refused" in cell:
                shares = [f"{cell[which]:.3f}" for which in ("refused", "refused if shifted")]
                rows.append(
                    [
                        f"{task}, {name.removeprefix('overlap, ') if task in OWN_JUDGE else name}",
                        *_shown(cell, METHODS),
                        *shares,
                    ]
                )
        singles.append([task, *_shown(cells["one by one"], SAMPLED)])
    text = markdown(["coverage, width", *METHODS, "refused", "refused if shifted"], rows)
    text += "\n\n" + markdown(["80 of 400 labels, one by one", *SAMPLED], singles)
    (args.output / "table.md").write_text(text + "\n", encoding="utf-8")
    Console(width=160).print(text)
    return found


def _shown(cell: dict[str, Any], methods: Sequence[str]) -> list[str]:
    return [f"{cell[m]['coverage']:.3f}, {cell[m]['width']:.3f}" if m in cell else "" for m in methods]


if __name__ == "__main__":
    run_main(main)
