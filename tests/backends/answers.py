"""How far two engines' answers are apart."""

import math
from collections.abc import Sequence

from checklist_rewards.backends import Answer, ReadGroup


def p_yes(answers: Sequence[Answer]) -> list[float]:
    out = []
    for read in answers:
        assert read.logprobs is not None, read.unanswered
        yes, no = map(math.exp, read.logprobs)
        out.append(yes / (yes + no))
    return out


def turned(answers: Sequence[Answer], groups: Sequence[ReadGroup]) -> list[Answer]:
    """The answers to groups that were read in reverse, in the order of the groups."""
    parts, rest = [], list(answers)
    for group in groups:
        parts += rest[len(rest) - len(group.tails) :]
        del rest[len(rest) - len(group.tails) :]
    return parts


def largest_difference(one, other) -> float:
    """Largest difference in P(yes)."""
    return max(abs(a - b) for a, b in zip(p_yes(one), p_yes(other), strict=True))
