"""Checklist scores to preference pairs to DPO, on the pocket model over several seeds.

    python recipes/studies/pairs_to_dpo.py --output runs/pairs_to_dpo

1. The pocket policy samples candidates for every training prompt (different prompts for every seed).
2. The pocket judge scores them with the prompt's checklist, and at most one pair per prompt is mined, as
   `checklist-rewards pairs` does with its defaults.
3. `recipes/dpo.py` trains on the pairs with `recipes/pocket/dpo/config_cpu.yaml`.
4. Code computes the fraction of constraints met (*gold*) on held-out prompts, sampled and greedy, before and after.

Writes `summary.json` and `pairs_to_dpo.png` under `--output`, and for each seed the policy and its `pairs.jsonl` with
a dataset card. Finished seeds are skipped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import dpo
from pocket.grpo_run import N, console
from pocket.policy import as_prompt, checklist_dataset, gold, sample_policy
from pocket.world import Task, tasks
from rich.console import Console
from rich.table import Table
from studies.common import band, figure, once, save_json, shown, spread
from transformers.utils import logging as transformers_logging

from checklist_rewards import Checklist, ChecklistScorer
from checklist_rewards.backends import engine_identity, pocket_dir
from checklist_rewards.files.atomic import atomic_path
from checklist_rewards.files.rows import write_rows
from checklist_rewards.preferences import Mined, Rule, ScoredPool, mine_pairs, preference_card, rows_of
from checklist_rewards.rerank import Pool, rerank_batch

CONFIG = Path(__file__).parents[1] / "pocket" / "dpo" / "config_cpu.yaml"
TRAIN_SEED, TEST_SEED = 900, 901
"""Of the prompts. No other recipe uses these, so no setting was chosen by what they gave."""


def mine(items: list[Task], scorer: ChecklistScorer, store: Path, *, n: int, rule: Rule) -> Mined:
    """Sample `n` candidates per prompt from the pocket policy, score them, and select pairs by the rule."""
    dataset, items = checklist_dataset(items, store)
    texts = sample_policy(str(pocket_dir()), items, n=n, temperature=1.0, seed=rule.seed)
    checklists = [Checklist.parse(row["checklist"]) for row in dataset]
    rows = list(zip(items, checklists, texts, strict=True))
    rankings = rerank_batch(scorer, [Pool(found, group, task.instruction) for task, found, group in rows])
    pools = [
        ScoredPool(as_prompt(task), found, group, ranking.scores)
        for (task, found, group), ranking in zip(rows, rankings, strict=True)
    ]
    return mine_pairs(pools, rule)


def save_pairs(mined: Mined, rule: Rule, folder: Path) -> Path:
    """Write `pairs.jsonl` and its dataset card."""
    path = folder / "pairs.jsonl"
    with write_rows(path) as rows:
        for pair in mined.pairs:
            for row in rows_of(pair):
                rows.write(row)
    with atomic_path(folder / "pairs.md") as card:
        card.write_text(preference_card("pairs", rule, "dpo", len(mined.pairs), mined.dropped, ["pocket"]))
    return path


def golds(policy: Path, items: list[Task]) -> dict[str, float]:
    """Mean gold score of a policy on held-out prompts: of `N` sampled replies each, and of the greedy reply."""
    return {
        "sampled": gold(items, sample_policy(str(policy), items, n=N, temperature=1.0)),
        "greedy": gold(items, sample_policy(str(policy), items, n=1, temperature=0.0)),
    }


def run(args: argparse.Namespace, seed: int, folder: Path) -> dict[str, Any]:
    """Sample candidates, mine pairs, train, and compute the gold score after every epoch."""
    started = time.perf_counter()
    store, rule = args.output / "store.sqlite", Rule(seed=seed)
    scorer = ChecklistScorer("pocket", store=store)
    mined = mine(tasks(args.prompts, seed=TRAIN_SEED, split="test"), scorer, store, n=args.candidates, rule=rule)
    pairs = save_pairs(mined, rule, folder)
    mining = time.perf_counter() - started
    files = ["--config", str(CONFIG), "--dataset_name", str(pairs), "--output_dir", str(folder / "policy")]
    kept = ["--save_strategy", "epoch", "--save_only_model", "true"]
    how = ["--seed", str(seed), "--num_train_epochs", str(args.epochs)]
    trainer = dpo.main(*dpo.parse([*files, *kept, *how]))
    trained = time.perf_counter() - started - mining
    items = tasks(args.test_prompts, seed=TEST_SEED, split="test")
    checkpoints = sorted((folder / "policy").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    after = golds(folder / "policy", items)
    between = [gold(items, sample_policy(str(path), items, n=N, temperature=1.0)) for path in checkpoints[:-1]]
    logged = [line for line in trainer.state.log_history if "rewards/accuracies" in line]
    return {
        **after,
        "by_epoch": [*between, after["sampled"]],
        "pairs": len(mined.pairs),
        "dropped": dict(mined.dropped),
        "mean_margin": sum(pair.margin for pair in mined.pairs) / len(mined.pairs),
        "mining_seconds": mining,
        "training_seconds": trained,
        "log": [
            {key: line[key] for key in ("step", "loss", "rewards/accuracies", "rewards/margins")} for line in logged
        ],
    }


def plot(summary: dict[str, Any], path: Path) -> None:
    """Held-out gold by epoch, and before against after."""
    before, after = summary["before"], summary["after"]
    runs = [[before["sampled"], *one["by_epoch"]] for one in summary["runs"]]
    curve = dict(enumerate(zip(*runs, strict=True)))
    with figure(path, 2, figsize=(9.5, 3.8), width_ratios=[3, 2]) as (left, right):
        band(left, curve, "sampled", "C0")
        left.axhline(before["greedy"], color="grey", linestyle=":", label="greedy, untrained")
        left.set(xlabel="epochs of DPO", ylabel="share of constraints met (gold)")
        left.set_xticks(list(curve))
        left.set_title(f"Held-out prompts, mean and range of {len(runs)} seeds")
        for place, (name, color) in enumerate((("sampled", "C0"), ("greedy", "C2"))):
            found = after[name]
            reach = [[found["mean"] - found["min"]], [found["max"] - found["mean"]]]
            right.bar(place - 0.2, before[name], 0.38, color=color, alpha=0.4)
            right.bar(place + 0.2, found["mean"], 0.38, color=color, yerr=reach, capsize=4)
            for x, height in ((place - 0.2, before[name]), (place + 0.2, found["max"])):
                value = before[name] if x < place else found["mean"]
                right.text(x, height + 0.01, f"{value:.3f}", ha="center")
        right.set_xticks([0, 1], ["sampled", "greedy"])
        right.set(ylim=(0, 1))
        right.set_title("Before (pale) and after")
        left.legend(frameon=False, loc="lower right")


def report(summary: dict[str, Any]) -> None:
    """Print the results before and after training."""
    table = Table(title="Held-out prompts: gold, mean over the seeds (least-greatest)")
    for column in ("", "before", "after"):
        table.add_column(column)
    for name in ("sampled", "greedy"):
        table.add_row(name, f"{summary['before'][name]:.3f}", shown(summary["after"][name]))
    Console().print(table)
    pairs = ", ".join(str(one["pairs"]) for one in summary["runs"])
    Console().print(
        f"Pairs by seed: {pairs}. Mining took {shown(summary['mining_seconds'], 0)} s, training "
        f"{shown(summary['training_seconds'], 0)} s."
    )


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns its summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/pairs_to_dpo"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of candidates and training")
    parser.add_argument("--prompts", type=int, default=192)
    parser.add_argument("--candidates", type=int, default=6, help="candidates per prompt")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--test-prompts", type=int, default=96)
    args = parser.parse_args(argv)
    transformers_logging.disable_progress_bar()

    settings: dict[str, Any] = {"policy": engine_identity("pocket", "transformers"), "config": CONFIG.read_text()}
    settings |= {name: getattr(args, name) for name in ("prompts", "candidates", "epochs", "test_prompts")}
    held_out = tasks(args.test_prompts, seed=TEST_SEED, split="test")
    before = once(args.output / "before", settings, lambda: golds(pocket_dir(), held_out))
    runs = []
    for seed in args.seeds:
        console.print(f"[bold]seed {seed}[/]")
        folder = args.output / f"seed-{seed}"
        runs.append(once(folder, {**settings, "seed": seed}, lambda s=seed, f=folder: run(args, s, f)))
    summary = {
        "settings": {**settings, "seeds": args.seeds},
        "before": {name: before[name] for name in ("sampled", "greedy")},
        "after": {name: spread([one[name] for one in runs]) for name in ("sampled", "greedy")},
        **{name: spread([one[name] for one in runs]) for name in ("mining_seconds", "training_seconds")},
        "runs": runs,
    }
    save_json(args.output / "summary.json", summary)
    plot(summary, args.output / "pairs_to_dpo.png")
    report(summary)
    Console().print(f"Everything is in {args.output}/: summary.json, pairs_to_dpo.png, and a folder for every seed.")
    return summary


if __name__ == "__main__":
    main()
