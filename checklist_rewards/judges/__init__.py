"""Judges: classes that answer checklist items about a target."""

from checklist_rewards.judges.base import Judge, Prices, Progress, Read, Receipt
from checklist_rewards.judges.batch import BatchJudge
from checklist_rewards.judges.budget import Budget
from checklist_rewards.judges.cascade import CascadeJudge
from checklist_rewards.judges.checked import CheckedJudge
from checklist_rewards.judges.encoder import EncoderJudge
from checklist_rewards.judges.examples import Example, FewShot
from checklist_rewards.judges.logprob import LogprobJudge
from checklist_rewards.judges.panel import PanelJudge
from checklist_rewards.judges.quality import QualityJudge
from checklist_rewards.judges.reasoned import ReasonedJudge
from checklist_rewards.judges.remote import RemoteJudge
from checklist_rewards.judges.thinking import ThinkingJudge

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
