"""What only a Ray cluster shows: processes that end, work at the same time, are interrupted, and join late."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import checklist_rewards
from checklist_rewards.datasets.shards import HIDDEN
from tests.conftest import HANG, REPO
from tests.datasets.shardjudges import GatedJudge, Judge
from tests.datasets.test_ray import QUESTION, alone, outputs, reads, rows, scored, task, write_shards
from tests.jsonl import write_jsonl
from tests.ui.app.judgeserver import JudgeServer
from tests.waiting import until

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'checklist-rewards[ray]')")
pytestmark = pytest.mark.slow


def processes(log: Path) -> set[str]:
    """The processes that have read something."""
    return set(reads(log.with_suffix(".processes")))


@pytest.fixture
def run_shards(cluster):
    from checklist_rewards.datasets.ray import run_shards

    return run_shards


def test_a_row_that_ends_its_process_fails_alone(run_shards, tmp_path):
    poison = {"prompt": "Write.", "target": "DIE", "checklist": [QUESTION]}
    source = write_shards(tmp_path / "in", rows(4), [*rows(3, start=4), poison, *rows(1, start=7)])
    totals = run_shards(task(GatedJudge(tmp_path / "log")), source, tmp_path / "out", actors=2)
    assert totals.rows == 9 and totals.unanswered["row_failed"].rows == ["part-1:4"]
    assert [row["target"] for row in scored(tmp_path / "out") if row["checklist_score"] is None] == ["DIE"]
    assert not list((tmp_path / "out" / HIDDEN / "attempts").iterdir())
    assert str(os.getpid()) not in processes(tmp_path / "log")


def completions(name: str, count: int) -> list[dict]:
    questions = ["Is it fine (yes)?", "Is it red (no)?"]
    texts = (f"Text {number} of the {name} shard." for number in range(count))
    return [{"prompt": "Write.", "target": text, "checklist": questions} for text in texts]


def test_an_interrupted_command_keeps_its_shards_and_ends_its_actor(cluster, tmp_path):
    server = JudgeServer(most=4)  # it holds the reads of the second shard
    (tmp_path / "in").mkdir()
    for name in ("first", "second"):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", *completions(name, 2))
    options = ["--model", "valid", "--base-url", server.url, "--ray"]
    command = [sys.executable, "-m", "checklist_rewards.cli", "score", "in", "-o", "out", *options]
    paths = f"{Path(checklist_rewards.__file__).parents[1]}{os.pathsep}{REPO}"
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | {"RAY_ADDRESS": cluster.address, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        until(lambda: len(outputs(tmp_path / "out")) == 1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 130 and "Interrupted: finished shards are kept" in errors, errors
    until(lambda: ray.available_resources().get("CPU") == 2)
    server.kill()
    assert len(outputs(tmp_path / "out")) == 1 and server.sent == 4


def test_a_node_joins_late_and_its_raylet_and_its_actor_are_killed(cluster, run_shards, tmp_path):
    """The last test: the cluster counts the node for some time after it has ended."""
    source = write_shards(tmp_path / "in", *(rows(20, start=20 * number) for number in range(4)))
    log, gate, results = tmp_path / "log", tmp_path / "gate", []
    judge = GatedJudge(log, gate)
    work = threading.Thread(
        target=lambda: results.append(run_shards(task(judge), source, tmp_path / "out", actors=2, num_cpus=2))
    )
    work.start()
    first = until(lambda: processes(log))
    late = cluster.add_node(num_cpus=2, object_store_memory=100 * 2**20)
    until(lambda: len(processes(log)) == 2)  # the second actor has waited for the node
    [second] = processes(log) - first
    # The machine ends: a worker alone would finish the task that it is in.
    os.kill(late.all_processes["raylet"][0].process.pid, signal.SIGKILL)
    os.kill(int(second), signal.SIGKILL)
    gate.touch()
    work.join()
    [totals] = results
    assert (totals.rows, totals.unanswered) == (80, {})
    texts = reads(log)
    assert (len(set(texts)), len(texts)) == (80, 81)  # the read that was in flight is made twice
    assert scored(tmp_path / "out") == alone(task(Judge(tmp_path / "log2")).open(None), source)
