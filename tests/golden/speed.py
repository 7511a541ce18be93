"""Processor time of checkouts, in turns: per read of the pocket judge, per read from the store, and per row of `score`
with code checks alone.

    python tests/golden/speed.py --root ../old --root .

Every turn is a process per checkout, so that other load on the machine affects all of them. Prints the median of the
turns in microseconds, and its ratio to the first checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TURN = """
import json
import random
import statistics
import sys
import time

from typer.testing import CliRunner

from checklist_rewards import ChecklistScorer, Sample
from checklist_rewards.cli import app

rows, texts = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(0)
words = "a the morni sees kesme bulla holds nipta red turfo our lunmu is bright".split()
checklist = ["Does the response end with a question mark?", "Is the response free of digits?",
             "Is the response written in lower case only?", "Does the response use bullet points?"]
written = [" ".join(rng.choices(words, k=30)) + "." for _ in range(rows)]
samples = [Sample(checklist, text, "Write a note.") for text in written[:texts]]

def timed(work):
    start = time.process_time()
    work()
    return time.process_time() - start

fresh = ChecklistScorer("pocket", backend="transformers", store=False)
stored = ChecklistScorer("pocket", backend="transformers", store="store.sqlite")
fresh.score_batch([Sample(checklist, "A text.")])
stored.score_batch(samples)
found = {"a read of the pocket judge": timed(lambda: fresh.score_batch(samples)) / (4 * texts)}
of_store = [timed(lambda: stored.score_batch(samples)) for _ in range(20)]
found["a read from the store"] = statistics.median(of_store) / (4 * texts)
checks = [{"question": "Is it short?", "check": {"type": "words", "at_most": 20}},
          {"question": "Is it in lower case?", "check": {"type": "casing", "casing": "lower"}}]
with open("rows.jsonl", "w") as file:
    for text in written:
        file.write(json.dumps({"prompt": "Write a note.", "target": text, "checklist": checks}) + "\\n")
command = ["score", "rows.jsonl", "-o", "scored.jsonl"]
CliRunner().invoke(app, command)
def score():
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
found["a row of score with two checks"] = timed(score) / rows
print(json.dumps(found))
"""


def main() -> None:
    """Take turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", action="append", type=Path, required=True, help="a checkout; repeatable")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2000, help="rows with code checks")
    parser.add_argument("--texts", type=int, default=64, help="texts that the pocket judge reads")
    given = parser.parse_args()
    roots = [root.resolve() for root in given.root]
    times: dict[str, dict[Path, list[float]]] = {}
    for _ in range(given.turns):
        for root in roots:
            for name, seconds in turn(root, given.rows, given.texts).items():
                times.setdefault(name, {}).setdefault(root, []).append(seconds)
    print(f"{'microseconds of a core per':32}", *(f"{root.name:>16.16}" for root in roots))
    for name, of_roots in times.items():
        medians = [1e6 * statistics.median(of_roots[root]) for root in roots]
        print(f"{name:32}", *(f"{median:9.1f} {median / medians[0]:5.2f}x" for median in medians))


def turn(root: Path, rows: int, texts: int) -> dict[str, float]:
    """The times of a checkout, in seconds, in a process with an empty home."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "PYTHONPATH": str(root),
            "XDG_CACHE_HOME": folder,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-P", "-c", TURN, str(rows), str(texts)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


if __name__ == "__main__":
    main()
