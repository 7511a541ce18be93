"""Where the judge runs: beside the policy, or for a reward that a trainer sends to another process.

A judge that is served (`vllm serve`, the default) is in nobody's way. One in the trainer's process shares its GPU with
the policy; with vLLM's sleep mode it gives the memory back between two scorings.

`AsyncGRPOTrainer` scores in a spawned child from which every GPU is hidden. A judge built in there would crawl along
on the CPU, so only a server will do; that is said before the child is started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from multiprocessing.context import get_spawning_popen
from typing import Any

from checklist_rewards.backends import Engine, choose_backend
from checklist_rewards.errors import ModelError

_ASYNC_WORKER = "trl.experimental.async_grpo.async_rollout_worker"
_IN_PROCESS = ("transformers", "vllm", "encoder")


def check_child(name: str, judge: Any) -> None:
    """Call it when the reward `name` is pickled: refuses to go into AsyncGRPOTrainer's child with a judge that is no
    server. Raises [`ModelError`]."""
    if _ASYNC_WORKER not in sys.modules or get_spawning_popen() is None:
        return
    model = in_process(judge)
    if model is not None:
        raise ModelError(
            f"{name}: the judge {model!r} runs in the process that asks it, and AsyncGRPOTrainer asks in one without "
            "a GPU; serve the judge (vllm serve, or checklist-rewards serve) and give the reward its base_url."
        )


def in_process(judge: Any) -> str | None:
    """The judge's model, if an engine of it runs in the process that asks it; None for a server, and for a judge that
    says nothing of its engine."""
    for engine in _engines(judge):
        if isinstance(engine.backend, str):
            kind = choose_backend(engine.model, engine.backend, engine.base_url)
        else:
            kind = type(engine.backend).__module__.rpartition(".")[2]
        if kind in _IN_PROCESS:
            return engine.model
    return None


def awake(judge: Any) -> AbstractContextManager[Any]:
    """Keeps the judge's engines awake for a scoring, where they are such as sleep: `VLLMBackend(model,
    enable_sleep_mode=True)` lends its GPU memory to a colocated policy in between."""
    stack = ExitStack()
    for engine in _engines(judge):
        backend = engine.backend
        if engine.settings.get("enable_sleep_mode"):
            backend = engine.load()
        if hasattr(backend, "stay_awake"):
            stack.enter_context(backend.stay_awake())
    return stack


def load(judge: Any) -> None:
    """Builds the judge's engines now, not at the first read: loads a model, asks a server whether it is there. Raises
    [`ModelError`] for one that cannot be used."""
    for engine in _engines(judge):
        engine.load()


def _engines(judge: Any) -> Iterator[Engine]:
    """Those of a judge, and of the judges that it asks: a panel's, or the one inside a calibration."""
    inner = [*getattr(judge, "judges", ()), *([judge.inner] if hasattr(judge, "inner") else [])]
    for one in inner:
        yield from _engines(one)
    engine = getattr(judge, "engine", None)
    if isinstance(engine, Engine):
        yield engine
