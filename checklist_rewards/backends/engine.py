"""An inference engine as a value: a model, where it runs, and the engine arguments.

Creating an [`Engine`] loads nothing. At first use it resolves its model and builds its backend, once, and keeps both:
a judge or generator with an engine asks the Hub once, however often it is called. Equal engines of one process share a
backend.

    >>> Engine("org/judge", settings={"tensor_parallel_size": 2, "revision": "v2"}).load()  # doctest: +SKIP
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

from checklist_rewards.backends.base import Answer, Arrived, Backend, Messages, ReadGroup, Reply, Sampling, Usage
from checklist_rewards.backends.budget import Bill, Budget
from checklist_rewards.backends.models import (
    NO_MODEL,
    POCKET,
    UNNAMED,
    decisions_identity,
    is_encoder,
    model_identity,
    pocket_dir,
    resolve_model,
    sees_images,
    served_identity,
)
from checklist_rewards.backends.packaged import PACKAGED, packaged_key
from checklist_rewards.backends.servers import joined, server_addresses
from checklist_rewards.errors import ModelError, SampleError, UnguardedScriptError
from checklist_rewards.images import NOT_FETCHED, SEEING, Image
from checklist_rewards.validation import import_extra, install, missing, unknown

logger = logging.getLogger(__name__)

WritingBackend = Literal["auto", "transformers", "vllm", "openai"]
"""The backends that can write texts."""
BackendName = Literal[WritingBackend, "decisions", "encoder"]
ANSWERING = ("decisions", "encoder", "remote")
"""The backends of judges that cannot write texts."""
OPENAI, DECISIONS, ENCODER = "openai", "decisions", "encoder"
UNLOADED_CHUNK = 4096
FEW_PROMPTS = 16
"""Up to this number of prompts, a CPU writes sooner with transformers. On two cores, start and checklists of 3, 10 and
30 prompts took 26, 32 and 59 s in transformers and 59, 53 and 65 s in vLLM. On another machine it was 46 and 76 s, and
88 and 99 s, for 3 and 10 prompts, and vLLM was faster from about 20 on."""
SERVED = (OPENAI, DECISIONS)
"""The backends that send requests to a server."""
BACKENDS: tuple[str, ...] = get_args(BackendName)

_engines: dict[tuple[str, str, str | None, str], tuple[str, Backend]] = {}
"""The engines of this process with their identities, by engine, place and settings."""
_lock = threading.Lock()


def choose_backend(model: str, backend: str = "auto", base_url: str | None = None) -> str:
    """The name of the engine that `backend` selects for `model`.

    `auto` selects a server if `base_url` is given, the encoder engine for a folder with a cross-encoder, vLLM if it is
    installed and the model is not the pocket model, and transformers otherwise. This holds on CPUs too: on two cores,
    vLLM answered 6 to 12 reads per second with `english`, and transformers 1 to 2; both load in under a minute. A
    packaged model in a script without `if __name__ == "__main__":`, where vLLM cannot start, runs in transformers.
    `openai` and `decisions` without `base_url` are OpenAI.

    Raises:
        ModelError: For a backend that is unknown, not installed, or that contradicts `base_url`.
    """
    if backend not in BACKENDS:
        if backend == "remote":
            raise ModelError(
                "backend='remote' is a reward server: it scores checklists and neither writes nor reads prompts. Name "
                "another model for that, with its own backend or base_url."
            )
        raise ModelError(unknown("backend", backend, BACKENDS))
    if model == UNNAMED:
        raise ModelError(NO_MODEL)
    if base_url is not None:
        if backend not in ("auto", *SERVED):
            raise ModelError(
                f"base_url={base_url!r} requires backend='openai' or 'decisions'; backend={backend!r} runs in this "
                "process."
            )
        return OPENAI if backend == "auto" else backend
    if backend in SERVED:
        return backend
    check_installed(model, backend)
    if backend == ENCODER:
        return backend
    if is_encoder(model):
        if backend == "auto":
            return ENCODER
        raise ModelError(f"{model} is a cross-encoder, which {backend} does not support; use backend='encoder'.")
    if backend == "auto":
        if missing("vllm"):
            return "transformers"
        is_pocket = model not in PACKAGED and resolve_model(model) == str(pocket_dir())
        return "transformers" if is_pocket else "vllm"
    return backend


def check_installed(model: str, backend: str = "auto") -> None:
    """Check that the libraries for running `model` with `backend` are installed, without importing them.

    Raises:
        ModelError: If one is missing. The message names the extra to install.
    """
    if backend in SERVED:
        return
    if backend == "vllm" and missing("vllm"):
        raise ModelError(f"backend='vllm' requires vLLM: {install('vllm')}.")
    if absent := missing("torch", "transformers"):
        if model in PACKAGED:
            packaged_key(model)  # names all that is missing
        raise ModelError(
            f"{model!r} without base_url runs in this process, which requires {' and '.join(absent)}: "
            f"{install('trl')}, or set base_url to a server."
        )


def engine_identity(
    model: str, backend: str = "auto", base_url: str | None = None, settings: Mapping[str, Any] | None = None
) -> str:
    """`Backend.identity` of the engine that [`load_backend`] would return, without building it: a run whose reads are
    all stored needs no engine. A served model is identified by its name and address only."""
    name = choose_backend(model, backend, base_url)
    if name == OPENAI:
        return served_identity(model, server_addresses(base_url))
    if name == DECISIONS:
        return decisions_identity(model, server_addresses(base_url))
    return model_identity(model, settings)


def load_backend(
    model: str,
    backend: BackendName = "auto",
    base_url: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    identity: str | None = None,
) -> Backend:
    """The backend of `model`, built on first use and shared by all callers in this process until the model's files
    change. Callers that have the earlier backend keep it.

    Args:
        model, backend, base_url, settings: As in [`Engine`].
        identity (`str`, *optional*): The identity that the backend must have, from [`engine_identity`].

    Raises:
        ModelError: If the model or the engine does not exist, if the engine does not accept an argument, or if the
            model's files have changed since `identity` was computed, or change during loading.
    """
    base_url = joined(base_url)
    name = choose_backend(model, backend, base_url)
    settings = dict(settings or {})
    place = joined(server_addresses(base_url)) if name in SERVED else None
    resolved = model if name in SERVED else resolve_model(model, settings.get("revision"))
    key = (name, resolved, place, json.dumps(settings, sort_keys=True, default=str))
    with _lock:
        current = engine_identity(model, name, base_url, settings)
        if identity not in (None, current):
            raise ModelError(
                f"the files of model {model!r} have changed since they were checked, and its answers would be stored "
                "as those of the earlier files; create a new scorer, or run the command again."
            )
        if key not in _engines or _engines[key][0] != current:
            _engines.pop(key, None)  # earlier weights are freed first, unless a caller uses them
            started = time.perf_counter()
            if name not in SERVED:
                logger.info("loading %s in %s", model, name)
            try:
                built = _build(name, model, base_url, settings)
            except UnguardedScriptError as error:
                if backend != "auto" or model not in PACKAGED or settings:
                    raise
                logger.warning("%s Until then %r runs in transformers, which is slower.", error, model)
                built = _build("transformers", model, None, {})
            if engine_identity(model, name, base_url, settings) != current:
                raise ModelError(f"the files of model {model!r} have changed while it was loaded; load it again.")
            if name not in SERVED:
                logger.info("loaded %s in %.0f s", model, time.perf_counter() - started)
            _engines[key] = current, built
        return _engines[key][1]


def close_engines() -> None:
    """End the processes of all engines that this process has started, and forget the engines: the next use loads one
    again, and the memory of a model is free as soon as nothing else has it, such as a scorer."""
    _engines.clear()
    if vllm := sys.modules.get("checklist_rewards.backends.vllm"):  # not imported for an engine that never ran
        vllm.close_all()


def _build(name: str, model: str, base_url: str | None, settings: Mapping[str, Any]) -> Backend:
    # Imported here only: torch and vllm take seconds to import, and most commands do not need them.
    if name == "transformers":
        from checklist_rewards.backends.transformers import TransformersBackend

        return TransformersBackend(model, **settings)
    if name == "vllm":
        from checklist_rewards.backends.vllm import VLLMBackend

        return VLLMBackend(model, **settings)
    if name == ENCODER:
        from checklist_rewards.backends.encoder import EncoderBackend

        return EncoderBackend(model, **settings)
    if name == DECISIONS:
        from checklist_rewards.backends.decisions.backend import DecisionsBackend

        return DecisionsBackend(model, base_url, **settings)
    from checklist_rewards.backends.openai import OpenAIBackend

    return OpenAIBackend(model, base_url, **settings)


@dataclass(frozen=True)
class Engine:
    """A model and the engine that runs it.

    Args:
        model (`str`, *optional*):
            "pocket", a folder, a Hub id, or with `base_url` the name of the model on the server. Only a label with a
            backend object; otherwise an engine without a model is refused when it is needed.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`):
            Name of an engine, or a backend object, which is then used instead of loading `model`.
        base_url (`str` or sequence of `str`, *optional*):
            An OpenAI-compatible server: its address, such as "http://localhost:8000/v1", or "openai" or "openrouter".
            Several addresses, also in one string with commas, are its replicas.
        settings (mapping, *optional*):
            Engine arguments under the engine's own names: those of `vllm.LLM`, of `from_pretrained` in transformers
            (and `max_batch_tokens`), or of a server (`concurrency`, `timeout` ...). `adapter` is the folder of a LoRA
            adapter, for vLLM and transformers.

    Raises:
        ModelError: If settings are combined with a backend object, or are not a mapping of names.
    """

    model: str = UNNAMED
    backend: str | Backend = "auto"
    base_url: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)  # may hold a token
    budget: Budget | None = None
    """What its calls may spend."""
    bill: Bill | None = field(default=None, compare=False, repr=False)
    """What its replies have cost."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", joined(self.base_url))
        if self.model == UNNAMED and not isinstance(self.backend, str):
            object.__setattr__(self, "model", POCKET)  # a label: the order of options depends on it, so it stays
        if not isinstance(self.settings, Mapping) or not all(isinstance(name, str) for name in self.settings):
            raise ModelError(
                f"engine_args={self.settings!r:.80} is not allowed; it must be a mapping of settings by name."
            )
        object.__setattr__(self, "settings", dict(self.settings))  # the caller's may change before it is loaded
        if self.settings and not isinstance(self.backend, str):
            raise ModelError(
                f"engine_args={list(self.settings)} cannot be combined with a backend object; pass the "
                "settings to its constructor."
            )

    @classmethod
    def of(
        cls,
        model: str | Engine | Backend,
        backend: str | Backend = "auto",
        base_url: str | Sequence[str] | None = None,
    ) -> Engine:
        """`model` itself if it is an engine, the engine of a backend object, otherwise one with these settings."""
        if isinstance(model, Engine):
            return model
        return cls(backend=model) if isinstance(model, Backend) else cls(model, backend, joined(base_url))

    @classmethod
    def of_model(cls, model: Any, tokenizer: Any = None, *, adapter: str | None = None, **settings: Any) -> Engine:
        """The engine of a causal language model that is in memory, which may be in training: for trainers other than
        TRL's, and for a judge that another program has loaded. Reads leave the model as it was.

            >>> reward = ChecklistReward(model=Engine.of_model(policy, tokenizer))  # doctest: +SKIP

        Args:
            model (`PreTrainedModel` or `PeftModel`): The model. The weights that are read must not change.
            tokenizer (`PreTrainedTokenizerBase`, *optional*): Defaults to that of the files that the model was loaded
                from.
            adapter (`str`, *optional*): Name of the adapter to read with. By default, all adapters are switched off
                during a read, so the base weights answer.
            **settings: `max_batch_tokens`, as for the transformers engine.

        Raises:
            ModelError: If the weights change during training, or if there is no tokenizer.
        """
        from checklist_rewards.backends.live import LiveBackend

        backend = LiveBackend(model, tokenizer, adapter=adapter, **settings)
        return cls(backend.model_name, backend)

    @property
    def name(self) -> str:
        """The name of the model; for the reference of a trainer, that of its weights as soon as they are known."""
        return self.model if isinstance(self.backend, str) else self.backend.model_name or self.model

    def named(self, model: str) -> Engine:
        """This engine with another model."""
        return replace(self, model=model)

    def overridden(self, by: Engine) -> Engine:
        """This engine with the backend and the settings of another one, where that has any."""
        if not isinstance(by.backend, str):
            return by.named(self.model)
        backend = self.backend if by.backend == "auto" else by.backend
        return replace(self, backend=backend, settings={**self.settings, **by.settings})

    @property
    def is_plain(self) -> bool:
        """Whether model, backend and base_url are all there is."""
        return not self.settings and self.budget is None and self.bill is None

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process builds its own backend.
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    def within(self, budget: Budget | None = None, bill: Bill | None = None) -> Engine:
        """This engine with a budget or a bill. Both share the loaded backend."""
        again = replace(self, budget=budget or self.budget, bill=bill or self.bill)
        again.__dict__["_known"] = self._known
        return again

    @cached_property
    def _known(self) -> dict[str, Any]:
        """The identity and the backend, as soon as they are known."""
        return {}

    @property
    def identity(self) -> str:
        """Hash of everything an answer depends on besides its prompt. It does not require the backend to be built.
        Raises [`ModelError`] if the model does not exist."""
        if "identity" not in self._known:
            backend = self.backend
            self._known["identity"] = (
                engine_identity(self.model, backend, self.base_url, self.settings)
                if isinstance(backend, str)
                else backend.identity
            )
        return self._known["identity"]

    @property
    def backend_name(self) -> str | None:
        """Name of the backend. None for backend objects without one."""
        return self.backend if isinstance(self.backend, str) else self.backend.name

    @property
    def is_encoder(self) -> bool:
        """Whether the model is a cross-encoder, by its backend or its folder. Nothing is loaded."""
        return self.backend_name == ENCODER or (self.base_url is None and is_encoder(self.model))

    @property
    def in_process(self) -> bool:
        """Whether it runs in the calling process instead of on a server. Nothing is loaded."""
        if isinstance(self.backend, str):
            return choose_backend(self.model, self.backend, self.base_url) not in SERVED
        return self.backend.in_process

    @property
    def sees(self) -> bool:
        """Whether prompts may contain images. Nothing is loaded. What a server has is not known, so it counts as one
        that sees; it refuses images otherwise."""
        if not isinstance(self.backend, str):
            return self.backend.sees
        name = choose_backend(self.model, self.backend, self.base_url)
        if name in (*SERVED, ENCODER):
            return name in SERVED
        if "sees" not in self._known:
            self._known["sees"] = sees_images(self.model, self.settings.get("revision"))
        return self._known["sees"]

    def check_images(self, images: Iterable[Image], what: str, role: str = "model") -> None:
        """Refuse images that the engine cannot take, without loading it. Raises [`SampleError`] if it reads text only,
        or runs in this process and an image is an address. The error begins with what has the images, such as
        "rows.jsonl, line 3: the input", and calls the engine by its role."""
        for image in images:
            if not self.sees:
                raise SampleError(f"{what} has an image, but the {role} {self.name!r} reads text only; {SEEING}.")
            if image.size is None and self.in_process:
                raise SampleError(f"{what} has the image {image.source}, {NOT_FETCHED}.")

    @property
    def sleeps(self) -> bool:
        """Whether it frees its GPU memory between two scorings (vLLM's sleep mode)."""
        return bool(self.settings.get("enable_sleep_mode"))

    @property
    def chunk_reads(self) -> int:
        """Most reads of a call. An engine whose budget is spent is not loaded to find out."""
        if self.budget is not None and self.budget.is_spent:
            return UNLOADED_CHUNK
        return self.load().chunk_reads

    def expect(self, prompts: int) -> None:
        """Choose transformers instead of vLLM where only so many prompts will be written on a CPU, nothing is loaded
        yet, and the user has chosen neither engine nor settings."""
        free = self.backend == "auto" and not self.settings and not self.is_loaded
        if free and prompts <= FEW_PROMPTS and choose_backend(self.model, "auto", self.base_url) == "vllm":
            [torch] = import_extra("torch")
            if not torch.accelerator.is_available():
                self._known["name"] = "transformers"

    @property
    def is_loaded(self) -> bool:
        """Whether the backend is built."""
        return not isinstance(self.backend, str) or "backend" in self._known

    def load(self) -> Backend:
        """The backend, built at the first call. Raises [`ModelError`] if it cannot be loaded."""
        if not isinstance(self.backend, str):
            return self.backend
        if "backend" not in self._known:
            name: Any = self._known.get("name", self.backend)
            self._known["backend"] = load_backend(
                self.model, name, self.base_url, self.settings, identity=self.identity
            )
        return self._known["backend"]

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """As [`Backend.read`], within the budget."""
        if self.budget is None:
            return self.load().read(groups, labels)
        return self.budget.read(self, groups, labels)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """As [`Backend.generate`], within the budget. The cost is added to the bill, also that of replies received
        before the engine failed."""
        if self.budget is None or not self.budget.is_spent:
            self.load()  # before the timer starts, so that loading does not count
        started = time.perf_counter()
        received: dict[int, list[Reply]] = {}

        def note(place: int, replies: list[Reply]) -> None:
            received[place] = replies
            if arrived is not None:
                arrived(place, replies)

        try:
            if self.budget is None:
                replies = self.load().generate(prompts, sampling, note)
            else:
                replies = self.budget.generate(self, prompts, sampling, note)
            received.update(enumerate(replies))
            return replies
        finally:
            if self.bill is not None:
                self.bill.add_replies(self.model, prompts, received.values(), time.perf_counter() - started)
