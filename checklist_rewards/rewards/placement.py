"""Where the judge runs: on a server, in the trainer's process, or as the reference model of the trainer.

A served judge (`vllm serve`) does not compete with the policy. A judge in the trainer's process shares the GPU with
the policy; with vLLM's sleep mode it frees the memory between two scorings.

`AsyncGRPOTrainer` computes rewards in a spawned child process that cannot see any GPU. A judge loaded there would run
on the CPU, so a served judge is required; the error is raised before the child starts.

With `model="reference"`, the judge is in memory already. The reference is, in this order: the trainer's `ref_model`,
which exists with a KL term; the adapter "ref", which TRL makes of an adapter that is trained further with a KL term;
or the base weights under the policy's adapter. Each of them is frozen during training. A policy without an adapter
and without a KL term carries no frozen weights. [`bind_reference`] finds it at the first call of a reward, in the
trainer that made the call, and asks the judge the questions of the probe before the first reward.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from multiprocessing.context import get_spawning_popen
from typing import Any

from checklist_rewards.backends import Engine
from checklist_rewards.backends.base import deadline
from checklist_rewards.backends.reference import ReferenceBackend
from checklist_rewards.errors import ModelError, NoServerError
from checklist_rewards.judges.base import Judge
from checklist_rewards.rewards.ranks import gathered, rank, ranks

logger = logging.getLogger(__name__)

_ASYNC_WORKER = "trl.experimental.async_grpo.async_rollout_worker"
_TRL_ADAPTER = "ref"


def check_child(name: str, judge: Judge) -> None:
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


def in_process(judge: Judge) -> str | None:
    """The judge's model if it runs in the calling process; None for a served judge or one without a known engine."""
    return next((engine.model for engine in judge.engines if engine.in_process), None)


def is_placed(judge: Judge) -> bool:
    """Whether anything has to be done for a judge around a call of a reward: an engine sleeps between calls, or is an
    object with a state of its own, such as the reference of a trainer."""
    return any(engine.sleeps or not isinstance(engine.backend, str) for engine in judge.engines)


def keep_awake(judge: Judge) -> AbstractContextManager[Any]:
    """Context manager that wakes the engines of a judge that sleep between two scorings, and puts them to sleep
    afterwards."""
    with ExitStack() as stack:  # if an engine fails to load, those that are awake go back to sleep
        for engine in judge.engines:
            backend = engine.load() if engine.sleeps else engine.backend
            if not isinstance(backend, str):
                stack.enter_context(backend.stay_awake())
        return stack.pop_all()


def load(judge: Judge) -> None:
    """Load the judge's engines now instead of at the first read: load models and connect to servers.

    Raises:
        ModelError: If an engine cannot be used.
    """
    for part in judge.parts():
        part.load()


@contextmanager
def within(judges: Sequence[Judge], seconds: float | None) -> Iterator[None]:
    """Context manager for the reads of a call: the first judge is awake, all ranks read together with each judge, and
    the call has this many seconds; None for as long as it takes. Loading and waking do not count. Another judge wakes
    when it is asked, which is rare."""
    with ExitStack() as stack:
        for judge in judges[:1]:
            stack.enter_context(keep_awake(judge))
            for part in judge.parts() if seconds is not None else ():
                with suppress(NoServerError):  # raised again by the judge, unless it can do without this server
                    part.load()
        for judge in judges:
            stack.enter_context(together(judge))
        stack.enter_context(deadline(seconds))
        yield


def references_of(judge: Judge) -> list[ReferenceBackend]:
    """The backends of a judge and of its inner judges that read with a trainer's reference."""
    return [engine.backend for engine in judge.engines if isinstance(engine.backend, ReferenceBackend)]


def bind_reference(judge: Judge, trainer: Any) -> None:
    """Let a judge with `model="reference"` read with the reference of a trainer. Other judges stay as they are.

    All ranks must call it equally often; `trainer` is None if it is not known. Logs a warning if the reference cannot
    judge.

    Raises:
        ModelError: If the trainer has no frozen weights. The message says what to change.
    """
    for part in judge.parts():
        backend = None if part.engine is None else part.engine.backend
        if not isinstance(backend, ReferenceBackend):
            continue
        if trainer is None:
            if backend.bound is None:
                raise ModelError(
                    "model='reference' needs the trainer that calls the reward, and this one does not show itself; "
                    "pass the loaded model instead: model=Engine.of_model(model, tokenizer)."
                )
            continue
        model, adapter, forward = reference_of(trainer)
        if backend.bound is not None and backend.bound.model is model:
            continue
        from checklist_rewards.backends.live import LiveBackend
        from checklist_rewards.judges.thinking import ThinkingJudge

        spare = getattr(trainer, "processing_class", None)
        settings = {"adapter": adapter, "forward": forward, "spare": spare, **backend.settings}
        live = LiveBackend(model, gathered=gathered, rank=rank(), **settings)
        if live.sharded and isinstance(part, ThinkingJudge):
            raise ModelError(
                "thinking=... is not supported with model='reference' if the ranks hold parts of the weights (FSDP, "
                "ZeRO-3); use DDP, or leave thinking out."
            )
        backend.bind(live)
        _probe(part, backend)


def reference_of(trainer: Any) -> tuple[Any, str | None, Any]:
    """The reference of a trainer.

    Returns:
        The model, the adapter to read with (None for all off), and the module to call if another one wraps the model.

    Raises:
        ModelError: If the trainer has no frozen weights.
    """
    reference = getattr(trainer, "ref_model", None)
    if reference is not None:
        if getattr(trainer.args, "sync_ref_model", False):
            raise ModelError(
                "sync_ref_model=True changes the reference during training, so model='reference' would be another "
                "judge at every step; set it to False, or name a judge."
            )
        model, forward = _unwrapped(trainer, reference, reference)
        return model, None, forward
    model, forward = _unwrapped(trainer, trainer.model, getattr(trainer, "model_wrapped", trainer.model))
    adapters = getattr(model, "peft_config", None)
    if not adapters:
        keep = ", or keep the reference model (beta above 0)" if hasattr(trainer, "ref_model") else ""
        raise ModelError(
            f"model='reference' needs frozen weights, and this {type(trainer).__name__} has none: train an adapter "
            f"(peft_config=LoraConfig(...)){keep}, or name a judge."
        )
    return model, _TRL_ADAPTER if _TRL_ADAPTER in adapters else None, forward


def _unwrapped(trainer: Any, model: Any, wrapped: Any) -> tuple[Any, Any]:
    """The model itself, and the module around it through which FSDP 1 must be called."""
    collective = type(wrapped).__name__ == "FullyShardedDataParallel"
    return trainer.accelerator.unwrap_model(model), wrapped if collective else None


@contextmanager
def together(judge: Judge) -> Iterator[None]:
    """Context manager for the reads of all ranks with a reference whose weights are spread over them. All ranks must
    enter it equally often. For other judges, it does nothing."""
    with ExitStack() as stack:
        for backend in references_of(judge):
            if backend.bound is not None:
                stack.enter_context(backend.bound.together())
        yield


def is_collective(judge: Judge) -> bool:
    """Whether ranks must read together, once the reference is bound."""
    return ranks() > 1 and any(backend.bound is not None and backend.bound.sharded for backend in references_of(judge))


def _probe(judge: Judge, backend: ReferenceBackend) -> None:
    """Ask the reference the questions of the probe."""
    from checklist_rewards.judges.logprob import DEFAULT_PROMPT, LogprobJudge
    from checklist_rewards.judges.probe import probe
    from checklist_rewards.judges.thinking import ThinkingJudge

    prompt: Any = DEFAULT_PROMPT
    if isinstance(judge, LogprobJudge) and not isinstance(judge, ThinkingJudge):
        prompt = judge.prompt
    with backend.bound.together():
        report = probe(Engine(backend.model_name, backend.bound), prompt=prompt, replies=False)
    if report.refusal is not None and rank() == 0:
        logger.warning(
            "model='reference': %s Training continues with its answers; checklist-rewards probe shows more.",
            report.refusal,
        )
