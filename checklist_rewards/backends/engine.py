"""Which engine answers, as a value: a model, where it runs, and the settings it is loaded with.

An [`Engine`] is cheap. Its model is looked up and its backend is built at the first use, once, and it keeps both: a
judge or generator that holds an engine asks the Hub once, however often it is called. Equal engines of one process
share a backend.

    >>> Engine("org/judge", settings={"tensor_parallel_size": 2, "revision": "v2"}).load()  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from checklist_rewards.errors import ModelError

if TYPE_CHECKING:
    from checklist_rewards.backends.base import Backend


@dataclass(frozen=True)
class Engine:
    """A model and the engine that runs it.

    Args:
        model (`str`): "pocket", a folder, a Hub id, or with `base_url` the name that the server knows it by.
        backend (`str` or [`Backend`], *optional*, defaults to `"auto"`): an engine's name, or a backend, which is then
            the one that answers, whatever `model` says.
        base_url (`str`, *optional*): an OpenAI-compatible server.
        settings (mapping, *optional*): what the engine is loaded with, by the names that it has for them: those of
            `vllm.LLM`, of `from_pretrained` in transformers (and `max_batch_tokens`), of a server (`concurrency`,
            `timeout` ...). `adapter` is a LoRA adapter for either of the first two.

    Raises:
        ModelError: if settings come with a backend that is built already, or are no mapping of names.
    """

    model: str = "pocket"
    backend: str | Backend = "auto"
    base_url: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.settings, Mapping) or not all(isinstance(name, str) for name in self.settings):
            raise ModelError(f"engine={self.settings!r:.80} is not allowed; it is a mapping of settings by name.")
        if self.settings and not isinstance(self.backend, str):
            raise ModelError(
                f"engine={dict(self.settings)!r:.80} and a backend that is already built: give the settings when you "
                "build it."
            )

    @classmethod
    def of(cls, model: str | Engine, backend: str | Backend = "auto", base_url: str | None = None) -> Engine:
        """An engine as it is, or the one of these settings."""
        return model if isinstance(model, Engine) else cls(model, backend, base_url)

    def named(self, model: str) -> Engine:
        """The same engine with another model."""
        return replace(self, model=model)

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process builds its own backend.
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    @cached_property
    def identity(self) -> str:
        """Hash of all that an answer depends on besides its prompt; known without building the backend. Raises
        [`ModelError`] if there is no such model."""
        from checklist_rewards.backends import engine_identity

        if isinstance(self.backend, str):
            return engine_identity(self.model, self.backend, self.base_url, self.settings)
        return self.backend.identity

    def load(self) -> Backend:
        """The backend itself, built at the first call. Raises [`ModelError`] if it cannot be."""
        return self._loaded

    @cached_property
    def _loaded(self) -> Backend:
        from checklist_rewards.backends import load_backend

        if isinstance(self.backend, str):
            return load_backend(self.model, self.backend, self.base_url, self.settings)  # type: ignore[arg-type]
        return self.backend
