"""What engines are asked in these tests, and how far their answers are apart."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from checklist_rewards.backends import Answer, ReadGroup

LABELS = ("yes", "no")
ONE = [ReadGroup(None, "Hello there. ", ("Is it short?",))]


def user(text: str) -> list[dict[str, str]]:
    """A prompt for a reply."""
    return [{"role": "user", "content": text}]


def reads_about(*texts: str) -> list[ReadGroup]:
    """One read about each text."""
    return [ReadGroup(None, f"{text}. ", ("Is it short?",)) for text in texts]


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


def near(one: Sequence[Answer], other: Sequence[Answer]) -> bool:
    """Whether all log-probabilities are those of other answers, but for rounding."""
    pairs = zip(one, other, strict=True)
    return all(
        abs(a - b) < 1e-4 for ours, theirs in pairs for a, b in zip(ours.logprobs, theirs.logprobs, strict=True)
    )


@contextmanager
def before_each_pass(model: Any, note: Callable[..., None]) -> Iterator[None]:
    """Calls `note` with the arguments of every forward pass of a model, which it may refuse by an error."""
    hook = model.register_forward_pre_hook(lambda module, args, given: note(**given), with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
