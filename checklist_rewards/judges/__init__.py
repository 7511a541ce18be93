"""Judges: classes that answer checklist items about a target."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from checklist_rewards.backends.budget import Budget, Prices, Receipt
from checklist_rewards.judges.base import Ask, Judge, Progress
from checklist_rewards.judges.calibration import Member
from checklist_rewards.judges.labels import Labelled
from checklist_rewards.judges.logprob import EncoderJudge, LogprobJudge
from checklist_rewards.judges.panel import CascadeJudge, PanelJudge
from checklist_rewards.judges.questions import FewShot
from checklist_rewards.judges.remote import RemoteJudge

if TYPE_CHECKING:
    from checklist_rewards.judges.thinking import ThinkingJudge
    from checklist_rewards.judges.written import BatchJudge, QualityJudge, ReasonedJudge

_LATE = {"BatchJudge": "written", "QualityJudge": "written", "ReasonedJudge": "written", "ThinkingJudge": "thinking"}

__all__ = [
    "BatchJudge",
    "Budget",
    "CascadeJudge",
    "EncoderJudge",
    "FewShot",
    "Labelled",
    "Judge",
    "LogprobJudge",
    "Member",
    "PanelJudge",
    "Prices",
    "Progress",
    "QualityJudge",
    "Ask",
    "ReasonedJudge",
    "Receipt",
    "RemoteJudge",
    "ThinkingJudge",
]


def __getattr__(name: str) -> Any:
    # A judge is imported where it is built: a trainer's reward reads labels and needs no judge that writes.
    if name in _LATE:
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
