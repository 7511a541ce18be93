"""Judges of shards. Actors import this module and nothing else of the tests, which would take them seconds."""

import math
import os
import signal
import time
from pathlib import Path

from checklist_rewards.backends import Answer, Backend, Usage


class Judge(Backend):
    """P(yes) depends on the text, and every read is noted in a file."""

    chunk_reads = 64

    def __init__(self, log: Path, identity: str = "judge"):
        self.log, self.identity = log, identity

    def read(self, groups, labels):
        answers = []
        for group in groups:
            yes = (1 + sum(group.prefix.encode()) % 97) / 99
            answers += [Answer((math.log(yes), math.log1p(-yes)))] * len(group.tails)
            with self.log.open("a") as file:
                file.write(f"{group.prefix.encode()!r}\n" * len(group.tails))
        return answers, Usage()

    def generate(self, prompts, sampling, arrived=None):
        raise AssertionError


class GatedJudge(Judge):
    """Notes its process with every read, ends at a text with DIE, and waits until `gate` exists if one is given."""

    def __init__(self, log: Path, gate: Path | None = None):
        super().__init__(log)
        self.gate = gate

    def read(self, groups, labels):
        for group in groups:
            if "DIE" in group.prefix:
                os.kill(os.getpid(), signal.SIGKILL)
        answers, usage = super().read(groups, labels)
        with self.log.with_suffix(".processes").open("a") as file:
            file.write(f"{os.getpid()}\n")
        if self.gate is not None:
            end = time.monotonic() + 300
            while not self.gate.exists():
                assert time.monotonic() < end
                time.sleep(0.01)
        return answers, usage
