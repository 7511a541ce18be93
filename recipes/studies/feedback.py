"""The checklist as a teacher: GRPO, SDPO with the checklist's feedback, and both, on the pocket model.

    python recipes/studies/feedback.py --output runs/feedback

All arms use TRL's `SDPOTrainer` with equal prompts, completions, reads and steps. They differ in the loss:

- *rewards*: the policy gradient of the group's rewards alone (`distillation_weight=0`);
- *feedback*: distillation from the policy that has read the checklist's feedback about its completion (weight 1);
- *other feedback*: the same, with the feedback about a completion of another prompt: a control;
- *both*: half of each.

Gold is computed by code on held-out prompts, before and after. *flat* is the share of groups whose rewards are all
equal, from which *rewards* learns nothing. Finished runs are skipped, so the same command continues the study.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import Dataset
from pocket.grpo_run import N, without_variance
from pocket.policy import as_prompt, gold, sample_policy
from pocket.world import tasks
from rich.console import Console
from studies.common import markdown, once, run_main, spread
from transformers import AutoTokenizer
from trl.experimental.sdpo import SDPOConfig

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import pocket_dir
from checklist_rewards.rewards.sdpo import ChecklistFeedback, ChecklistSDPOTrainer
from checklist_rewards.rewards.trl import ChecklistReward

ARMS = {"rewards": 0.0, "feedback": 1.0, "other feedback": 1.0, "both": 0.5}
"""Each arm's weight of the distillation."""


class OtherFeedback(ChecklistFeedback):
    """The feedback about a completion of another prompt of the batch."""

    def texts(self) -> list[str | None]:
        """The texts, moved on by one group."""
        found = super().texts()
        return found[N:] + found[:N]


class Kept(ChecklistReward):
    """Keeps the share of groups without variance of each call."""

    def __call__(self, *args: Any, **columns: Any) -> list[float | None]:
        rewards = super().__call__(*args, **columns)
        self.flat = [*getattr(self, "flat", []), without_variance(rewards, N)]
        return rewards


def train(arm: str, seed: int, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Train one run, and measure the policy."""
    reward = Kept(ChecklistScorer("pocket", backend="transformers", store=False))
    items = tasks(args.train_prompts, seed=1, split="test")
    rows = [{"prompt": as_prompt(task), "checklist": [c.question() for c in task.constraints]} for task in items]
    trainer = ChecklistSDPOTrainer(
        model=str(pocket_dir()),
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows),
        args=SDPOConfig(
            output_dir=str(folder / "trainer"),
            # On a CPU, where bf16 is slow, and as the published figures were measured: without checkpoints.
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=10,
            per_device_train_batch_size=N * args.groups,
            num_generations=N,
            max_completion_length=64,
            max_steps=args.steps,
            learning_rate=args.learning_rate,
            seed=seed,
            distillation_weight=ARMS[arm],
            include_environment_feedback=True,
            use_successful_as_teacher=False,
        ),
    )
    if arm == "other feedback":
        trainer.teacher_context_builder._feedback = OtherFeedback(reward)
    trainer.train()
    trainer.save_model(str(folder / "policy"))
    AutoTokenizer.from_pretrained(pocket_dir()).save_pretrained(folder / "policy")
    return {"gold": held_out(str(folder / "policy"), args), "flat": fmean(reward.flat)}


def held_out(policy: str, args: argparse.Namespace) -> float:
    """Gold of a policy on held-out prompts."""
    items = tasks(args.test_prompts, seed=2, split="test")
    return gold(items, sample_policy(policy, items, n=N, temperature=1.0))


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns gold by arm."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/feedback"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--groups", type=int, default=4, help="prompts per step")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--train-prompts", type=int, default=128)
    parser.add_argument("--test-prompts", type=int, default=96)
    args = parser.parse_args(argv)
    settings = {name: value for name, value in vars(args).items() if name not in ("output", "seeds", "arms")}
    before = once(args.output / "untrained", settings, lambda: {"gold": held_out("pocket", args)})["gold"]
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in args.arms}
    for seed in args.seeds:
        for arm in args.arms:
            folder = args.output / f"{arm.replace(' ', '_')}-{seed}"
            made = once(folder, {**settings, "arm": arm, "seed": seed}, lambda: train(arm, seed, folder, args))  # noqa: B023
            runs[arm].append(made)
    lines = [["untrained", f"{before:.3f}", ""]]
    for arm, found in runs.items():
        line = spread([run["gold"] for run in found])
        flat = fmean(run["flat"] for run in found)
        lines.append([arm, f"{line['mean']:.3f} ({line['min']:.3f}-{line['max']:.3f})", f"{flat:.2f}"])
    table = markdown(["loss", "gold, held out", "flat groups"], lines)
    (args.output / "table.md").write_text(table + "\n", encoding="utf-8")
    Console(width=120).print(table)
    return {arm: [run["gold"] for run in found] for arm, found in runs.items()}


if __name__ == "__main__":
    run_main(main)
