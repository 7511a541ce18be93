"""The only fake of the suite: an engine that answers at once, standing at the `Backend` seam."""

import math
from collections.abc import Callable, Sequence

from checklist_rewards.backends import Answer, Arrived, Backend, Messages, ReadGroup, Reply, Sampling, Usage
from checklist_rewards.errors import BackendError


def half(prefix: str, tail: str) -> float:
    return 0.5


class FakeBackend(Backend):
    """Answers P(yes) by a rule over the rendered text.

    Args:
        rule: (prefix, tail) -> P(yes), or None for a read that the engine cannot answer ("too_long").
        mass: P(yes) + P(no) of every answer.
        fails: (prefix, tail) -> True where the engine shall break on the chunk that holds this read.
        replies: texts that `generate` gives, one per call and prompt, the last one for ever.
    """

    def __init__(
        self,
        rule: Callable[[str, str], float | None] = half,
        *,
        mass: float = 1.0,
        fails: Callable[[str, str], bool] = lambda prefix, tail: False,
        replies: Sequence[str] = (),
        chunk_reads: int = 64,
        identity: str = "fake",
    ):
        self.rule, self.mass, self.fails, self.replies = rule, mass, fails, list(replies)
        self.chunk_reads, self.identity = chunk_reads, identity
        self.asked: list[tuple[str, str]] = []
        self.calls: list[list[ReadGroup]] = []

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        assert list(labels) == ["yes", "no"]
        self.calls.append(list(groups))
        pairs = [(group.prefix, tail) for group in groups for tail in group.tails]
        if any(self.fails(*pair) for pair in pairs):
            raise BackendError("the engine broke")
        self.asked += pairs
        return [self._read(*pair) for pair in pairs], Usage()

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        text = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return [[Reply(text, "stop")] * sampling.n for _ in prompts]

    def _read(self, prefix: str, tail: str) -> Answer:
        yes = self.rule(prefix, tail)
        if yes is None:
            return Answer(None, "too_long")
        return Answer(tuple(math.log(p * self.mass) if p > 0 else -math.inf for p in (yes, 1 - yes)))
