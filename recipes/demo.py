"""End-to-end demo on the pocket model: checklists, GRPO and best-of-8, evaluated by code.

1. Generate a checklist for every held-out prompt of the pocket world.
2. Evaluate the pocket policy: sampled and greedy replies are scored by the pocket judge (*proxy*) and by code
   (*gold*). Best-of-8 by the judge is compared with greedy decoding.
3. Train the policy with GRPO and `ChecklistReward` only. Gold is logged with weight 0.
4. Evaluate the trained policy on the same held-out prompts.

    python recipes/demo.py --output runs/demo

Writes `summary.json`, `curves.png`, the checklist dataset, the scores of every completion (`rewards.jsonl`) and the
trained policy under `--output`. Runs in minutes on a few CPU cores, without downloads.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from datasets import Dataset
from english.common import figure
from pocket.grpo_run import N, console, overhead, train
from pocket.policy import checklist_dataset, gold, measure, sample_policy
from pocket.world import Task, tasks
from rich.console import Console
from rich.table import Table
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import pocket_dir
from checklist_rewards.datasets import save_dataset
from checklist_rewards.rerank import rerank_batch
from checklist_rewards.rows import Pool


def best_of(scorer: ChecklistScorer, dataset: Dataset, items: list[Task], texts: list[list[str]]) -> float:
    """Mean gold score of the reply that the judge ranks first; ties go to the earliest."""
    pools = [
        Pool(row["checklist"], group, task.instruction) for row, task, group in zip(dataset, items, texts, strict=True)
    ]
    rankings = rerank_batch(scorer, pools, ties="first")
    # If the judge scored no reply, the first one is used.
    picks = [ranking.best[0] if ranking.best else ranking.candidates[0] for ranking in rankings]
    return gold(items, [[pick] for pick in picks])


def plot(log: list[dict[str, float]], summary: dict[str, Any], path: Path) -> None:
    """Plot proxy and gold during training, with the held-out results before and after."""
    steps = [entry["step"] for entry in log]
    with figure(path, dpi=150, figsize=(7, 4.2)) as axes:
        for name, label, color in (("proxy", "reward (checklist judge)", "C0"), ("gold", "gold (code)", "C1")):
            values = [entry[name] for entry in log]
            axes.plot(steps, values, color=color, alpha=0.25, linewidth=1)
            axes.plot(steps, _smooth(values), color=color, label=label, linewidth=2)
            axes.plot([0, steps[-1]], [summary[f"{name}_before"], summary[f"{name}_after"]], "o", color=color)
        axes.axhline(summary["best_of_8_gold"], color="grey", linestyle=":", label="gold of best-of-8, untrained")
        axes.set(xlabel="GRPO step", ylabel="share of constraints met", ylim=(0, 1.02))
        axes.set_title("Training on the checklist reward (dots: held-out prompts)")
        axes.legend(loc="lower right", frameon=False)


def _smooth(values: list[float], weight: float = 0.85) -> list[float]:
    out: list[float] = []
    for value in values:
        out.append(value if not out else weight * out[-1] + (1 - weight) * value)
    return out


def report(summary: dict[str, Any]) -> None:
    """Print the results before and after training."""
    table = Table(title="Held-out prompts, mean over replies")
    for column in ("", "before", "after", "change"):
        table.add_column(column, justify="right" if column else "left")
    gaps = {when: summary[f"proxy_{when}"] - summary[f"gold_{when}"] for when in ("before", "after")}
    rows = (
        ("reward (proxy)", summary["proxy_before"], summary["proxy_after"]),
        ("constraints met (gold)", summary["gold_before"], summary["gold_after"]),
        ("gap", gaps["before"], gaps["after"]),
    )
    for name, before, after in rows:
        table.add_row(name, f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}")
    Console().print(table)
    rate = summary["reads_per_second"]
    speed = "all from the store" if rate is None else f"{rate:.0f} per second of engine"
    Console().print(
        f"Untrained policy, gold: greedy {summary['greedy_gold']:.3f}, best of {N} by the judge "
        f"{summary['best_of_8_gold']:.3f}. {summary['reads']} reads, {speed}; {summary['seconds']:.0f} s in all."
    )
    cost = summary["reward_cost"]
    Console().print(
        f"A GRPO step took {cost['step_seconds']:.2f} s: the judge's engine {cost['engine_seconds']:.2f} s of it, the "
        f"reward around it {cost['overhead']:.2%}. {summary['zero_variance']:.1%} of the groups had no variance."
    )


def main(argv: list[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo"), help="output folder")
    parser.add_argument("--steps", type=int, default=60, help="GRPO steps")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--train-prompts", type=int, default=256)
    parser.add_argument("--test-prompts", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0, help="training seed")
    parser.add_argument(
        "--metric",
        choices=["expected", "pass"],
        default="expected",
        help="metric of the reward: soft (expected) or hard (pass)",
    )
    args = parser.parse_args(argv)
    started = time.perf_counter()
    args.output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers_logging.disable_progress_bar()

    train_items = tasks(args.train_prompts, seed=1, split="test")
    test_items = tasks(args.test_prompts, seed=2, split="test")
    store = args.output / "store.sqlite"
    scorer = ChecklistScorer("pocket", store=store, metric=args.metric)

    console.print("[bold]1/4[/] writing a checklist for every prompt")
    train_set, train_items = checklist_dataset(train_items, store)
    test_set, test_items = checklist_dataset(test_items, store)
    save_dataset(train_set, args.output / "checklists.jsonl")

    console.print("[bold]2/4[/] measuring the untrained policy")
    pocket = str(pocket_dir())
    samples = sample_policy(pocket, test_items, n=N, temperature=1.0)
    before = measure(scorer, test_set, test_items, samples)
    greedy = measure(scorer, test_set, test_items, sample_policy(pocket, test_items, n=1, temperature=0.0))
    best_of_8 = best_of(scorer, test_set, test_items, samples)

    console.print("[bold]3/4[/] GRPO with the pocket judge")
    log = train(
        train_set,
        train_items,
        scorer,
        args.output,
        steps=args.steps,
        learning_rate=args.learning_rate,
        seed=args.seed,
    )

    console.print("[bold]4/4[/] measuring the trained policy")
    policy = str(args.output / "policy")
    after = measure(scorer, test_set, test_items, sample_policy(policy, test_items, n=N, temperature=1.0))

    receipt = scorer.receipt
    summary = {
        "gold_before": before["gold"],
        "gold_after": after["gold"],
        "proxy_before": before["proxy"],
        "proxy_after": after["proxy"],
        "greedy_gold": greedy["gold"],
        "best_of_8_gold": best_of_8,
        "reads": receipt.reads,
        "reads_per_second": receipt.asked / receipt.engine_seconds if receipt.engine_seconds else None,
        "seconds": time.perf_counter() - started,
        "unanswered": receipt.unanswered,
        "reward_cost": overhead(log),
        "zero_variance": fmean(entry["zero_variance"] for entry in log),
        "log": log,
    }
    (args.output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    plot(log, summary, args.output / "curves.png")
    report(summary)
    Console().print(
        f"Everything is in {args.output}/: summary.json, curves.png, checklists.jsonl, rewards.jsonl, policy/."
    )
    program = (
        "checklist-rewards" if shutil.which("checklist-rewards") else f"{sys.executable} -m checklist_rewards.cli"
    )
    Console().print(
        f"To see which items the policy learned, run:\n\n    {program} report {args.output}/rewards.jsonl "
        f"-o {args.output}/report.html\n",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
