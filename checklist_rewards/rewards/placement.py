"""Where the judge runs when a trainer sends its reward to another process.

`AsyncGRPOTrainer` scores in a spawned child from which every GPU is hidden. A judge built in there would crawl along
on the CPU, so only a server will do; that is said before the child is started.
"""

from __future__ import annotations

import sys
from multiprocessing.context import get_spawning_popen
from typing import Any

from checklist_rewards.backends import choose_backend
from checklist_rewards.errors import ModelError
from checklist_rewards.replies import Engine

_ASYNC_WORKER = "trl.experimental.async_grpo.async_rollout_worker"
_IN_PROCESS = ("transformers", "vllm")


def check_child(name: str, judge: Any) -> None:
    """Call it when the reward `name` is pickled: refuses to go into AsyncGRPOTrainer's child with a judge that is no
    server. Raises [`ModelError`]."""
    if _ASYNC_WORKER not in sys.modules or get_spawning_popen() is None:
        return
    model = in_process(judge)
    if model is not None:
        raise ModelError(
            f"{name}: the judge {model!r} runs in the process that asks it, and AsyncGRPOTrainer asks in one without "
            "a GPU; serve the judge (vllm serve) and give the reward its base_url."
        )


def in_process(judge: Any) -> str | None:
    """The judge's model, if its engine runs in the process that asks it; None for a server, and for a judge that says
    nothing of its engine."""
    engine = getattr(judge, "engine", None)
    if engine is None and hasattr(judge, "backend"):
        engine = Engine(judge.name, judge.backend, judge.base_url)
    if not isinstance(engine, Engine):
        return None
    if isinstance(engine.backend, str):
        kind = choose_backend(engine.model, engine.backend, engine.base_url)
    else:
        kind = type(engine.backend).__module__.rpartition(".")[2]
    return engine.model if kind in _IN_PROCESS else None
