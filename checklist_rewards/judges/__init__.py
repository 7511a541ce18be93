"""How a question is put to a judge and its answer read."""

from checklist_rewards.judges.base import Judge, Progress, Read, Receipt
from checklist_rewards.judges.logprob import LogprobJudge

__all__ = ["Judge", "LogprobJudge", "Progress", "Read", "Receipt"]
