"""What ranks and trainers make of failed reads, and what ranks tell each other.

Reads that failed are repeated, left out, and finally the completion or its group gets None:

1. A read that failed for a transient reason (a timeout, a broken connection; after the backend's own retries) is
   repeated once ([`ChecklistScorer.score_batch`]).
2. An item that is still unanswered is left out of the completion's score.
3. A completion of which too little was answered (the scorer's `min_answered`) has no score. Depending on `on_failure`
   its reward is None, all rewards of its group are None, or training stops. `min_answered=1` requires every answer.

A trainer treats None as "no reward" only if this is its only reward, or if every reward is normalized separately
(`normalize_then_sum`). TRL's default sum counts None as 0, which would punish a completion for a judge failure.
`RLOOTrainer` and `AsyncGRPOTrainer` always sum. If the whole group gets None, all siblings get the same 0, which the
group's mean removes: only the other rewards decide. This is done in every trainer that is known to sum rewards, and on
request (`AsyncGRPOTrainer` cannot be detected). `SDPOTrainer` counts None as 0 even for a single reward, so there it
is done too. A group may be spread over several ranks, so failed groups are gathered.

The scale cannot be corrected. If a trainer divides by the standard deviation of the whole batch (`normalize_then_sum`,
`scale_rewards="batch"`, `normalize_advantages`), it is that of the rewards that exist: all advantages of a batch may
grow or shrink by the same factor, but none changes its sign or order. A completion whose siblings all failed has
nothing to be compared with, and an advantage of 0.

`OnlineDPOTrainer` requires a number as the reward and counts None as 0 even if this is the only reward. There, both
completions of a pair always get None together, so no failure decides which one wins. It still trains on such ties,
with the first completion as the chosen one; [`rewards.online_dpo`] has a trainer that skips them.

[`wait_for_all_ranks`] is a wait that no timeout of the trainer's process group ends. While one rank evaluates, the
others would go on to the next collective of the training step and wait there. NCCL and gloo stop a run whose
collective takes longer than the timeout of its group (`ddp_timeout`, 30 minutes by default). So the other ranks wait
in a group of their own, on the CPU, whose timeout is never reached.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeVar

OnFailure = Literal["row", "group", "raise"]
Item = TypeVar("Item")


def abstained(rewards: Sequence[float | None], groups: Sequence[Hashable], failed: set[Any]) -> list[float | None]:
    """`rewards` with None for every member of a group in which one is None, or which is in `failed`.

    >>> abstained([0.5, None, 0.9, 0.1], ["a", "a", "b", "b"], set())
    [None, None, 0.9, 0.1]
    """
    missing = failed | {group for reward, group in zip(rewards, groups, strict=True) if reward is None}
    return [None if group in missing else reward for reward, group in zip(rewards, groups, strict=True)]


def failed_on_any_rank(failed: set[str]) -> set[str]:
    """The groups that failed on any rank. All ranks must call this equally often."""
    return failed | set(from_other_ranks(sorted(failed)))


def from_other_ranks(items: Sequence[Item]) -> list[Item]:
    """The items of all other ranks. All ranks must call this equally often."""
    mine = rank()
    return [item for number, theirs in enumerate(gathered(list(items))) if number != mine for item in theirs]


def gathered(value: Item) -> list[Item]:
    """The values of all ranks, in the order of the ranks. All ranks must call this equally often."""
    if ranks() == 1:
        return [value]
    from accelerate.utils import gather_object

    return [theirs for _, theirs in sorted(gather_object([(rank(), value)]), key=lambda pair: pair[0])]


def ranks() -> int:
    """The number of processes that train together."""
    state = sys.modules.get("accelerate.state")  # a process that has not imported accelerate trains alone
    return state.PartialState().num_processes if state is not None and state.is_initialized() else 1


def rank() -> int:
    """The number of this process among [`ranks`], from 0."""
    if ranks() == 1:
        return 0
    from accelerate.state import PartialState

    return PartialState().process_index


_NEVER = timedelta(days=365)


def wait_for_all_ranks() -> None:
    """Wait until every rank has called this, however long it takes. If a rank ends instead, the others raise.

    All ranks must call it equally often. A process that trains alone does not wait.
    """
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        distributed.barrier(group=_patient_group(distributed.group.WORLD))


@functools.cache
def _patient_group(world: Any) -> Any:
    from torch import distributed

    return distributed.new_group(backend="gloo", timeout=_NEVER)
