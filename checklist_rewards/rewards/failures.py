"""What becomes of reads that failed: asked again, left out, and at last the completion or its group abstains.

1. What an engine lost on the way (a timeout, a broken connection; after the retries of its own) is asked once more.
2. An item that has no answer even then is left out of the completion's score.
3. A completion of which too little was answered (the scorer's `min_answered`) has no score: it abstains, or its whole
   group does, or training stops. `min_answered=1` abstains at the first missing answer.

A trainer takes None for "no reward" only where this is its only reward, or where every reward is normalized by itself
(`normalize_then_sum`). TRL's default sum counts a None as 0, which punishes a completion for its judge's failure; so
does `RLOOTrainer`, which has no other way, and `AsyncGRPOTrainer`. If the whole group abstains, every sibling gets the
same 0, which the group's mean takes out again: what is left is what the other rewards say. That is done wherever the
trainer is seen to add rewards up, and on request (`AsyncGRPOTrainer` does not show it). A group may be spread over the
ranks of a run, so the names of those that failed are gathered.

What cannot be taken out is the scale. Where a trainer divides by the spread of the whole batch (`normalize_then_sum`,
`scale_rewards="batch"`, `normalize_advantages`), that spread is the one of the rewards that exist: the advantages of a
batch may grow or shrink together, and none changes its sign or its order. A completion whose siblings all failed has
nothing to be compared with, and no advantage.

`OnlineDPOTrainer` has no reward but a number, and takes None for 0 even where this reward is the only one; so there
the two completions of a pair always abstain together, and no failure decides who wins. But it then trains on their
tie, as on every tie, as if the first one had won: [`rewards.online_dpo`] has the trainer that does not.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, TypeVar, get_args

from accelerate.state import PartialState, is_initialized
from accelerate.utils import gather_object

from checklist_rewards.rewards.content import content_key

OnFailure = Literal["row", "group", "raise"]
ON_FAILURE: tuple[str, ...] = get_args(OnFailure)
Item = TypeVar("Item")


def abstained(rewards: Sequence[float | None], groups: Sequence[Hashable], failed: set[Any]) -> list[float | None]:
    """`rewards` with None for every member of a group in which one is None, or which is in `failed`.

    >>> abstained([0.5, None, 0.9, 0.1], ["a", "a", "b", "b"], set())
    [None, None, 0.9, 0.1]
    """
    missing = failed | {group for reward, group in zip(rewards, groups, strict=True) if reward is None}
    return [None if group in missing else reward for reward, group in zip(rewards, groups, strict=True)]


def failed_on_any_rank(failed: set[str]) -> set[str]:
    """The groups that failed here or on another rank. Every rank must call this as often as the others."""
    return failed | set(from_other_ranks(sorted(failed)))


def from_other_ranks(items: Sequence[Item]) -> list[Item]:
    """What all other ranks have. Every rank must call this as often as the others."""
    if ranks() == 1:
        return []
    mine = PartialState().process_index
    return [item for rank, theirs in gather_object([(mine, list(items))]) if rank != mine for item in theirs]


def ranks() -> int:
    """How many processes train together."""
    return PartialState().num_processes if is_initialized() else 1


def adds_up(hook: Any) -> bool:
    """Whether the trainer that this hook belongs to adds several rewards up as they are, a None as 0.

    `GRPOTrainer` and `RLOOTrainer` hand methods of their own to a reward. A weight of 0 adds a reward up all the same.
    """
    trainer = getattr(hook, "__self__", None)
    several = len(getattr(trainer, "reward_funcs", None) or ()) > 1
    return several and getattr(trainer, "multi_objective_aggregation", None) != "normalize_then_sum"


def are_pairs(prompts: Sequence[Any], hooks: bool, state: Any) -> bool:
    """Whether this is how `OnlineDPOTrainer` calls: every prompt twice, `[A, B, A, B]`, with its state and without
    hooks to log through."""
    half, odd = divmod(len(prompts), 2)
    if hooks or state is None or odd:
        return False
    keys = [content_key(prompt) for prompt in prompts]  # arrays have no equality of their own
    return keys[:half] == keys[half:]
