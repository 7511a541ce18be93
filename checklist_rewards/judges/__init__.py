"""Judges: classes that answer checklist items about a target."""

from checklist_rewards.judges.base import Judge, Prices, Progress, Read, Receipt
from checklist_rewards.judges.budget import Budget
from checklist_rewards.judges.checked import CheckedJudge
from checklist_rewards.judges.logprob import EncoderJudge, LogprobJudge
from checklist_rewards.judges.panel import CascadeJudge, PanelJudge
from checklist_rewards.judges.questions import Example, FewShot
from checklist_rewards.judges.remote import RemoteJudge
from checklist_rewards.judges.thinking import ThinkingJudge
from checklist_rewards.judges.written import BatchJudge, QualityJudge, ReasonedJudge

__all__ = [
    "BatchJudge",
    "Budget",
    "CascadeJudge",
    "CheckedJudge",
    "EncoderJudge",
    "Example",
    "FewShot",
    "Judge",
    "LogprobJudge",
    "PanelJudge",
    "Prices",
    "Progress",
    "QualityJudge",
    "Read",
    "ReasonedJudge",
    "Receipt",
    "RemoteJudge",
    "ThinkingJudge",
]
