"""Rewards per criterion: GRPO on the pocket model with one score per checklist, and with four ways to use its items.

    python recipes/studies/per_criterion.py --output runs/per_criterion

- *plain*: the weighted mean of P(yes).
- *GDPO*: one reward per item category (`reward.split()`), each normalized by itself (`normalize_then_sum`).
- *item_zscore*, *contrast*, *whitened*: shaping from the items of a group; see `rewards/group_shaping.py`.

The category of an item is what its question is about: words, form, ending or digits. All other settings are those of
the demo. Each run is evaluated on held-out prompts by code (*gold*) every `--eval-every` steps, and at the end by the
judge (*proxy*). A group is *without variance* if all completions of a prompt have the same reward, so it gives no
gradient.

Writes `summary.json`, `table.md` and `per_criterion.png` under `--output`. Finished runs are skipped: the same command
continues an interrupted study. `--summary` writes the results of the runs that are finished.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import Dataset
from pocket.grpo_run import GROUPS, NEARLY
from pocket.policy import measure
from pocket.world import parse_question
from rich.console import Console
from studies.arms import Runs, Study, gold_curve, options, run_arms
from studies.common import band, figure, markdown, once, save_json, shown, spread
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import pocket_dir

ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "GDPO": {"split": True},
    "item_zscore": {"shaping": ["item_zscore"]},
    "contrast": {"shaping": ["contrast"]},
    "whitened": {"shaping": ["whitened"]},
}
COLORS = {"plain": "C7", "GDPO": "C0", "item_zscore": "C3", "contrast": "C2", "whitened": "C1"}
CATEGORIES = {
    "words": ("mention", "avoid", "first"),
    "form": ("sentences", "bullets", "lowercase"),
    "ending": ("question", "exclaim"),
    "digits": ("digits", "no_digits"),
}
_OF_FAMILY = {family: category for category, families in CATEGORIES.items() for family in families}


def categorized(dataset: Dataset) -> Dataset:
    """The dataset with a category for every item whose question is from the pocket world."""

    def of_row(row: dict[str, Any]) -> dict[str, Any]:
        return {"checklist": [{**item, "category": category(item["question"])} for item in row["checklist"]]}

    return dataset.map(of_row, features=dataset.features)


def category(question: str) -> str | None:
    constraint = parse_question(question)
    return None if constraint is None else _OF_FAMILY[constraint.family]


class PerCriterion(Study):
    """Runs whose items have a category."""

    def __init__(self, args: argparse.Namespace):
        super().__init__(args)
        self.train_set = categorized(self.train_set)

    def before(self) -> dict[str, Any]:
        """Evaluate the untrained policy."""
        return measure(
            ChecklistScorer("pocket", store=self.store), self.test_set, self.test_items, self.held_out(pocket_dir())
        )

    def run(self, arm: str, seed: int, folder: Path) -> dict[str, Any]:
        """Train and evaluate one run."""
        scorer = ChecklistScorer("pocket", store=folder / "store.sqlite")
        return self.evaluate(scorer, folder, self.train(scorer, folder, seed, **ARMS[arm]))


def summarize(before: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """Results of each arm over its seeds, and its gold minus that of plain for the seeds that both have."""
    arms = {}
    for arm, of_seeds in runs.items():
        numbers = ("gold", "proxy", "zero_variance", "small_variance")
        arms[arm] = {name: spread([run[name] for run in of_seeds]) for name in numbers}
        arms[arm]["curve"] = gold_curve(before["gold"], of_seeds)
        # The mean over the evaluations rewards learning early, not only the end.
        arms[arm]["mean_gold"] = spread([fmean(run["curve"].values()) for run in of_seeds])
        plain = {run["settings"]["seed"]: run for run in runs.get("plain", ())}
        pairs = [(run, plain[run["settings"]["seed"]]) for run in of_seeds if run["settings"]["seed"] in plain]
        if arm != "plain" and pairs:
            arms[arm]["gold_minus_plain"] = spread([run["gold"] - other["gold"] for run, other in pairs])
    return {"before": before, "arms": arms}


def table(summary: dict[str, Any]) -> str:
    """The results as a Markdown table: means over the seeds, with the least and the greatest."""
    rows = [
        ("gold at the end", "gold"),
        ("gold, mean over the evaluations", "mean_gold"),
        ("gold minus plain, seed by seed", "gold_minus_plain"),
        ("proxy at the end", "proxy"),
        (f"equal rewards, share of {GROUPS} groups", "zero_variance"),
        (f"std < {NEARLY}, share of {GROUPS} groups", "small_variance"),
    ]
    arms = summary["arms"]
    seeds = ["seeds", *(len(found["gold"]["per_seed"]) for found in arms.values())]
    lines = [[name, *(shown(found[key]) if key in found else "" for found in arms.values())] for name, key in rows]
    return f"{markdown(['', *arms], [seeds, *lines])}\n\nBefore training: gold {summary['before']['gold']:.3f}.\n"


def plot(summary: dict[str, Any], path: Path) -> None:
    """Plot held-out gold against the step."""
    with figure(path, figsize=(6.4, 4.0)) as axes:
        for arm, found in summary["arms"].items():
            curve = {step: values["per_seed"] for step, values in found["curve"].items()}
            band(axes, curve, arm, COLORS[arm])
        axes.set(xlabel="GRPO step", ylabel="share of constraints met (gold)")
        axes.set_title("Held-out prompts, mean and range of the seeds")
        axes.legend(frameon=False, loc="lower right")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns its summary."""
    parser = options(__doc__.split("\n")[0], "runs/per_criterion", list(ARMS))
    parser.add_argument("--summary", action="store_true", help="start no run, only summarize those that are finished")
    args = parser.parse_args(argv)
    transformers_logging.disable_progress_bar()

    study = PerCriterion(args)
    before = once(args.output / "before", study.settings, study.before)
    settings = {**study.settings, **study.how}
    runs = run_arms(args, settings, study.run, finished=args.summary)
    found = {arm: of_seeds for arm, of_seeds in runs.items() if of_seeds}
    summary = {"settings": {**settings, "seeds": args.seeds}, **summarize(before, found)}
    save_json(args.output / "summary.json", summary)
    (args.output / "table.md").write_text(table(summary), encoding="utf-8")
    if found:
        plot(summary, args.output / "per_criterion.png")
    Console().print(table(summary), markup=False)
    Console().print(f"Everything is in {args.output}/: summary.json, table.md, per_criterion.png, a folder per run.")
    return summary


if __name__ == "__main__":
    main()
