"""Studies that compare arms of GRPO on the pocket model over several seeds.

All arms have the same prompts and settings. Each run has the folder `<arm>-<seed>`, and is evaluated on held-out
prompts every `--eval-every` steps. A finished run is not repeated; see `common.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from pocket.grpo_run import N, console, train
from pocket.policy import checklist_dataset, gold, measure, sample_policy
from pocket.world import tasks
from studies.common import Result, once, spread

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import engine_identity

Runs = dict[str, list[Result]]
"""The results of each arm, one per seed."""


def options(
    description: str, output: str, arms: list[str], *, train_prompts: int = 256, eval_every: int = 10
) -> argparse.ArgumentParser:
    """The options of every study, with the defaults of this one."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, default=Path(output))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="training seeds")
    parser.add_argument("--arms", choices=arms, nargs="+", default=arms)
    parser.add_argument("--steps", type=int, default=60, help="GRPO steps")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--train-prompts", type=int, default=train_prompts)
    parser.add_argument("--test-prompts", type=int, default=96)
    parser.add_argument("--eval-every", type=int, default=eval_every, help="steps between evaluations")
    return parser


class Study:
    """The prompts with their checklists, and the settings shared by all runs.

    Args:
        args: The values of [`options`].
    """

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
        self.how = {key: getattr(args, key) for key in ("steps", "learning_rate", "eval_every")}

    def held_out(self, policy: Path) -> list[list[str]]:
        """`N` replies of a policy to every held-out prompt."""
        return sample_policy(str(policy), self.test_items, n=N, temperature=1.0)

    def train(self, scorer: ChecklistScorer, folder: Path, seed: int, **reward: Any) -> list[dict[str, float]]:
        """Train one run with the reward of `scorer`; see `grpo_run.train`."""
        args = self.args
        return train(
            self.train_set,
            self.train_items,
            scorer,
            folder,
            steps=args.steps,
            learning_rate=args.learning_rate,
            seed=seed,
            save_steps=args.eval_every,
            **reward,
        )

    def evaluate(self, scorer: ChecklistScorer, folder: Path, log: list[dict[str, float]]) -> Result:
        """Gold and proxy of a trained run, gold by step (`curve`), and the groups without variance in its log."""
        curve = {step: gold(self.test_items, self.held_out(path)) for step, path in checkpoints(self.args, folder)}
        after = measure(scorer, self.test_set, self.test_items, self.held_out(folder / "policy"))
        return {
            **after,
            "curve": curve | {self.args.steps: after["gold"]},
            "zero_variance": fmean(entry["zero_variance"] for entry in log),
            "small_variance": fmean(entry["small_variance"] for entry in log),
            "log": log,
        }


def checkpoints(args: argparse.Namespace, folder: Path) -> list[tuple[int, Path]]:
    """The policies of a run that are evaluated before its end, with their steps."""
    steps = range(args.eval_every, args.steps, args.eval_every)
    return [(step, folder / "trainer" / f"checkpoint-{step}") for step in steps]


def run_arms(
    args: argparse.Namespace, settings: Result, run: Callable[[str, int, Path], Result], *, finished: bool = False
) -> Runs:
    """The results of `run(arm, seed, folder)` for all arms and seeds; with `finished`, only of finished runs."""
    runs: Runs = {arm: [] for arm in args.arms}
    for seed in args.seeds:
        for arm in args.arms:
            folder = args.output / f"{arm}-{seed}"
            if finished and not (folder / "summary.json").is_file():
                continue
            console.print(f"[bold]{arm}, seed {seed}[/]")
            runs[arm].append(once(folder, {**settings, "arm": arm, "seed": seed}, partial(run, arm, seed, folder)))
    return runs


def gold_curve(before: float, runs: list[Result]) -> dict[int, Result]:
    """The [`spread`] of gold over the runs by step. All runs start at `before`, the gold of the untrained policy."""
    curve = {0: spread([before] * len(runs))}
    return curve | {int(step): spread([run["curve"][step] for run in runs]) for step in runs[0]["curve"]}
