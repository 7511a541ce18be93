"""The identity of a judge: a hash of everything on which its verdicts depend, for servers and their clients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from checklist_rewards.backends import Engine
from checklist_rewards.checklists import key_of
from checklist_rewards.judges.calibration import Member
from checklist_rewards.prompts import PromptTemplate

_WITHOUT_EFFECT = frozenset({"store", "budget"})
"""Attributes of judges that change no verdict."""


def judge_identity(judge: Any, *settings: Any) -> str:
    """Hash of everything on which the verdicts of a judge depend: models, prompts and settings, those of its inner
    judges, and the given settings. No model is loaded, and what a judge keeps once it is used (cached properties) does
    not count. Of a prompt and of examples, the texts count, not their paths, so a judge that is installed elsewhere
    keeps its identity. A judge of another author is known by its class and name."""
    return key_of("judge-1", json.dumps(_content_of([judge, *settings]), sort_keys=True)).hex()


def _content_of(value: Any) -> Any:
    """A judge or a setting as JSON."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Engine):
        return [value.name, value.identity]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, PromptTemplate):
        return ["PromptTemplate", value.kind, value.system, list(value.sections)]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): _content_of(part) for name, part in value.items()}
    if isinstance(value, Member):
        inner = _content_of(value.judge)
        if value.calibration is None:
            return inner
        # As the judge that once applied it, so that the hash stays.
        return ["CalibratedJudge", {"inner": inner, "calibration": _content_of(value.calibration)}]
    if isinstance(value, list | tuple):
        return [_content_of(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_content_of(part)) for part in value)
    kind = type(value)
    if not kind.__module__.startswith("checklist_rewards."):
        name = getattr(value, "__qualname__", getattr(value, "name", ""))
        return [kind.__qualname__, name if isinstance(name, str) else ""]
    names = (
        [one.name for one in fields(value) if one.compare] if hasattr(kind, "__dataclass_fields__") else vars(value)
    )
    content = {}
    for name in names:
        is_computed = name.startswith("_") or isinstance(getattr(kind, name, None), cached_property)
        if not is_computed and name not in _WITHOUT_EFFECT:
            content[name] = _content_of(getattr(value, name))
    return [kind.__qualname__, content]
