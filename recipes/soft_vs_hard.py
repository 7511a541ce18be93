"""Soft or hard answers as the reward: GRPO on the pocket model with both, over several seeds.

    python recipes/soft_vs_hard.py --output runs/soft_vs_hard

*Soft* is `primary_metric="expected"`: the weighted mean of P(yes). *Hard* is `"pass"`: the fraction of items passed.
All other settings are those of the demo. Each run is evaluated on held-out prompts by code (*gold*) every
`--eval-every` steps, and at the end by its own judge (*proxy*). A group is *without variance* if all completions of a
prompt have the same reward, so it gives no gradient.

Writes `summary.json` and `soft_vs_hard.png` under `--output`. Finished runs are skipped, so you can add seeds, run the
arms in parallel (`--arms soft`, `--arms hard`) and combine them, or resume an interrupted study.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from pocket.grpo_run import GROUPS, NEARLY, N, console, overhead, train
from pocket.policy import checklist_dataset, gold, measure, sample_policy
from pocket.study import band, once, save_json, shown, spread
from pocket.world import tasks
from rich.console import Console
from rich.table import Table
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import engine_identity, pocket_dir

ARMS = {"soft": "expected", "hard": "pass"}
COLORS = {"soft": "C0", "hard": "C3"}


class Study:
    """The prompts with their checklists, and the settings shared by all runs."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.store = args.output / "store.sqlite"
        train_items = tasks(args.train_prompts, seed=1, split="test")
        test_items = tasks(args.test_prompts, seed=2, split="test")
        self.train_set, self.train_items = checklist_dataset(train_items, self.store)
        self.test_set, self.test_items = checklist_dataset(test_items, self.store)
        self.settings = {
            "policy": engine_identity("pocket", "transformers"),
            **{key: getattr(args, key) for key in ("train_prompts", "test_prompts")},
        }

    def scorer(self, arm: str, store: Path) -> ChecklistScorer:
        return ChecklistScorer("pocket", store=store, primary_metric=ARMS[arm])

    def held_out(self, policy: Path) -> list[list[str]]:
        return sample_policy(str(policy), self.test_items, n=N, temperature=1.0)

    def greedy_gold(self, policy: Path) -> float:
        return gold(self.test_items, sample_policy(str(policy), self.test_items, n=1, temperature=0.0))

    def before(self) -> dict[str, Any]:
        """Evaluate the untrained policy by code and by the judge of each arm."""
        texts = self.held_out(pocket_dir())
        found = {
            arm: measure(self.scorer(arm, self.store), self.test_set, self.test_items, texts)["proxy"] for arm in ARMS
        }
        return {
            "gold": gold(self.test_items, texts),
            "greedy_gold": self.greedy_gold(pocket_dir()),
            "proxy": found,
        }

    def run(self, arm: str, seed: int, folder: Path) -> dict[str, Any]:
        """Train and evaluate one run."""
        # Each run has its own store, because shared reads would make later runs faster.
        args, scorer, started = self.args, self.scorer(arm, folder / "store.sqlite"), time.perf_counter()
        log = train(
            self.train_set,
            self.train_items,
            scorer,
            folder,
            steps=args.steps,
            learning_rate=args.learning_rate,
            seed=seed,
            save_steps=args.eval_every,
        )
        trained = time.perf_counter() - started
        curve = {
            step: gold(self.test_items, self.held_out(folder / "trainer" / f"checkpoint-{step}"))
            for step in range(args.eval_every, args.steps, args.eval_every)
        }
        after = measure(scorer, self.test_set, self.test_items, self.held_out(folder / "policy"))
        return {
            **after,
            "greedy_gold": self.greedy_gold(folder / "policy"),
            "curve": curve | {args.steps: after["gold"]},
            "zero_variance": fmean(entry["zero_variance"] for entry in log),
            "small_variance": fmean(entry["small_variance"] for entry in log),
            "reward_cost": overhead(log),
            "training_seconds": trained,
            "log": log,
        }


def summarize(before: dict[str, Any], runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Results of each arm over its seeds, and soft minus hard for seeds that both arms have."""
    arms = {}
    for arm, of_seeds in runs.items():
        numbers = ("gold", "greedy_gold", "proxy", "zero_variance", "small_variance", "training_seconds")
        arms[arm] = {name: spread([run[name] for run in of_seeds]) for name in numbers}
        arms[arm] |= {
            "gap": spread([run["proxy"] - run["gold"] for run in of_seeds]),
            "overhead": spread([run["reward_cost"]["overhead"] for run in of_seeds]),
            "curve": {
                step: spread(
                    [before["gold"]] * len(of_seeds) if step == 0 else [r["curve"][str(step)] for r in of_seeds]
                )
                for step in [0, *map(int, of_seeds[0]["curve"])]
            },
            "zero_variance_per_step": [
                fmean(entries)
                for entries in zip(*([e["zero_variance"] for e in r["log"]] for r in of_seeds), strict=True)
            ],
        }
    summary = {"before": {key: before[key] for key in ("gold", "greedy_gold", "proxy")}, "arms": arms}
    if set(runs) == set(ARMS):
        pairs = zip(runs["soft"], runs["hard"], strict=True)
        summary["soft_minus_hard_gold"] = spread([soft["gold"] - hard["gold"] for soft, hard in pairs])
    return summary


def plot(summary: dict[str, Any], path: Path) -> None:
    """Plot held-out gold and the fraction of groups without variance against the step."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    for arm, found in summary["arms"].items():
        steps = list(found["curve"])
        runs = list(zip(*(found["curve"][step]["per_seed"] for step in steps), strict=True))
        band(left, steps, runs, f"{arm} ({ARMS[arm]})", COLORS[arm])
        shares = found["zero_variance_per_step"]
        right.plot(range(1, len(shares) + 1), shares, color=COLORS[arm], label=arm)
    left.set(xlabel="GRPO step", ylabel="share of constraints met (gold)")
    left.set_title(f"Held-out prompts, mean and range of {len(runs)} seeds")
    right.set(xlabel="GRPO step", ylabel="share of groups")
    right.set_title("Groups without variance, mean of the seeds")
    left.legend(frameon=False, loc="lower right")
    right.legend(frameon=False, loc="upper left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def report(summary: dict[str, Any]) -> None:
    """Print both arms side by side."""
    table = Table(title="Held-out prompts: mean over the seeds (least-greatest)")
    table.add_column("")
    table.add_column("before")
    before, arms = summary["before"], summary["arms"]
    for arm in arms:
        table.add_column(arm)
    rows = (
        ("gold, sampled", f"{before['gold']:.3f}", "gold"),
        ("gold, greedy", f"{before['greedy_gold']:.3f}", "greedy_gold"),
        ("proxy", ", ".join(f"{before['proxy'][arm]:.3f}" for arm in arms), "proxy"),
        ("proxy - gold", "", "gap"),
        (f"equal rewards, share of {GROUPS} groups", "", "zero_variance"),
        (f"std < {NEARLY}, share of {GROUPS} groups", "", "small_variance"),
        ("reward's own time / step", "", "overhead"),
    )
    for name, first, key in rows:
        table.add_row(name, first, *(shown(found[key], 4 if key == "overhead" else 3) for found in arms.values()))
    Console().print(table)
    if "soft_minus_hard_gold" in summary:
        Console().print(f"Gold, soft minus hard, seed by seed: {shown(summary['soft_minus_hard_gold'])}.")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns its summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/soft_vs_hard"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="training seeds")
    parser.add_argument("--arms", choices=list(ARMS), nargs="+", default=list(ARMS))
    parser.add_argument("--steps", type=int, default=60, help="GRPO steps")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--train-prompts", type=int, default=256)
    parser.add_argument("--test-prompts", type=int, default=96)
    parser.add_argument("--eval-every", type=int, default=10, help="steps between evaluations")
    args = parser.parse_args(argv)
    transformers_logging.disable_progress_bar()

    study = Study(args)
    before = once(args.output / "before", study.settings, study.before)
    how = {key: getattr(args, key) for key in ("steps", "learning_rate", "eval_every")}
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in args.arms}
    for seed in args.seeds:
        for arm in args.arms:
            console.print(f"[bold]{arm}, seed {seed}[/]")
            folder = args.output / f"{arm}-{seed}"
            settings = {**study.settings, **how, "arm": arm, "seed": seed}
            runs[arm].append(once(folder, settings, lambda a=arm, s=seed, f=folder: study.run(a, s, f)))
    summary = {"settings": {**study.settings, **how, "seeds": args.seeds}, **summarize(before, runs)}
    save_json(args.output / "summary.json", summary)
    plot(summary, args.output / "soft_vs_hard.png")
    report(summary)
    Console().print(f"Everything is in {args.output}/: summary.json, soft_vs_hard.png, and a folder for every run.")
    return summary


if __name__ == "__main__":
    main()
