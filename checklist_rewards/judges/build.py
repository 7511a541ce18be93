"""From settings to a judge: which one answers in which way, and what settings contradict each other.

Everything is refused here with one sentence, before a model is loaded: judges build their engine at the first read
that is not in the store.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from checklist_rewards.backends import Backend, Engine, is_encoder
from checklist_rewards.errors import ModelError, SampleError
from checklist_rewards.files.store import Store, open_store
from checklist_rewards.judges.base import Judge
from checklist_rewards.judges.batch import BatchJudge
from checklist_rewards.judges.budget import Budget
from checklist_rewards.judges.calibrated import CalibratedJudge
from checklist_rewards.judges.calibration import Calibration, read_alike
from checklist_rewards.judges.encoder import EncoderJudge
from checklist_rewards.judges.examples import DEFAULT_SHOTS, FewShot
from checklist_rewards.judges.logprob import DEFAULT_MASS_FLOOR, DEFAULT_PROMPT, LogprobJudge
from checklist_rewards.judges.quality import QualityJudge
from checklist_rewards.judges.reasoned import ReasonedJudge
from checklist_rewards.judges.remote import JUDGE_BACKENDS, REMOTE, RemoteJudge, RewardServer
from checklist_rewards.prompts import PromptTemplate

Mode = Literal["item", "batch", "quality"]
MODES: tuple[str, ...] = get_args(Mode)


def build_judge(
    model: str | Engine = "pocket",
    *,
    backend: str | Backend = "auto",
    base_url: str | None = None,
    engine: Mapping[str, Any] | None = None,
    mode: Mode = "item",
    use_logprobs: bool | None = None,
    capture_reasoning: bool = False,
    samples: int = 1,
    temperature: float | None = None,
    max_tokens: int | None = None,
    mass_floor: float = DEFAULT_MASS_FLOOR,
    prompt: str | Path | PromptTemplate | None = None,
    examples: str | Path | FewShot | None = None,
    shots: int | None = None,
    example_reasons: bool = False,
    calibration: str | Path | Calibration | None = None,
    budget: Budget | Mapping[str, Any] | None = None,
    store: bool | str | Path | Store = True,
) -> Judge:
    """The judge of these settings; [`ChecklistScorer`] has the same ones and says what they mean.

    Raises:
        ChecklistRewardsError: for any setting that cannot be used, or that contradicts another.
    """
    calibration = loaded_calibration(calibration)
    asked = engine_of(model, backend, base_url, engine)
    model, backend, base_url = asked.model, asked.backend, asked.base_url
    if isinstance(backend, str):
        one_of("backend", backend, JUDGE_BACKENDS)
    told: dict[str, Any] = {
        "mode": mode,
        "use_logprobs": use_logprobs,
        "capture_reasoning": capture_reasoning,
        "samples": samples,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "mass_floor": mass_floor,
        "prompt": prompt,
        "examples": examples,
        "shots": shots,
        "example_reasons": example_reasons,
        "budget": budget,
    }
    judge: Judge
    if is_remote(backend):
        leave(told, "the server (checklist-rewards serve)")
        if isinstance(backend, str) and base_url is None:
            raise ModelError(
                "backend='remote' needs base_url, the address of a reward server, such as 'http://localhost:8090'."
            )
        server = RewardServer(str(base_url), **asked.settings) if isinstance(backend, str) else backend
        judge = RemoteJudge(server, model=model)  # type: ignore[arg-type]
        return judge if calibration is None else CalibratedJudge(judge, calibration)
    if backend == "encoder" or (base_url is None and is_encoder(model)):
        given = {name: value for name, value in told.items() if (name, value) != ("use_logprobs", True)}
        leave(given, f"the cross-encoder {model}, which reads the target and one question, and no more")
        judge = EncoderJudge(asked, store=open_store(store))
        return judge if calibration is None else CalibratedJudge(judge, calibration)
    one_of("mode", mode, MODES)
    if use_logprobs is None:
        wrote = capture_reasoning or samples != 1 or temperature is not None or max_tokens is not None
        use_logprobs = mode == "item" and not wrote
    _agree(mode, use_logprobs, capture_reasoning, samples, temperature, max_tokens)
    few_shot = _few_shot(mode, examples, shots, example_reasons)
    if calibration is not None:
        _readable(calibration, mode, "logprobs" if use_logprobs else "votes")
    if budget is not None:
        asked = Budget.of(budget).limited(asked)
    kept = open_store(store)
    written: dict[str, Any] = {"prompt": prompt, "temperature": temperature, "max_tokens": max_tokens, "store": kept}
    if mode == "quality":
        judge = QualityJudge(asked, **written)
    elif mode == "batch":
        judge = BatchJudge(asked, reasoning=capture_reasoning, **written)
    elif use_logprobs:
        asked_by = DEFAULT_PROMPT if prompt is None else prompt
        judge = LogprobJudge(asked, prompt=asked_by, mass_floor=mass_floor, examples=few_shot, store=kept)
    else:
        judge = ReasonedJudge(asked, reasoning=capture_reasoning, samples=samples, examples=few_shot, **written)
    return judge if calibration is None else CalibratedJudge(judge, calibration)


def engine_of(
    model: str | Engine, backend: str | Backend, base_url: str | None, settings: Mapping[str, Any] | None
) -> Engine:
    """The engine of these arguments. Raises [`ModelError`] for settings that cannot be used."""
    if isinstance(model, Engine):
        return model
    return Engine(model, backend, base_url, {} if settings is None else settings)


def loaded_calibration(calibration: object) -> Calibration | None:
    """The calibration, read from its file if it is a path. Raises [`SampleError`] for anything else."""
    if isinstance(calibration, str | Path):
        return Calibration.load(calibration)
    if calibration is not None and not isinstance(calibration, Calibration):
        raise SampleError(f"calibration={calibration!r:.60} is not allowed; it is a Calibration or a file's path.")
    return calibration


def is_remote(backend: str | Backend) -> bool:
    """Whether a reward server answers."""
    return isinstance(backend, RewardServer) or backend == REMOTE


def leave(told: Mapping[str, Any], to: str) -> None:
    """Refuse settings that say how a judge is asked, where somebody else has that to say. Raises [`SampleError`]."""
    defaults = inspect.signature(build_judge).parameters
    for name, value in told.items():
        if value != defaults[name].default:
            raise SampleError(f"{name}={value!r} says who is asked and how; here that is left to {to}.")


def one_of(name: str, value: object, allowed: Any) -> None:
    """Refuse a value that is not allowed. Raises [`SampleError`]."""
    if value not in allowed:
        raise SampleError(f"{name}={value!r} is not known; allowed: {', '.join(map(repr, allowed))}.")


def _agree(
    mode: str,
    use_logprobs: bool,
    capture_reasoning: bool,
    samples: int,
    temperature: float | None,
    max_tokens: int | None,
) -> None:
    """Refuse settings that contradict each other."""
    one_of("use_logprobs", use_logprobs, (True, False))
    one_of("capture_reasoning", capture_reasoning, (True, False))
    for name, value in (("samples", samples), ("max_tokens", max_tokens)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise SampleError(f"{name}={value!r} is not allowed; it is a whole number from 1 up.")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 <= temperature < float("inf")):
        raise SampleError(f"temperature={temperature!r} is not allowed; it is a number from 0 up.")
    if use_logprobs and mode != "item":
        raise SampleError(f"use_logprobs=True needs mode='item', one token per question; mode is {mode!r}.")
    if samples > 1 and mode != "item":
        raise SampleError(f"samples={samples} needs mode='item', where every question is voted on; mode is {mode!r}.")
    if samples > 1 and temperature == 0:
        raise SampleError(f"samples={samples} needs a temperature above 0: at 0 all replies are the same.")
    if use_logprobs:
        for name, given in (
            ("capture_reasoning=True", capture_reasoning),
            (f"samples={samples}", samples > 1),
            (f"temperature={temperature}", temperature is not None),
            (f"max_tokens={max_tokens}", max_tokens is not None),
        ):
            if given:
                raise SampleError(
                    f"{name} and use_logprobs=True contradict each other: a label's probability is read without the "
                    "judge writing anything."
                )


def _few_shot(
    mode: str, examples: str | Path | FewShot | None, shots: int | None, example_reasons: bool
) -> FewShot | None:
    """The examples to show; None for none. Raises a [`ChecklistRewardsError`] for what cannot be shown."""
    one_of("example_reasons", example_reasons, (True, False))
    of_a_file = [f"shots={shots}"] * (shots is not None) + ["example_reasons=True"] * example_reasons
    if examples is not None and mode != "item":
        raise SampleError(f"examples need mode='item', where every question is put by itself; mode is {mode!r}.")
    if of_a_file and not isinstance(examples, str | Path):
        raise SampleError(f"{of_a_file[0]} says how a file of examples is shown; give examples=..., a path.")
    if examples is None or isinstance(examples, FewShot):
        return examples
    return FewShot.load(examples, DEFAULT_SHOTS if shots is None else shots, example_reasons)


def _readable(calibration: Calibration, mode: str, read_by: str) -> None:
    """Refuse a calibration of answers that are not read in this way."""
    if mode != "item":
        raise SampleError(f"calibration needs mode='item', which reads probabilities; mode is {mode!r}.")
    if not read_alike(calibration.read_by, read_by):
        raise SampleError(
            f"the calibration was fitted on answers read by {calibration.read_by}, and these are read by {read_by}; "
            "fit one on reads of this kind."
        )
