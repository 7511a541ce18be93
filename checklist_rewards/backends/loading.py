"""Loads a judge in a training process, complete on every rank.

Trainers configure `from_pretrained` to shard models. With DeepSpeed ZeRO-3, it splits every model among the ranks.
With FSDP and `FSDP_CPU_RAM_EFFICIENT_LOADING`, it fills all ranks but the first with zeros and relies on FSDP to send
the weights later. The trainer never wraps the judge, so the judge would keep the empty or zero weights.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.integrations import deepspeed

logger = logging.getLogger(__name__)

_FSDP_LOADING = "FSDP_CPU_RAM_EFFICIENT_LOADING"


def load_whole(kind: Any, path: str, **options: Any) -> Any:
    """Call `kind.from_pretrained(path, **options)` with all weights on this rank, even if the trainer shards models.

    Args:
        kind: A class of transformers with `from_pretrained`, such as `AutoModelForCausalLM`.
        path (`str`): A folder or a Hub id.
        **options: Arguments of `from_pretrained`.
    """
    warn_about_copies()
    with _unsharded():
        return kind.from_pretrained(path, **options)


def warn_about_copies() -> None:
    """Warn, on the first rank only, if several training processes load the judge."""
    processes = int(os.environ.get("WORLD_SIZE") or 1)
    if processes > 1 and os.environ.get("RANK", "0") == "0":
        logger.warning(
            "each of the %d processes loads its own copy of the judge, in addition to the policy; to load it only "
            "once, serve it (vllm serve, or checklist-rewards serve) and pass its base_url.",
            processes,
        )


@contextmanager
def _unsharded() -> Iterator[None]:
    reference = deepspeed._hf_deepspeed_config_weak_ref
    config = None if reference is None else reference()
    efficient = os.environ.pop(_FSDP_LOADING, None)
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if config is not None:
            deepspeed.set_hf_deepspeed_config(config)
        if efficient is not None:
            os.environ[_FSDP_LOADING] = efficient
