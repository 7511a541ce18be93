"""A reward server whose engine waits for a file, in a process of its own.

python -m tests.server.gated FILE    # prints its port; the engine answers once FILE exists
"""

import sys
from pathlib import Path

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Answer, Backend, Usage
from checklist_rewards.cli.serving import listen, run_server
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


def main(gate: str) -> None:
    from checklist_rewards.server import build_app

    scorer = ChecklistScorer(backend=Gated(gate), store=False)
    with listen("127.0.0.1", 0) as listening:
        print("port", listening.getsockname()[1], flush=True)
        run_server(build_app(scorer, max_wait=0), listening)


if __name__ == "__main__":
    main(sys.argv[1])
