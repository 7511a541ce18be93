"""Where the judge runs: on a server, or in the trainer's process.

A served judge (`vllm serve`) does not compete with the policy. A judge in the trainer's process shares the GPU with
the policy; with vLLM's sleep mode it frees the memory between two scorings.

`AsyncGRPOTrainer` computes rewards in a spawned child process that cannot see any GPU. A judge loaded there would run
on the CPU, so a served judge is required; the error is raised before the child starts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from multiprocessing.context import get_spawning_popen
from typing import Any

from checklist_rewards.backends import Engine, choose_backend
from checklist_rewards.backends.base import deadline
from checklist_rewards.backends.engine import SERVED
from checklist_rewards.errors import ModelError, NoServerError
from checklist_rewards.judges.base import engines_of, judges_of
from checklist_rewards.judges.remote import RemoteJudge
from checklist_rewards.rewards.reference import together

_ASYNC_WORKER = "trl.experimental.async_grpo.async_rollout_worker"


def check_child(name: str, judge: Any) -> None:
    """Raise [`ModelError`] if the reward `name` is being pickled for AsyncGRPOTrainer's child process and its judge is
    not served. Call it when a reward is pickled."""
    if _ASYNC_WORKER not in sys.modules or get_spawning_popen() is None:
        return
    model = in_process(judge)
    if model is not None:
        raise ModelError(
            f"{name}: AsyncGRPOTrainer computes rewards in a process without a GPU, where the judge {model!r} cannot "
            "run; serve the judge (vllm serve, or checklist-rewards serve) and set base_url."
        )


def in_process(judge: Any) -> str | None:
    """The judge's model if it runs in the calling process; None for a served judge or one without a known engine."""
    for engine in engines_of(judge):
        if isinstance(engine.backend, str):
            here = choose_backend(engine.model, engine.backend, engine.base_url) not in SERVED
        else:
            here = getattr(engine.backend, "in_process", False)
        if here:
            return engine.model
    return None


def keep_awake(judge: Any) -> AbstractContextManager[Any]:
    """Context manager that wakes the judge's engines for a scoring and puts them to sleep afterwards.

    It affects engines with `enable_sleep_mode=True`, which free their GPU memory for a colocated policy between two
    scorings.
    """
    with ExitStack() as stack:  # if an engine fails to load, those that are awake go back to sleep
        for engine in engines_of(judge):
            backend = engine.backend
            if engine.settings.get("enable_sleep_mode"):
                backend = engine.load()
            if hasattr(backend, "stay_awake"):
                stack.enter_context(backend.stay_awake())
        return stack.pop_all()


@contextmanager
def within(judge: Any, seconds: float | None) -> Iterator[None]:
    """Context manager that wakes the judge, and then gives it this many seconds; None for as long as it takes.

    Loading and waking the engines does not count.
    """
    with keep_awake(judge), together(judge):
        if seconds is not None:
            for start in _starts(judge):
                with suppress(NoServerError):  # raised again by the judge, unless it can do without this server
                    start()
        with deadline(seconds):
            yield


def load(judge: Any) -> None:
    """Load the judge's engines now instead of at the first read: load models and connect to servers.

    Raises:
        ModelError: If an engine cannot be used.
    """
    for start in _starts(judge):
        start()


def _starts(judge: Any) -> Iterator[Callable[[], object]]:
    """What loads the engines of a judge and of its inner judges, or connects to their reward servers."""
    for each in judges_of(judge):
        if isinstance(each, RemoteJudge):
            yield each.server.judge
        elif isinstance(engine := getattr(each, "engine", None), Engine):
            yield engine.unwrapped.load
