"""Fixed or evolving checklists: GRPO on the pocket model with both, over several seeds.

    python recipes/studies/evolving.py --output runs/evolving

The author of the checklists overlooks the families of constraints in `OVERLOOKED`: the *fixed* checklist of a prompt
has the questions about its other constraints. *Evolving* starts with the same checklist, and a proposer adds items
during training. The pocket model cannot propose, so the proposer is a script that draws `--draws` questions per group:
with probability `--relevant` one about a constraint of the instruction that no question in use covers, else one that
the instruction does not ask for, as a careless model might. It does not know which responses are good. *Complete* has
the questions about all constraints, the best that evolving could reach.

Each run is evaluated on held-out prompts by code (*gold*) every `--eval-every` steps, also for the overlooked families
alone. Writes `summary.json` and `evolving.png` under `--output`. Finished runs are skipped, so an interrupted study
continues with the same command.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import Dataset
from pocket.grpo_run import N, WatchedReward, train
from pocket.policy import as_prompt, gold, sample_policy
from pocket.world import FAMILIES, WORD_FAMILIES, Constraint, Task, parse_question, tasks
from rich.console import Console
from rich.table import Table
from studies.arms import Runs, checkpoints, options, run_arms
from studies.common import band, figure, once, save_json, shown, spread
from transformers.utils import logging as transformers_logging

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import engine_identity, pocket_dir
from checklist_rewards.evolving import Group
from checklist_rewards.evolving.buffer import read_buffer
from checklist_rewards.refiners import Deduplicator

ARMS = {"fixed": "C3", "evolving": "C0", "complete": "C7"}
OVERLOOKED = frozenset({"sentences", "first", "lowercase", "digits", "exclaim"})
"""Half of the families of the pocket world."""


class WorldProposer:
    """Draws questions from the pocket world.

    Args:
        by_instruction (mapping from `str` to [`Task`]): the tasks.
        draws (`int`): questions per group.
        relevant (`float`): probability of a question about a constraint of the instruction.
        seed (`int`): seed of the draws.
    """

    def __init__(self, by_instruction: dict[str, Task], draws: int, relevant: float, seed: int):
        self.by_instruction, self.draws, self.relevant = by_instruction, draws, relevant
        self.rng = random.Random(seed)

    def __call__(self, groups: Sequence[Group]) -> list[list[dict[str, Any]]]:
        drawn = [[self._question(group) for _ in range(self.draws)] for group in groups]
        return [[question for question in of_group if question is not None] for of_group in drawn]

    def _question(self, group: Group) -> dict[str, Any] | None:
        constraints = self.by_instruction[group.input or ""].constraints
        if self.rng.random() < self.relevant:
            in_use = {item.question for item in (*group.persistent, *group.active)}
            new = [question for c in constraints if (question := c.question()) not in in_use]
            return {"question": self.rng.choice(new), "weight": 1.0} if new else None
        asked = {constraint.family for constraint in constraints}
        family = self.rng.choice([name for name in FAMILIES if name not in asked])
        words = [word for text in group.responses for word in text.lower().strip(".?!-").split() if word.isalpha()]
        numbers = FAMILIES[family].values
        value = self.rng.choice(numbers) if numbers else None
        if family in WORD_FAMILIES:
            value = self.rng.choice(words or ["the"])
        return {"question": Constraint(family, value).question(), "weight": self.rng.choice((1.0, -1.0))}


class Study:
    """The prompts, and the settings shared by all runs."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        written = tasks(3 * args.train_prompts, seed=1, split="test")
        seen = [task for task in written if 0 < len(covered(task)) < len(task.constraints)]
        self.train_items = seen[: args.train_prompts]
        self.test_items = tasks(args.test_prompts, seed=2, split="test")
        self.overlooked = [
            Task(task.instruction, tuple(c for c in task.constraints if c.family in OVERLOOKED))
            for task in self.test_items
        ]
        names = ("train_prompts", "test_prompts", "steps", "learning_rate", "eval_every", "every", "draws", "relevant")
        self.settings = {
            "policy": engine_identity("pocket", "transformers"),
            "overlooked": sorted(OVERLOOKED),
            **{name: getattr(args, name) for name in names},
        }

    def dataset(self, arm: str) -> Dataset:
        """The prompts with the checklists of an arm."""
        rows = [
            {
                "prompt": as_prompt(task),
                "checklist": [c.question() for c in (task.constraints if arm == "complete" else covered(task))],
            }
            for task in self.train_items
        ]
        return Dataset.from_list(rows)

    def gold(self, policy: Path) -> dict[str, float]:
        """Held-out gold of a policy: of all constraints, and of the overlooked families."""
        texts = sample_policy(str(policy), self.test_items, n=N, temperature=1.0)
        pairs = [(task, group) for task, group in zip(self.overlooked, texts, strict=True) if task.constraints]
        return {
            "gold": gold(self.test_items, texts),
            "overlooked": gold([task for task, _ in pairs], [group for _, group in pairs]),
        }

    def run(self, arm: str, seed: int, folder: Path) -> dict[str, Any]:
        """Train and evaluate one run."""
        args = self.args
        by_instruction = {task.instruction: task for task in self.train_items}

        rewards = folder / "rewards.jsonl"
        rewards.unlink(missing_ok=True)  # of an interrupted run
        scorer = ChecklistScorer("pocket", store=folder / "store.sqlite")
        proposer = WorldProposer(by_instruction, args.draws, args.relevant, seed)
        evolving = {"proposer": proposer, "every": args.every, "refiners": [Deduplicator()]}
        reward = WatchedReward(scorer, log=rewards, evolving=evolving if arm == "evolving" else None)
        log = train(
            self.dataset(arm),
            self.train_items,
            scorer,
            folder,
            steps=args.steps,
            learning_rate=args.learning_rate,
            seed=seed,
            save_steps=args.eval_every,
            reward=reward,
        )
        curve = {step: self.gold(path) for step, path in checkpoints(args, folder)}
        after = self.gold(folder / "policy")
        found = {**after, "curve": curve | {args.steps: after}, "log": log}
        if arm == "evolving":
            found["buffer"] = buffer_figures(folder / "trainer" / "checklists.jsonl", self.train_items)
        return found


def covered(task: Task) -> list[Constraint]:
    """The constraints that the author of the checklists saw."""
    return [constraint for constraint in task.constraints if constraint.family not in OVERLOOKED]


def buffer_figures(path: Path, items: list[Task]) -> dict[str, float]:
    """What the buffer has at the end: active items per prompt, the share of them that the instruction asks for, and
    the share of overlooked constraints that are or were active."""
    prompts = read_buffer(path)["prompts"]
    by_covered = {frozenset(c.question() for c in covered(task)): task for task in items}
    active = right = had = missing = 0
    for record in prompts:
        task = by_covered[frozenset(item["question"] for item in record["persistent"])]
        asked = set(task.constraints)
        now = {parse_question(item["question"]) for item in record["active"]}
        ever = now | {parse_question(item["question"]) for item in record["inactive"]}
        active, right = active + len(now), right + len(now & asked)
        overlooked = asked - set(covered(task))
        missing, had = missing + len(overlooked), had + len(overlooked & ever)
    return {
        "prompts": len(prompts),
        "active_per_prompt": active / max(1, len(prompts)),
        "asked_for": right / max(1, active),
        "overlooked_found": had / max(1, missing),
    }


def summarize(before: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """Results of each arm over its seeds, and evolving minus fixed seed by seed."""
    arms: dict[str, Any] = {}
    for arm, of_seeds in runs.items():
        arms[arm] = {name: spread([run[name] for run in of_seeds]) for name in ("gold", "overlooked")}
        arms[arm]["zero_variance"] = spread([fmean(e["zero_variance"] for e in run["log"]) for run in of_seeds])
        arms[arm]["seconds_per_step"] = spread([fmean(e["step_seconds"] for e in run["log"]) for run in of_seeds])
        arms[arm]["curve"] = {
            name: {
                step: [before[name] if step == "0" else run["curve"][step][name] for run in of_seeds]
                for step in ["0", *of_seeds[0]["curve"]]
            }
            for name in ("gold", "overlooked")
        }
        if arm == "evolving":
            arms[arm]["buffer"] = {
                name: spread([run["buffer"][name] for run in of_seeds]) for name in of_seeds[0]["buffer"]
            }
    summary: dict[str, Any] = {"before": {name: before[name] for name in ("gold", "overlooked")}, "arms": arms}
    if {"fixed", "evolving"} <= set(runs):
        for name in ("gold", "overlooked"):
            pairs = zip(runs["evolving"], runs["fixed"], strict=True)
            summary[f"evolving_minus_fixed_{name}"] = spread([one[name] - other[name] for one, other in pairs])
    return summary


def plot(summary: dict[str, Any], path: Path) -> None:
    """Plot held-out gold against the step, of all constraints and of the overlooked ones."""
    titles = {"gold": "All constraints", "overlooked": "Constraints that the fixed checklist lacks"}
    with figure(path, 2, figsize=(9.5, 3.8), sharey=True) as panels:
        for axes, (name, title) in zip(panels, titles.items(), strict=True):
            for arm, found in summary["arms"].items():
                band(axes, {int(step): values for step, values in found["curve"][name].items()}, arm, ARMS[arm])
            axes.set(xlabel="GRPO step", title=title)
        panels[0].set_ylabel("share of constraints met (gold)")
        panels[0].legend(frameon=False, loc="lower right")


def report(summary: dict[str, Any]) -> None:
    """Print the arms side by side."""
    table = Table(title="Held-out prompts: mean over the seeds (least-greatest)")
    for name in ("", "before", *summary["arms"]):
        table.add_column(name)
    names = {
        "gold": "gold",
        "overlooked": "gold, overlooked families",
        "zero_variance": "groups with equal rewards",
        "seconds_per_step": "seconds per step",
    }
    for key, name in names.items():
        first = f"{summary['before'][key]:.3f}" if key in summary["before"] else ""
        table.add_row(name, first, *(shown(found[key]) for found in summary["arms"].values()))
    Console().print(table)
    for name in ("gold", "overlooked"):
        if difference := summary.get(f"evolving_minus_fixed_{name}"):
            Console().print(f"{names[name]}, evolving minus fixed, seed by seed: {shown(difference)}.")
    for name, value in summary["arms"].get("evolving", {}).get("buffer", {}).items():
        Console().print(f"buffer, {name}: {shown(value)}")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the study; returns its summary."""
    parser = options(__doc__.split("\n")[0], "runs/evolving", list(ARMS), train_prompts=48, eval_every=20)
    parser.add_argument("--every", type=int, default=2, help="steps between proposals")
    parser.add_argument("--draws", type=int, default=2, help="questions proposed per group")
    parser.add_argument("--relevant", type=float, default=0.7, help="probability of a relevant question")
    args = parser.parse_args(argv)
    transformers_logging.disable_progress_bar()

    study = Study(args)
    before = once(args.output / "before", study.settings, lambda: study.gold(pocket_dir()))
    runs = run_arms(args, study.settings, study.run)
    summary = {"settings": {**study.settings, "seeds": args.seeds}, **summarize(before, runs)}
    save_json(args.output / "summary.json", summary)
    plot(summary, args.output / "evolving.png")
    report(summary)
    return summary


if __name__ == "__main__":
    main()
