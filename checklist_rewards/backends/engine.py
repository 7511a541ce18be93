"""An inference engine as a value: a model, where it runs, and the engine arguments.

Creating an [`Engine`] loads nothing. At first use it resolves its model and builds its backend, once, and keeps both:
a judge or generator with an engine asks the Hub once, however often it is called. Equal engines of one process share a
backend.

    >>> Engine("org/judge", settings={"tensor_parallel_size": 2, "revision": "v2"}).load()  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from checklist_rewards.backends.base import Backend
from checklist_rewards.backends.servers import joined
from checklist_rewards.backends.shared import engine_identity, load_backend
from checklist_rewards.errors import ModelError


@dataclass(frozen=True)
class Engine:
    """A model and the engine that runs it.

    Args:
        model (`str`):
            "pocket", a folder, a Hub id, or with `base_url` the name of the model on the server.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`):
            Name of an engine, or a backend object, which is then used instead of loading `model`.
        base_url (`str` or sequence of `str`, *optional*):
            An OpenAI-compatible server, or the addresses of its replicas. Kept as one string, in which commas separate
            the addresses.
        settings (mapping, *optional*):
            Engine arguments under the engine's own names: those of `vllm.LLM`, of `from_pretrained` in transformers
            (and `max_batch_tokens`), or of a server (`concurrency`, `timeout` ...). `adapter` is the folder of a LoRA
            adapter, for vLLM and transformers.

    Raises:
        ModelError: If settings are combined with a backend object, or are not a mapping of names.
    """

    model: str = "pocket"
    backend: str | Backend = "auto"
    base_url: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", joined(self.base_url))
        if not isinstance(self.settings, Mapping) or not all(isinstance(name, str) for name in self.settings):
            raise ModelError(f"engine={self.settings!r:.80} is not allowed; it must be a mapping of settings by name.")
        if self.settings and not isinstance(self.backend, str):
            raise ModelError(
                f"engine={dict(self.settings)!r:.80} cannot be combined with a backend object; pass the settings to "
                "its constructor."
            )

    @classmethod
    def of(
        cls, model: str | Engine, backend: str | Backend = "auto", base_url: str | Sequence[str] | None = None
    ) -> Engine:
        """`model` itself if it is an engine, otherwise an engine with these settings."""
        return model if isinstance(model, Engine) else cls(model, backend, joined(base_url))

    def named(self, model: str) -> Engine:
        """This engine with another model."""
        return replace(self, model=model)

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process builds its own backend.
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    @cached_property
    def identity(self) -> str:
        """Hash of everything an answer depends on besides its prompt. It does not require the backend to be built.
        Raises [`ModelError`] if the model does not exist."""
        if isinstance(self.backend, str):
            return engine_identity(self.model, self.backend, self.base_url, self.settings)
        return self.backend.identity

    @property
    def unwrapped(self) -> Engine:
        """The engine behind wrappers that limit or count calls ([`Wrapper`]); this engine itself without one."""
        wrapped = getattr(self.backend, "engine", None)
        return wrapped.unwrapped if isinstance(wrapped, Engine) else self

    @property
    def backend_name(self) -> str | None:
        """Name of the backend, also of one behind wrappers. None for other backend objects."""
        backend = self.unwrapped.backend
        return backend if isinstance(backend, str) else getattr(backend, "name", None)

    def load(self) -> Backend:
        """The backend, built at the first call. Raises [`ModelError`] if it cannot be loaded."""
        return self._loaded

    @cached_property
    def _loaded(self) -> Backend:
        if isinstance(self.backend, str):
            return load_backend(self.model, self.backend, self.base_url, self.settings)  # type: ignore[arg-type]
        return self.backend
