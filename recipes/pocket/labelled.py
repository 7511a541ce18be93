"""Write rows of the pocket world with correct answers: `python recipes/pocket/labelled.py -o labelled.jsonl`.

Each task of held-out words gives three rows: a generated response, a malformed one, and a truncated one. The checklist
of a row asks about the constraints of the task and about every family of constraints. `labels` has the correct answer
to each item, computed by code. Rows with the same `task` are not independent. Score, compare and calibrate them in two
minutes on a CPU:

    python recipes/pocket/labelled.py -o labelled.jsonl
    checklist-rewards score labelled.jsonl -o scored.jsonl --model pocket
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
from pocket.data import questions_about, spoil
from pocket.world import tasks, write_response

from checklist_rewards.files.rows import write_rows

VIOLATE = 0.4


def labelled_rows(n: int, seed: int) -> Iterator[dict[str, Any]]:
    """Three rows for each of `n` tasks: id, task, prompt, target, checklist, and the correct answers as `labels`."""
    rng = random.Random(f"labelled-{seed}")
    for number, task in enumerate(tasks(n, seed=seed, split="test")):
        written = write_response(rng, task, VIOLATE, "test")
        for kind, target in (
            ("written", written),
            ("malformed", spoil(rng, spoil(rng, written))),
            ("cut", written[: rng.randint(1, len(written))]),
        ):
            questions = dict(questions_about(rng, task, target))
            yield {
                "id": f"{number}-{kind}",
                "task": str(number),
                "prompt": task.instruction,
                "target": target,
                "checklist": list(questions),
                "labels": list(questions.values()),
            }


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="output file (.jsonl, .csv or .parquet)")
    parser.add_argument("--tasks", type=int, default=200, help="number of tasks (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=11, help="seed of the tasks (default: %(default)s)")
    arguments = parser.parse_args()
    with write_rows(arguments.output) as rows:
        for row in labelled_rows(arguments.tasks, arguments.seed):
            rows.write(row)


if __name__ == "__main__":
    main()
