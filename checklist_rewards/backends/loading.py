"""Loading a judge in a process that also trains: whole on every rank, and not without a warning.

Trainers shard the models that are loaded after them. Under DeepSpeed ZeRO-3 `from_pretrained` splits every model among
the ranks; under FSDP with `FSDP_CPU_RAM_EFFICIENT_LOADING` it fills all ranks but the first with zeros, for FSDP to
send the weights later. A judge is never wrapped by the trainer, so it would keep the empty or zero weights.
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
    """`kind.from_pretrained(path, **options)` with all weights on this rank, whatever the trainer shards.

    Args:
        kind: a class of transformers with `from_pretrained`, such as `AutoModelForCausalLM`.
        path (`str`): a folder or a Hub id.
        **options: of `from_pretrained`.
    """
    warn_about_copies()
    with _unsharded():
        return kind.from_pretrained(path, **options)


def warn_about_copies() -> None:
    """Warn, on the first rank, if each of several training processes loads the judge."""
    processes = int(os.environ.get("WORLD_SIZE") or 1)
    if processes > 1 and os.environ.get("RANK", "0") == "0":
        logger.warning(
            "each of the %d processes loads a judge of its own, beside the policy; to load it once, serve it (vllm "
            "serve, or checklist-rewards serve) and give its base_url.",
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
