"""Rows of the pocket world with the right answers, by code: `python recipes/pocket/labelled.py -o labelled.jsonl`.

For every task of held-out words there are a written response, a malformed one, and one that breaks off early; each is
asked about what the task wants and about every family of constraints. `labels` has one truth per item, `task` is what
rows share that are not independent. With it the whole way can be walked on a CPU in two minutes:

    python recipes/pocket/labelled.py -o labelled.jsonl
    checklist-rewards score labelled.jsonl -o scored.jsonl
    checklist-rewards agree scored.jsonl --label-key labels --group-key task
    checklist-rewards calibrate scored.jsonl --label-key labels --group-key task -o map.json --plots plots
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pocket.data import ask, spoil  # noqa: E402
from pocket.world import FAMILIES, WORD_FAMILIES, Task, tasks, write_response  # noqa: E402

from checklist_rewards.files.rows import write_rows  # noqa: E402

VIOLATE = 0.4


def labelled_rows(n: int, seed: int) -> Iterator[dict[str, Any]]:
    """Three rows for each of `n` tasks: id, task, prompt, target, checklist, and a truth per item in `labels`."""
    rng = random.Random(f"labelled-{seed}")
    for number, task in enumerate(tasks(n, seed=seed, split="test")):
        written = write_response(rng, task, VIOLATE, "test")
        for kind, target in (
            ("written", written),
            ("malformed", spoil(rng, spoil(rng, written))),
            ("cut", written[: rng.randint(1, len(written))]),
        ):
            asked = dict(_asked(rng, task, target))
            yield {
                "id": f"{number}-{kind}",
                "task": str(number),
                "prompt": task.instruction,
                "target": target,
                "checklist": list(asked),
                "labels": list(asked.values()),
            }


def _asked(rng: random.Random, task: Task, target: str) -> list[tuple[str, bool]]:
    hints = [str(c.value) for c in task.constraints if c.family in WORD_FAMILIES]
    wanted = [(constraint.question(), constraint.holds(target)) for constraint in task.constraints]
    return wanted + ask(rng, target, list(FAMILIES), hints, "test")


def main() -> None:
    """Write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    with write_rows(arguments.output) as rows:
        for row in labelled_rows(arguments.tasks, arguments.seed):
            rows.write(row)


if __name__ == "__main__":
    main()
