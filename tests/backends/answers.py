"""How far two engines' answers are apart."""

import math
from collections.abc import Sequence
from itertools import chain

from checklist_rewards.backends import Answer, ReadResult


def p_yes(result: ReadResult | Sequence[Sequence[Answer]]) -> list[float]:
    reads = result.reads if isinstance(result, ReadResult) else result
    out = []
    for read in chain.from_iterable(reads):
        assert read.logprobs is not None, read.unanswered
        yes, no = map(math.exp, read.logprobs)
        out.append(yes / (yes + no))
    return out


def largest_difference(one, other) -> float:
    """Largest difference in P(yes)."""
    return max(abs(a - b) for a, b in zip(p_yes(one), p_yes(other), strict=True))
