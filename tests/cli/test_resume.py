"""Rerun is resume: a run that was killed at any instant goes on from what it had paid for."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pocket.world import tasks, write_response

from checklist_rewards.store import Store
from tests.cli.conftest import read_jsonl, write_jsonl

ROWS = 320


def start(folder: Path, store: str) -> subprocess.Popen:
    arguments = ["run", "rows.jsonl", "-o", f"{store}.jsonl", "--backend", "transformers", "--max-tokens", "96"]
    arguments += ["--store", f"{store}.sqlite", "--summary", f"{store}.json"]
    return subprocess.Popen(
        [sys.executable, "-m", "checklist_rewards.cli", *arguments], cwd=folder, stderr=subprocess.DEVNULL
    )


def reads_in(store: Path) -> int:
    """Reads among the answers of a store; the others are replies."""
    if not store.exists():
        return 0
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        return connection.execute("SELECT count(*) FROM answers WHERE value LIKE '{%'").fetchone()[0]


def answers_in(store: Path) -> int:
    return len(Store(store)) if store.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("until", [answers_in, reads_in], ids=["writing checklists", "scoring"])
def test_kill_9_in_the_middle_of_run_then_run_again(tmp_path, until):
    rng = random.Random(0)
    items = tasks(ROWS, seed=5, split="test")
    rows = [{"input": task.instruction, "target": write_response(rng, task, 0.4, "test")} for task in items]
    write_jsonl(tmp_path / "rows.jsonl", *rows)
    whole = start(tmp_path, "whole")

    killed = start(tmp_path, "killed")
    while until(tmp_path / "killed.sqlite") == 0:
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed.jsonl").exists()
    paid = reads_in(tmp_path / "killed.sqlite")

    assert start(tmp_path, "killed").wait() in (0, 1) and whole.wait() in (0, 1)
    expected, again = (json.loads((tmp_path / f"{name}.json").read_text())["receipt"] for name in ("whole", "killed"))
    # The rows are judged in chunks, and a read of an earlier chunk is "stored" for a later one in both runs.
    assert again["asked"] == expected["asked"] - paid
    assert again["stored"] == expected["stored"] + paid
    assert answers_in(tmp_path / "killed.sqlite") == answers_in(tmp_path / "whole.sqlite")
    one, other = read_jsonl(tmp_path / "whole.jsonl"), read_jsonl(tmp_path / "killed.jsonl")
    assert len(one) == ROWS and close(one, other)


def close(one, other) -> bool:
    """Equal, numbers up to what a different batch does to a float."""
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, abs=1e-4)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == other
