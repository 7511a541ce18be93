"""What becomes of a completion without a score: it abstains alone, its whole group does, or training stops.

A trainer takes None for "no reward" only where this is its only reward, or where every reward is normalized by itself
(`normalize_then_sum`). TRL's default sum counts a None as 0, which punishes a completion for its judge's failure.
If the whole group abstains, every sibling gets the same 0, which the group's mean takes out again: what is left is
what the other rewards say. A group may be spread over the ranks of a run, so the names of those that failed are
gathered.

`OnlineDPOTrainer` has no reward but a number, and takes None for 0 even where this reward is the only one; so there
the two completions of a pair always abstain together. Their tie then goes to the one sampled first, which is a coin
toss: no failure decides who wins, but the pair is trained on. Who would rather stop takes "raise".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, get_args

from accelerate.state import PartialState, is_initialized
from accelerate.utils import gather_object

OnFailure = Literal["row", "group", "raise"]
ON_FAILURE: tuple[str, ...] = get_args(OnFailure)


def abstained(rewards: Sequence[float | None], groups: Sequence[Hashable], failed: set[Any]) -> list[float | None]:
    """`rewards` with None for every member of a group in which one is None, or which is in `failed`.

    >>> abstained([0.5, None, 0.9, 0.1], ["a", "a", "b", "b"], set())
    [None, None, 0.9, 0.1]
    """
    missing = failed | {group for reward, group in zip(rewards, groups, strict=True) if reward is None}
    return [None if group in missing else reward for reward, group in zip(rewards, groups, strict=True)]


def failed_on_any_rank(failed: set[str]) -> set[str]:
    """The groups that failed here or on another rank. Every rank must call this as often as the others."""
    return set(gather_object(sorted(failed))) if ranks() > 1 else failed


def ranks() -> int:
    """How many processes train together."""
    return PartialState().num_processes if is_initialized() else 1


def are_pairs(prompts: Sequence[Any], hooks: bool, state: Any) -> bool:
    """Whether this is how `OnlineDPOTrainer` calls: every prompt twice, `[A, B, A, B]`, with its state and without
    hooks to log through."""
    half, odd = divmod(len(prompts), 2)
    return not hooks and state is not None and not odd and list(prompts[:half]) == list(prompts[half:])
