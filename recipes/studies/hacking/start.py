"""The policy that every run starts from: the pocket policy, which now and then shows each form that a bias rewards.

GRPO reinforces only what is sampled. The pocket policy uses the favourite word, writes long texts and lists of three
by itself, but never praises its reply and never repeats its prompt. So the policy is trained for some steps on its own
samples, of which a fifth ends in self-praise and another fifth begins with a copy of the prompt. All runs, clean ones
too, start from this policy.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from pocket.policy import gold, sample_policy
from pocket.world import Task, tasks
from studies.common import save_json
from studies.hacking.biases import PRAISES
from transformers import AutoModelForCausalLM, AutoTokenizer

from checklist_rewards.backends import pocket_dir

SHARE = 0.2
"""Share of the samples that end in self-praise, and of those that copy the prompt."""


def reply_tasks(count: int) -> list[Task]:
    """The tasks of the replies."""
    return tasks(count, seed=3, split="train")


def seeded_replies(count: int, seed: int, samples: int = 1) -> list[tuple[str, str]]:
    """Prompts and replies of the pocket policy (`samples` per prompt), with self-praise or a copied prompt in a share
    of them."""
    rng = random.Random(seed)
    items = reply_tasks(count)
    replies = sample_policy(str(pocket_dir()), items, n=samples, temperature=1.0, seed=seed)
    return [
        (task.instruction, _seeded(rng, task.instruction, text))
        for task, texts in zip(items, replies, strict=True)
        for text in texts
    ]


def _seeded(rng: random.Random, prompt: str, reply: str) -> str:
    kind = rng.random()
    if kind < SHARE:
        return f"{reply} {rng.choice(PRAISES)}"
    return f"{prompt} {reply}" if kind < 2 * SHARE else reply


def make_start(folder: Path, *, count: int = 512, epochs: int = 6, learning_rate: float = 5e-4, seed: int = 0) -> Path:
    """Train the start policy and save it in `folder`, unless it is there already."""
    if (folder / "model.safetensors").is_file():
        return folder
    tokenizer = AutoTokenizer.from_pretrained(pocket_dir())
    model = AutoModelForCausalLM.from_pretrained(pocket_dir(), dtype="float32")
    rows = [_tokens(tokenizer, prompt, reply) for prompt, reply in seeded_replies(count, seed)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    rng = random.Random(seed)
    for _ in range(epochs):
        rng.shuffle(rows)
        for first in range(0, len(rows), 32):
            loss = model(**_batch(rows[first : first + 32], tokenizer.pad_token_id)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)  # last: its file shows that the folder is complete
    return folder


def measure_difficulty(folder: Path, items: list[Task], count: int = 16) -> None:
    """Write the mean gold of the start policy on each prompt, over `count` samples, to `folder/difficulty.json`.

    A file that is there already is kept.
    """
    path = folder / "difficulty.json"
    if not path.is_file():
        samples = sample_policy(str(folder), items, n=count, temperature=1.0)
        save_json(path, {task.instruction: gold([task], [texts]) for task, texts in zip(items, samples, strict=True)})


def _tokens(tokenizer, prompt: str, reply: str) -> tuple[list[int], int]:
    start = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False
    )
    return start + tokenizer(reply).input_ids + [tokenizer.eos_token_id], len(start)


def _batch(rows: list[tuple[list[int], int]], pad: int) -> dict[str, torch.Tensor]:
    width = max(len(tokens) for tokens, _ in rows)
    padding = [width - len(tokens) for tokens, _ in rows]
    return {
        "input_ids": torch.tensor([tokens + [pad] * gap for (tokens, _), gap in zip(rows, padding, strict=True)]),
        "attention_mask": torch.tensor([[1] * len(t) + [0] * gap for (t, _), gap in zip(rows, padding, strict=True)]),
        "labels": torch.tensor([[-100] * n + t[n:] + [-100] * gap for (t, n), gap in zip(rows, padding, strict=True)]),
    }
