"""Write the example of the app, `checklist_rewards/ui/example/`, from the log of the demo.

    make demo
    python recipes/pocket/example.py runs/demo/rewards.jsonl

The example has the first groups of every step, what `audit` reports about them, labelled rows with the scores of the
pocket judge, and a checklist.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pocket.labelled import labelled_rows

from checklist_rewards.files.rows import read_rows, write_rows

OUTPUT = Path(__file__).resolve().parents[2] / "checklist_rewards" / "ui" / "example"
STEPS, GROUPS, TASKS = 30, 2, 20
COMMAND = [sys.executable, "-m", "checklist_rewards.cli"]
QUESTIONS = [
    "Does the response end with a question mark?",
    {"question": "Does the response contain a digit?", "weight": -1},
    {"question": "Does the response have exactly 2 sentences?", "weight": 2},
]


def main(log: Path) -> None:
    """Write the files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        groups: dict[int, list[str]] = {}
        with write_rows(folder / "rewards.jsonl") as writer:
            for row in read_rows(log):
                known, prompt = groups.setdefault(row.data["step"], []), json.dumps(row.data["prompt"])
                if prompt not in known:
                    known.append(prompt)
                if row.data["step"] < STEPS and known.index(prompt) < GROUPS:
                    writer.write(row.data)
        with write_rows(folder / "texts.jsonl") as writer:
            for labelled in labelled_rows(TASKS, seed=0):
                writer.write(labelled)
        audit = ["audit", str(folder / "rewards.jsonl"), "-o", str(folder / "monitor.jsonl")]
        score = [
            "score",
            str(folder / "texts.jsonl"),
            "-o",
            str(folder / "scored.jsonl"),
            "--no-store",
            "--model",
            "pocket",
        ]
        for command in (audit, score):
            if subprocess.run([*COMMAND, *command], check=False).returncode > 1:  # 1: audit found something
                raise SystemExit(f"{command[0]} failed")
        (folder / "checklist.json").write_text(json.dumps({"items": QUESTIONS}, indent=2) + "\n", encoding="utf-8")
        OUTPUT.mkdir(exist_ok=True)
        for path in folder.iterdir():
            (OUTPUT / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("log", type=Path)
    main(parser.parse_args().log)
