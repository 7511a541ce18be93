"""An engine for whole pipelines: replies by the shape that is asked for, reads by a rule."""

import json
import math
from collections.abc import Callable, Sequence

from checklist_rewards.backends import Answer, Arrived, Backend, Messages, ReadGroup, Reply, Sampling, Usage


class Scripted(Backend):
    """Replies `rule(text of the last message)`; every read says the last label with probability `last`.

    Args:
        rule: what is replied; what is no string goes out as JSON.
        last: probability of the last label asked for; the rest is the first one's.
    """

    chunk_reads = 64

    def __init__(
        self, rule: Callable[[str], object] = lambda text: "", last: float = 0.25, identity: str = "scripted"
    ):
        self.rule, self.last, self.identity = rule, last, identity
        self.prompts: list[str] = []
        self.samplings: list[Sampling] = []
        self.reads: list[tuple[str, str, tuple[str, ...]]] = []

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        texts = [messages[-1]["content"] for messages in prompts]
        self.prompts += texts
        self.samplings += [sampling] * len(texts)
        replies = [self.rule(text) for text in texts]
        return [[Reply(r if isinstance(r, str) else json.dumps(r), "stop")] * sampling.n for r in replies]

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        self.reads += [(group.prefix, tail, tuple(labels)) for group in groups for tail in group.tails]
        some = [1 - self.last, *[0.0] * (len(labels) - 2), self.last]
        logprobs = tuple(math.log(p) if p else -math.inf for p in some)
        return [Answer(logprobs) for group in groups for _ in group.tails], Usage()
