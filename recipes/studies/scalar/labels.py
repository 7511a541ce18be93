"""What is labelled, and what one label is.

The texts are samples of the pocket policy. Labels come from code: an item is met or not, and of two completions that
with more constraints met is preferred. Both kinds of label are one bit, and the same number of either is the same
budget. It is generous to the preferences: people read two texts for one of them, and pairs that code cannot decide are
drawn anew at no cost.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from pocket.policy import checklist_dataset, sample_policy
from pocket.world import parse_question, satisfaction, tasks

from checklist_rewards.backends import pocket_dir
from checklist_rewards.errors import SampleError
from checklist_rewards.files.rows import read_rows, write_rows
from checklist_rewards.judges.labels import Labelled


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt with its checklist, samples of the policy, and their gold: the fraction of constraints met."""

    instruction: str
    questions: tuple[str, ...]
    texts: tuple[str, ...]
    gold: tuple[float, ...]


def sampled_prompts(
    path: Path, count: int, *, seed: int, n: int, store: Path, temperature: float = 1.0
) -> list[Prompt]:
    """Prompts of held-out words with `n` samples of the pocket policy each, and checklists of the pocket model.

    They are written to `path`, which is read if it is there. A prompt without a checklist is dropped.
    """
    if not path.is_file():
        dataset, items = checklist_dataset(tasks(count, seed=seed, split="test"), store)
        replies = sample_policy(str(pocket_dir()), items, n=n, temperature=temperature, seed=seed)
        with write_rows(path) as rows:
            for row, task, texts in zip(dataset, items, replies, strict=True):
                questions = [item["question"] for item in row["checklist"]]
                gold = [satisfaction(task, text) for text in texts]
                rows.write(asdict(Prompt(task.instruction, tuple(questions), tuple(texts), tuple(gold))))
    return [_prompt(row.data) for row in read_rows(path)]


def _prompt(row: dict) -> Prompt:
    return Prompt(row["instruction"], *(tuple(row[name]) for name in ("questions", "texts", "gold")))


def item_labels(pool: Sequence[Prompt], count: int, seed: int) -> list[Labelled]:
    """`count` yes/no answers to one item each. Completions are drawn at random, and all their items are labelled.

    The labels of a smaller budget are the first of a larger one. Items that code cannot read are not labelled.
    """
    drawn = [(prompt, text) for prompt in pool for text in prompt.texts]
    random.Random(f"items-{seed}").shuffle(drawn)
    labels = [
        Labelled(text, question, float(constraint.holds(text)), group=prompt.instruction, input=prompt.instruction)
        for prompt, text in drawn
        for question in prompt.questions
        if (constraint := parse_question(question)) is not None
    ]
    return _first(labels, count, "item labels")


def preferences(pool: Sequence[Prompt], count: int, seed: int) -> list[tuple[str, str, str]]:
    """`count` preferences, (instruction, chosen text, rejected text), without ties; nested as [`item_labels`]."""
    pairs = [
        (prompt.instruction, prompt.texts[best], prompt.texts[worst])
        for prompt in pool
        for one, other in combinations(range(len(prompt.texts)), 2)
        if prompt.gold[one] != prompt.gold[other]
        for best, worst in [sorted((one, other), key=lambda place: -prompt.gold[place])]
    ]
    random.Random(f"pairs-{seed}").shuffle(pairs)
    return _first(pairs, count, "preferences")


def _first(labels: list, count: int, name: str) -> list:
    if len(labels) < count:
        raise SampleError(f"the pool has {len(labels)} {name}, but {count} are needed; raise --pool.")
    return labels[:count]


def as_messages(instruction: str, text: str) -> list[dict[str, str]]:
    """A prompt and its completion as a chat."""
    return [{"role": "user", "content": instruction}, {"role": "assistant", "content": text}]


def fingerprint(pool: Sequence[Prompt]) -> str:
    """A hash of prompts and texts, as a setting of the runs that use them."""
    import hashlib

    return hashlib.sha256(json.dumps([asdict(prompt) for prompt in pool]).encode()).hexdigest()[:12]
