"""Shards on a cluster whose second node joins late, works, and ends: `python -m tests.datasets.raynodes FOLDER`."""

import os
import signal
import sys
import threading
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from checklist_rewards.datasets.ray import run_shards
from tests.datasets.test_ray import reads, rows, task, write_shards
from tests.waiting import until

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}


def processes(log: Path) -> set[int]:
    return {int(line.split()[0]) for line in reads(log)}


def main(folder: Path) -> None:
    source = write_shards(folder / "in", *(rows(20, start=20 * number) for number in range(4)))
    log, gate, results = folder / "log", folder / "gate", []
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    ray.init(cluster.address, logging_level="warning")
    work = threading.Thread(
        target=lambda: results.append(run_shards(task(log, gate=gate), source, folder / "out", actors=2))
    )
    work.start()
    first = until(lambda: processes(log))
    late = cluster.add_node(**NODE)
    until(lambda: len(processes(log)) == 2)  # the second actor has waited for the node
    [second] = processes(log) - first
    # The machine ends: a worker alone would finish the task that it is in.
    os.kill(late.all_processes["raylet"][0].process.pid, signal.SIGKILL)
    os.kill(second, signal.SIGKILL)
    gate.touch()
    work.join()
    [totals] = results
    texts = [line.split(" ", 1)[1] for line in reads(log)]
    print(totals.rows, totals.unanswered, len(set(texts)), len(texts))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
