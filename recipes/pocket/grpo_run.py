"""GRPO of the pocket policy on the checklist reward, with additional metrics.

[`train`] runs TRL's `GRPOTrainer` with `ChecklistReward` as the only reward that is trained on. It logs per step:

- the mean score (*proxy*) and the mean gold score (computed by code, weight 0);
- the fraction of groups without variance, in which all completions have the same reward and nothing is learned.
  TRL's `frac_reward_zero_std` does not measure this: with `normalize_then_sum` it compares the standard deviation of
  the whole batch with zero;
- the duration of the step, of the reward, and of the judge's engine ([`overhead`]).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from datasets import Dataset
from pocket.policy import MAX_TOKENS
from pocket.world import Task, satisfaction
from rich.console import Console
from rich.progress import Progress
from transformers import AutoModelForCausalLM, AutoTokenizer, ProgressCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import pocket_dir
from checklist_rewards.rewards.batch import Call
from checklist_rewards.rewards.trl import ChecklistReward

console = Console(stderr=True)
N, GROUPS = 8, 8
"""Completions per prompt (the size of a group), and groups per step."""
EQUAL = 1e-8
"""Standard deviation below which the rewards of a group are equal (TRL's tolerance)."""
Gold = Callable[[str, str], float]
"""Text of a prompt and of a completion to gold, in [0, 1]."""
LOGGED = {
    "proxy": "proxy",
    "gold": "rewards/gold/mean",
    "zero_variance": "zero_variance",
    "step_seconds": "step_time",
    "reward_seconds": "reward_seconds",
    "engine_seconds": "engine_seconds",
}


class GoldReward:
    """Gold of each completion, computed by code from the text of prompt and completion. Logged only, under `name`:
    its weight is 0."""

    def __init__(self, gold: Gold, name: str = "gold"):
        self.gold, self.__name__ = gold, name

    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
        return [
            self.gold(prompt[-1]["content"], completion[-1]["content"])
            for prompt, completion in zip(prompts, completions, strict=True)
        ]


def satisfied(items: Sequence[Task]) -> Gold:
    """Gold of the pocket world: the fraction of the instruction's constraints that a completion meets."""
    by_prompt = {task.instruction: task for task in items}
    return lambda prompt, text: satisfaction(by_prompt[prompt], text)


class WatchedReward(ChecklistReward):
    """The checklist reward, with metrics of its duration, of its mean (*proxy*), and of groups without variance."""

    def run(self, call: Call) -> Call:
        before, started = self.scorer.receipt, time.perf_counter()
        call = super().run(call)
        seconds = time.perf_counter() - started
        log_metric: Any = call.log_metric
        log_metric("reward_seconds", seconds)
        log_metric("engine_seconds", (self.scorer.receipt - before).engine_seconds)
        for score in call.rewards:
            if score is not None:
                log_metric("proxy", score)
        log_metric("zero_variance", without_variance(call.rewards, N))
        return call


def without_variance(rewards: list[float | None], size: int) -> float:
    """Fraction of groups (of `size` consecutive rewards) with equal rewards, or fewer than two."""
    groups = [rewards[start : start + size] for start in range(0, len(rewards), size)]
    known = [[reward for reward in group if reward is not None] for group in groups]
    return fmean(len(group) < 2 or pstdev(group) < EQUAL for group in known)


def overhead(log: list[dict[str, float]]) -> dict[str, float]:
    """Mean seconds per step, per reward and in the judge's engine; and `overhead`, the fraction of the step time that
    the reward spent outside the engine."""
    total = {key: sum(entry[key] for entry in log) for key in ("step_seconds", "reward_seconds", "engine_seconds")}
    outside = total["reward_seconds"] - total["engine_seconds"]
    return {key: value / len(log) for key, value in total.items()} | {"overhead": outside / total["step_seconds"]}


class Bar(TrainerCallback):
    """A progress bar on stderr instead of a dictionary per step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.progress = Progress(console=console)
        self.task = self.progress.add_task("GRPO", total=state.max_steps)
        self.progress.start()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if logs and LOGGED["gold"] in logs:
            proxy, gold = float(logs.get(LOGGED["proxy"], logs["reward"])), float(logs[LOGGED["gold"]])
            self.progress.update(
                self.task, completed=state.global_step, description=f"reward {proxy:.2f} gold {gold:.2f}"
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.progress.stop()


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
    """Train the pocket policy by GRPO with the pocket judge.

    The trained policy is saved in `output/policy`, and every completion with its score in `output/rewards.jsonl`.

    Args:
        dataset, items: prompts with checklists, and their tasks.

    Returns:
        The log, with one entry per step: `step` and the keys of `LOGGED`.
    """
    rewards = output / "rewards.jsonl"
    rewards.unlink(missing_ok=True)  # a log is appended to, and this is a new run
    config = GRPOConfig(
        output_dir=str(output / "trainer"),
        # On a CPU, where bf16 is slow, and as the published figures were measured.
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=GROUPS * N,
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
        reward_weights=[1.0, 0.0],
        # Gold is a second reward (of weight 0), so the default sum would make all completions of a prompt abstain with
        # one. With a single trained reward this also multiplies advantages as groups lose their variance; see
        # docs/training.md. The published figures of the pocket model were measured with it.
        multi_objective_aggregation="normalize_then_sum",
        seed=seed,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype="float32"),
        args=config,
        train_dataset=dataset,
        processing_class=AutoTokenizer.from_pretrained(pocket_dir()),
        reward_funcs=[WatchedReward(scorer, log=rewards), GoldReward(satisfied(items))],
        callbacks=[Bar()],
    )
    trainer.remove_callback(ProgressCallback)
    trainer.train()
    trainer.save_model(str(output / "policy"))
    trainer.processing_class.save_pretrained(str(output / "policy"))
    return [
        {
            "step": entry["step"],
            "proxy": entry["reward"],  # of a step in which nothing was scored
            **{key: entry[name] for key, name in LOGGED.items() if name in entry},
        }
        for entry in trainer.state.log_history
        if LOGGED["gold"] in entry
    ]
