"""Prompts of the pocket world, and scores of a policy on them.

The pocket model writes a checklist for each task, and a policy answers the tasks. The replies are scored by the judge
(*proxy*) and by code (*gold*). Replies that the judge could not score are excluded from the proxy and counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset
from pocket.world import Task, satisfaction

from checklist_rewards import ChecklistScorer, Sample, build_checklists
from checklist_rewards.backends import Sampling, load_backend
from checklist_rewards.generators import DirectGenerator

MAX_TOKENS = 96


def checklist_dataset(items: list[Task], store: Path) -> tuple[Dataset, list[Task]]:
    """A dataset with a checklist per instruction, written by the pocket model, and the tasks that have one."""
    dataset = build_checklists(
        [as_prompt(task) for task in items],
        DirectGenerator("pocket", temperature=0, store=store),
        on_failure="drop",
    )
    instructions = {prompt[-1]["content"] for prompt in dataset["prompt"]}
    return dataset, [task for task in items if task.instruction in instructions]


def as_prompt(task: Task) -> list[dict[str, str]]:
    """The instruction as chat messages."""
    return [{"role": "user", "content": task.instruction}]


def sample_policy(model: str, items: list[Task], *, n: int, temperature: float, seed: int = 0) -> list[list[str]]:
    """`n` replies of the policy to every instruction. Does not change the random state of a surrounding training."""
    sampling = Sampling(max_tokens=MAX_TOKENS, temperature=temperature, n=n, seed=seed)
    replies = load_backend(model, "transformers").generate([as_prompt(task) for task in items], sampling)
    return [[reply.text or "" for reply in group] for group in replies]


def gold(items: list[Task], texts: list[list[str]]) -> float:
    """Mean fraction of met constraints over all texts, computed by code, in [0, 1]."""
    golds = [satisfaction(task, text) for task, group in zip(items, texts, strict=True) for text in group]
    return sum(golds) / len(golds)


def measure(scorer: ChecklistScorer, dataset: Dataset, items: list[Task], texts: list[list[str]]) -> dict[str, Any]:
    """Mean proxy (judge; None if nothing was scored) and gold (code) over all texts; number of unscored texts."""
    samples = [
        Sample(row["checklist"], text, task.instruction)
        for row, task, group in zip(dataset, items, texts, strict=True)
        for text in group
    ]
    scores = [score.primary_score for score in scorer.score_batch(samples)]
    proxies = [score for score in scores if score is not None]
    return {
        "proxy": sum(proxies) / len(proxies) if proxies else None,
        "gold": gold(items, texts),
        "unscored": len(scores) - len(proxies),
    }
