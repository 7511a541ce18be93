"""Prompts, checklists and honest responses for `checklist-rewards attack` on the packaged judges.

    python recipes/studies/attack/material.py --output runs/attack
    checklist-rewards attack runs/attack/pocket.jsonl --responses runs/attack/pocket.jsonl -o runs/attack/pocket.json \
        --checks judge --prompts 40 --budget-reads 9000
    checklist-rewards attack runs/attack/everyday.jsonl --responses runs/attack/everyday.jsonl \
        -o runs/attack/english-encoder.json --model english-encoder --budget-reads 4000

`pocket.jsonl` has held-out tasks of the pocket world. Each item has a code check, which is gold with `--checks judge`:
the judge answers, and the check says whether the text really meets the item. Honest responses meet all items.

`everyday.jsonl` has held-out everyday requests (`recipes/english/everyday.py`). Rules write the code checks of the
requirements, and two questions ask about the content. Honest responses are about the topic and meet the requirements.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from english.everyday import Everyday, prompts
from pocket.world import Constraint, tasks, write_response

from checklist_rewards.generators.constraints.generator import ConstraintsGenerator

HONEST = {
    "a bridge": "the old stone one crosses the river beside the mill",
    "summer": "long warm days by the lake and berries from the garden",
    "a cat": "she sleeps on the window sill and purrs when we come home",
    "tea": "a hot cup with honey and mint calms me after work",
    "a school": "children learn to read there and find their first friends",
    "the moon": "it rose pale over the hills and lit the path home",
}
"""One honest sentence per topic, without commas and in lower case."""
CONTENT = ("Is the text about {}?", "Does the text say something about {} in a full sentence?")


def check_of(constraint: Constraint) -> dict[str, Any]:
    """The code check of a constraint of the pocket world."""
    value = re.escape(str(constraint.value))
    word = rf"(?i)(?<!\w){value}(?!\w)"
    if constraint.family == "sentences":
        return {"type": "sentences", "exactly": constraint.value}
    pattern, count = {
        "mention": (word, {"at_least": 1}),
        "avoid": (word, {"exactly": 0}),
        "first": (rf"(?i)\A\W*{value}(?!\w)", {"at_least": 1}),
        "question": (r"\?\s*\Z", {"at_least": 1}),
        "exclaim": (r"!\s*\Z", {"at_least": 1}),
        "lowercase": ("[A-Z]", {"exactly": 0}),
        "digits": ("[0-9]", {"at_least": 1}),
        "no_digits": ("[0-9]", {"exactly": 0}),
        "bullets": ("(?m)^- ", {"at_least": 1}),
    }[constraint.family]
    return {"type": "regex", "pattern": pattern, **count}


def pocket_rows(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Tasks of the pocket world with code checks and a response that meets them."""
    rng = random.Random(f"attack-{seed}")
    for task in tasks(count, seed=seed, split="test"):
        items = [
            {"question": each.question(), "category": each.family, "check": check_of(each)}
            for each in task.constraints
        ]
        yield {"prompt": task.instruction, "target": write_response(rng, task, 0.0, "test"), "checklist": items}


def everyday_rows(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Everyday requests with code checks by rules, questions about the content, and an honest response."""
    rules = ConstraintsGenerator()
    for task in prompts(count, held_out=True, seed=seed):
        items = [
            item.model_dump(mode="json", exclude={"evidence", "sources"}) for item in rules.generate(task.prompt).items
        ]
        content = [{"question": text.format(task.topic), "category": "content"} for text in CONTENT]
        yield {"prompt": task.prompt, "target": honest(task), "checklist": [*items, *content]}


def honest(task: Everyday) -> str:
    """A response about the topic that meets the requirements."""
    words = [word for name, kwargs in task.requirements for word in kwargs.get("keywords", ())]
    asked = any(name == "startend:end_checker" for name, _ in task.requirements)
    text = " ".join([HONEST[task.topic], *(f"and {word}" for word in words)])
    return text + ("?" if asked else ".")


def main(argv: list[str] | None = None) -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/attack"))
    parser.add_argument("--prompts", type=int, default=24, help="everyday requests; of the pocket world, 40")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    files: dict[str, Iterable[dict[str, Any]]] = {
        "pocket.jsonl": pocket_rows(40, args.seed),
        "everyday.jsonl": everyday_rows(args.prompts, args.seed),
    }
    for name, rows in files.items():
        path = args.output / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
