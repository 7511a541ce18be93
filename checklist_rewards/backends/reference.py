"""The reference model of a trainer as a judge: its place in the settings, before the trainer is known.

A policy that is trained with an adapter carries a frozen judge, its base weights, and a run with a KL term carries its
reference model. `model="reference"` reads with these weights, so no second model is loaded. Which weights they are
shows at the first call of the reward (`rewards/placement.py`); until then, the engine is a [`ReferenceBackend`].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checklist_rewards.backends.base import Answer, Arrived, Backend, Messages, ReadGroup, Reply, Sampling, Usage
from checklist_rewards.backends.models import NO_TRAINER, REFERENCE, check_settings
from checklist_rewards.errors import ModelError


class ReferenceBackend(Backend):
    """A backend whose model is the reference of the trainer that calls the reward.

    Args:
        **settings: `max_batch_tokens`, as for the transformers engine.

    Raises:
        ModelError: For another setting.
    """

    name = REFERENCE
    chunk_reads = 512
    in_process = True
    continues = True

    def __init__(self, **settings: Any):
        check_settings("model='reference'", settings, ("max_batch_tokens",))
        self.settings = settings
        self.bound: Any = None
        """The engine of the reference, a [`LiveBackend`]; None before the first call of the reward."""

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings, "bound": None}

    def bind(self, engine: Any) -> None:
        """Read with this engine. Raises [`ModelError`] if an engine with other weights has answered before."""
        if self.bound is not None and self.bound.identity != engine.identity:
            raise ModelError(
                f"this reward has read with the reference {self.bound.model_name!r}, and the trainer's reference is "
                f"{engine.model_name!r} with other weights; create a reward for each trainer."
            )
        self.bound = engine

    @property
    def model_name(self) -> str:  # type: ignore[override]
        """The name of the reference's weights; "reference" before they are known."""
        return REFERENCE if self.bound is None else self.bound.model_name

    @property
    def identity(self) -> str:  # type: ignore[override]
        """The identity of the weights. Raises [`ModelError`] before they are known."""
        return self._engine.identity

    @property
    def sees(self) -> bool:  # type: ignore[override]
        """Whether the reference takes images; True before it is known."""
        return self.bound is None or self.bound.sees

    @property
    def tokens(self) -> Any:
        """The tokenizer of the reference."""
        return self._engine.tokens

    @property
    def limit(self) -> int | None:  # type: ignore[override]
        """The context of the reference in tokens."""
        return self._engine.limit

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> tuple[list[Answer], Usage]:
        """Read with the reference."""
        return self._engine.read(groups, labels)

    def generate(
        self, prompts: Sequence[Messages], sampling: Sampling, arrived: Arrived | None = None
    ) -> list[list[Reply]]:
        """Write with the reference."""
        return self._engine.generate(prompts, sampling, arrived)

    @property
    def _engine(self) -> Backend:
        if self.bound is None:
            raise ModelError(NO_TRAINER)
        return self.bound
