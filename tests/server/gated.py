"""A reward server with workers whose engine waits for a file, in a process of its own.

python -m tests.server.gated WORKERS FILE    # prints its port; the engine answers once FILE exists
"""

import sys
from pathlib import Path

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Answer, Backend, Usage
from checklist_rewards.cli.serving import listening_on, run_server
from tests.rewards.integrations.test_queue import knows
from tests.waiting import until


class Gated(Backend):
    """Answers like the fake engine of the queue's tests, once its file exists."""

    identity, chunk_reads = "gated", 4096

    def __init__(self, gate: str):
        self.gate = Path(gate)

    def read(self, groups, labels):
        import math

        until(self.gate.exists)
        answers = [knows(group.prefix, tail) for group in groups for tail in group.tails]
        return [Answer((math.log(p), math.log(1 - p))) for p in answers], Usage()


def main(workers: int, gate: str) -> None:
    from checklist_rewards.server import build_app
    from checklist_rewards.server.scoring import LocalQueue
    from checklist_rewards.server.workers import AppSettings, Workers

    scorer = ChecklistScorer(backend=Gated(gate), store=False)
    with listening_on("127.0.0.1", 0, workers) as sockets:
        port = sockets[0].getsockname()[1]
        if workers == 1:
            print("port", port, flush=True)
            run_server(build_app(scorer, max_wait=0), sockets[0])
        else:
            settings = AppSettings.of(scorer, max_body=2**20, token=None)
            serving = Workers(settings, LocalQueue(scorer, max_wait=0), sockets)
            serving.run(lambda: print("port", port, *serving.pids, flush=True))


if __name__ == "__main__":
    from tests.server.gated import main as imported  # so that workers can import the engine's class

    imported(int(sys.argv[1]), sys.argv[2])
