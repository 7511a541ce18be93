"""A wait that no timeout of the trainer's process group ends.

While one rank evaluates, the others would go on to the next collective of the training step and wait there. NCCL and
gloo stop a run whose collective takes longer than the timeout of its group (`ddp_timeout`, 30 minutes by default). So
the other ranks wait in a group of their own, on the CPU, whose timeout is never reached.
"""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

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
