"""The client of the Decisions APIs: typed questions about one input, answered with probabilities and no text."""

from checklist_rewards.backends.decisions.backend import DecisionsBackend
from checklist_rewards.backends.decisions.question import DecisionQuestion

__all__ = ["DecisionQuestion", "DecisionsBackend"]
