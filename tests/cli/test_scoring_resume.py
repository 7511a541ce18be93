"""Rerun is resume: a run that was killed at any instant goes on from what it had paid for."""

import json
import random
import signal
import sqlite3
from pathlib import Path

import pytest
from pocket.world import tasks, write_response

from tests.jsonl import read_jsonl, write_jsonl
from tests.zygote import Program

ROWS = 12
KILLED = """
import os, signal, sys
from checklist_rewards.backends import replies
from checklist_rewards.cli import main
from checklist_rewards.files.store import Store

due, put = sys.argv.pop(1), Store.put
replies.STORE_SECONDS = 0  # each reply is stored when it arrives

def put_and_die(self, answers):
    answers = list(answers)
    put(self, answers)
    if any(text.startswith(due) for _, text in answers):
        os.kill(os.getpid(), signal.SIGKILL)

Store.put = put_and_die
main()
"""
"""The command line, killed when it has stored the first answers whose text begins with its first argument."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows, and the result of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("resume")
    rng = random.Random(0)
    items = tasks(ROWS, seed=5, split="test")
    write_jsonl(
        folder / "rows.jsonl",
        *({"input": task.instruction, "target": write_response(rng, task, 0.4, "test")} for task in items),
    )
    assert start(folder, "whole").wait() in (0, 1)
    return folder


def start(folder: Path, name: str, *program: str) -> Program:
    arguments = ["run", "rows.jsonl", "-o", f"{name}.jsonl", "--model", "pocket", "--writer.max-tokens", "96"]
    arguments += ["--store", f"{name}.sqlite", "--summary", f"{name}.json", "--engine-args", "max_batch_tokens=1024"]
    return Program([*(program or ("-m", "checklist_rewards.cli")), *arguments], cwd=folder)


def reads_in(store: Path) -> int:
    """Reads among the answers of a store; the others are replies."""
    return answers_in(store, "WHERE value LIKE '{%'")


def answers_in(store: Path, where: str = "") -> int:
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        return connection.execute(f"SELECT count(*) FROM answers {where}").fetchone()[0]


@pytest.mark.slow
def test_kill_9_in_the_middle_of_run_then_run_again(folder):
    store = folder / "killed.sqlite"
    (folder / "killed.py").write_text(KILLED)
    for due, stored in (("[", 0), ("{", ROWS)):  # while it writes checklists, then while it scores
        assert start(folder, "killed", "killed.py", due).wait() == -signal.SIGKILL
        assert not (folder / "killed.jsonl").exists()
        assert stored < answers_in(store) < answers_in(folder / "whole.sqlite")
    paid = reads_in(store)
    assert 0 < paid

    assert start(folder, "killed").wait() in (0, 1)
    whole, again = (json.loads((folder / f"{run}.json").read_text())["receipt"] for run in ("whole", "killed"))
    assert again["asked"] == whole["asked"] - paid
    assert again["stored"] == whole["stored"] + paid
    assert answers_in(store) == answers_in(folder / "whole.sqlite")
    one, other = read_jsonl(folder / "whole.jsonl"), read_jsonl(folder / "killed.jsonl")
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
