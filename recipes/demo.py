"""The main job from end to end on the pocket model: checklists, GRPO, best-of-8, and what code says about all of it.

1. A checklist is generated for every unseen prompt of the pocket world.
2. The pocket policy is measured: sampled and greedy replies, scored by the pocket judge (*proxy*) and by code
(*gold*).
   Best-of-8 by the judge is compared with greedy.
3. GRPO trains the policy with `ChecklistReward` and nothing else. Gold is logged beside it and has weight 0.
4. The trained policy is measured again on the same held-out prompts.

    python recipes/demo.py --output runs/demo

Writes `summary.json`, `curves.png`, the checklist dataset and the trained policy under `--output`. Runs on a few CPU
cores in minutes; installs and downloads nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from datasets import Dataset
from pocket.world import Task, satisfaction, tasks
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer, ProgressCallback, TrainerCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

from checklist_rewards import ChecklistScorer, Sample, build_checklists
from checklist_rewards.backends import Sampling, load_backend, pocket_dir
from checklist_rewards.datasets import save_dataset
from checklist_rewards.generators import DirectGenerator
from checklist_rewards.rerank import Pool, rerank_batch
from checklist_rewards.rewards.trl import ChecklistReward

console = Console(stderr=True)
N = 8
MAX_TOKENS = 96


class GoldReward:
    """Share of the instruction's constraints that code finds met. Logged, never trained on (its weight is 0)."""

    __name__ = "gold"

    def __init__(self, by_prompt: dict[str, Task]):
        self.by_prompt = by_prompt

    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
        return [
            satisfaction(self.by_prompt[prompt[-1]["content"]], completion[-1]["content"])
            for prompt, completion in zip(prompts, completions, strict=True)
        ]


class Bar(TrainerCallback):
    """One line on stderr instead of a dictionary per step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.progress = Progress(console=console)
        self.task = self.progress.add_task("GRPO", total=state.max_steps)
        self.progress.start()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if logs and "rewards/gold/mean" in logs:
            proxy, gold = float(logs["rewards/checklist_reward/mean"]), float(logs["rewards/gold/mean"])
            self.progress.update(
                self.task, completed=state.global_step, description=f"reward {proxy:.2f} gold {gold:.2f}"
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.progress.stop()


def checklist_dataset(items: list[Task], store: Path) -> tuple[Dataset, list[Task]]:
    """A checklist for every instruction, written by the pocket model, and the tasks that got one."""
    prompts = [[{"role": "user", "content": task.instruction}] for task in items]
    dataset = build_checklists(prompts, DirectGenerator("pocket", temperature=0, store=store), on_failure="drop")
    asked = {prompt[-1]["content"] for prompt in dataset["prompt"]}
    return dataset, [task for task in items if task.instruction in asked]


def sample_policy(model: str, items: list[Task], *, n: int, temperature: float, seed: int = 0) -> list[list[str]]:
    """`n` replies of the policy to every instruction."""
    prompts = [[{"role": "user", "content": task.instruction}] for task in items]
    sampling = Sampling(max_tokens=MAX_TOKENS, temperature=temperature, n=n, seed=seed)
    replies = load_backend(model, "transformers").generate(prompts, sampling)
    return [[reply.text or "" for reply in group] for group in replies]


def measure(scorer: ChecklistScorer, dataset: Dataset, items: list[Task], texts: list[list[str]]) -> dict[str, float]:
    """Mean proxy (judge) and gold (code) over all texts."""
    rows = [
        (row["checklist"], task, text)
        for row, task, group in zip(dataset, items, texts, strict=True)
        for text in group
    ]
    scores = scorer.score_batch([Sample(checklist, text, task.instruction) for checklist, task, text in rows])
    proxies = [score.primary_score for score in scores if score.primary_score is not None]
    golds = [satisfaction(task, text) for _, task, text in rows]
    return {
        "proxy": sum(proxies) / len(proxies),
        "gold": sum(golds) / len(golds),
        "unscored": len(scores) - len(proxies),
    }


def best_of(scorer: ChecklistScorer, dataset: Dataset, items: list[Task], texts: list[list[str]]) -> float:
    """Mean gold of the reply that the judge ranks first; a tie is broken towards the earliest."""
    pools = [
        Pool(row["checklist"], group, task.instruction) for row, task, group in zip(dataset, items, texts, strict=True)
    ]
    rankings = rerank_batch(scorer, pools, ties="first")
    # Where the judge could score nothing there is no choice, and the first reply stands.
    picks = [ranking.best[0] if ranking.best else ranking.candidates[0] for ranking in rankings]
    golds = [satisfaction(task, pick) for task, pick in zip(items, picks, strict=True)]
    return sum(golds) / len(golds)


def train(
    dataset: Dataset,
    items: list[Task],
    scorer: ChecklistScorer,
    output: Path,
    *,
    steps: int,
    learning_rate: float,
    seed: int,
) -> list[dict[str, float]]:
    """GRPO from the pocket policy with the pocket judge. Returns the log, one entry per step."""
    config = GRPOConfig(
        output_dir=str(output / "trainer"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=64,
        num_generations=N,
        max_completion_length=MAX_TOKENS,
        temperature=1.0,
        beta=0.0,
        learning_rate=learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=5,
        max_steps=steps,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        reward_weights=[1.0, 0.0],
        # Under the default sum a reply that the judge could not score would count as 0 instead of staying out.
        multi_objective_aggregation="normalize_then_sum",
        seed=seed,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype="float32"),
        args=config,
        train_dataset=dataset,
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
        reward_funcs=[ChecklistReward(scorer), GoldReward({task.instruction: task for task in items})],
        callbacks=[Bar()],
    )
    trainer.remove_callback(ProgressCallback)
    trainer.train()
    trainer.save_model(str(output / "policy"))
    trainer.processing_class.save_pretrained(str(output / "policy"))
    return [
        {
            "step": entry["step"],
            "proxy": entry["rewards/checklist_reward/mean"],
            "gold": entry["rewards/gold/mean"],
        }
        for entry in trainer.state.log_history
        if "rewards/gold/mean" in entry
    ]


def plot(log: list[dict[str, float]], summary: dict[str, Any], path: Path) -> None:
    """Both curves, with what was measured before and after on held-out prompts."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    steps = [entry["step"] for entry in log]
    for name, label, color in (("proxy", "reward (checklist judge)", "C0"), ("gold", "gold (code)", "C1")):
        values = [entry[name] for entry in log]
        axes.plot(steps, values, color=color, alpha=0.25, linewidth=1)
        axes.plot(steps, _smooth(values), color=color, label=label, linewidth=2)
        axes.plot([0, steps[-1]], [summary[f"{name}_before"], summary[f"{name}_after"]], "o", color=color)
    axes.axhline(summary["best_of_8_gold"], color="grey", linestyle=":", label="gold of best-of-8, untrained")
    axes.set(xlabel="GRPO step", ylabel="share of constraints met", ylim=(0, 1.02))
    axes.set_title("Training on the checklist reward (dots: held-out prompts)")
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _smooth(values: list[float], weight: float = 0.85) -> list[float]:
    out: list[float] = []
    for value in values:
        out.append(value if not out else weight * out[-1] + (1 - weight) * value)
    return out


def report(summary: dict[str, Any]) -> None:
    """The before/after table, whatever was measured."""
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
    Console().print(
        f"Untrained policy, gold: greedy {summary['greedy_gold']:.3f}, best of {N} by the judge "
        f"{summary['best_of_8_gold']:.3f}. {summary['reads']} reads, {summary['reads_per_second']:.0f} per second of "
        f"engine; {summary['seconds']:.0f} s in all."
    )


def main(argv: list[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo"), help="folder for everything the demo writes")
    parser.add_argument("--steps", type=int, default=60, help="GRPO steps")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--train-prompts", type=int, default=256)
    parser.add_argument("--test-prompts", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_argument(
        "--metric", choices=["expected", "pass"], default="expected", help="the reward: probabilities, or hard answers"
    )
    args = parser.parse_args(argv)
    started = time.perf_counter()
    args.output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    transformers_logging.disable_progress_bar()

    train_items = tasks(args.train_prompts, seed=1, split="test")
    test_items = tasks(args.test_prompts, seed=2, split="test")
    store = args.output / "store.sqlite"
    scorer = ChecklistScorer("pocket", store=store, primary_metric=args.metric)

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
        "log": log,
    }
    (args.output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    plot(log, summary, args.output / "curves.png")
    report(summary)
    Console().print(f"Everything is in {args.output}/: summary.json, curves.png, checklists.jsonl, policy/.")


if __name__ == "__main__":
    main()
