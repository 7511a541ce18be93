"""Shards on a cluster whose second node joins late, works, and ends: `python -m tests.datasets.raynodes FOLDER`."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from checklist_rewards.datasets.ray import run_shards
from tests.datasets.test_ray import reads, rows, task, write_shards


def processes(log: Path) -> set[int]:
    return {int(line.split()[0]) for line in reads(log)}


def main(folder: Path) -> None:
    source = write_shards(folder / "in", *(rows(30, start=30 * number) for number in range(6)))
    log, results = folder / "log", []
    node = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    ray.init(cluster.address, logging_level="warning")
    work = threading.Thread(
        target=lambda: results.append(run_shards(task(log, slow=0.05), source, folder / "out", actors=2))
    )
    work.start()
    while len(reads(log)) < 10:
        time.sleep(0.05)
    assert len(processes(log)) == 1  # the second actor waits for a node
    late = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    while len(processes(log)) < 2:
        time.sleep(0.05)
    os.kill(late.all_processes["raylet"][0].process.pid, signal.SIGKILL)
    work.join()
    [totals] = results
    print(
        totals.rows, dict(totals.unanswered), len(set(line.split(" ", 1)[1] for line in reads(log))), len(reads(log))
    )
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
