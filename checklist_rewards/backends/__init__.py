"""One adapter per inference engine, with the two methods of [`Backend`].

[`load_backend`] builds an engine once per process and shares it between callers, so a generator and a scorer with the
same model share its weights.
"""

from __future__ import annotations

from checklist_rewards.backends.base import (
    Answer,
    Arrived,
    Backend,
    Messages,
    Progress,
    ReadGroup,
    Reply,
    Sampling,
    Usage,
    is_kept,
)
from checklist_rewards.backends.engine import (
    ANSWERING,
    DECISIONS,
    OPENAI,
    SERVED,
    BackendName,
    Engine,
    WritingBackend,
    choose_backend,
    close_engines,
    engine_identity,
    load_backend,
)
from checklist_rewards.backends.models import is_encoder, model_identity, pocket_dir, resolve_model
from checklist_rewards.scores.reasons import is_transient

__all__ = [
    "ANSWERING",
    "Arrived",
    "Backend",
    "DECISIONS",
    "OPENAI",
    "SERVED",
    "BackendName",
    "WritingBackend",
    "Engine",
    "Answer",
    "Messages",
    "Progress",
    "ReadGroup",
    "Usage",
    "Reply",
    "Sampling",
    "choose_backend",
    "close_engines",
    "engine_identity",
    "is_encoder",
    "is_kept",
    "is_transient",
    "load_backend",
    "model_identity",
    "pocket_dir",
    "resolve_model",
]
