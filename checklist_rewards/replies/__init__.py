"""Sampling replies from a model, with a store, and parsing them as values of a given schema."""

from checklist_rewards.backends import Engine
from checklist_rewards.replies.ask import NoReply, ask, extract_json, sample_values, with_complaint
from checklist_rewards.replies.sampling import Candidate, sample_replies, target_of

__all__ = [
    "Candidate",
    "Engine",
    "NoReply",
    "ask",
    "extract_json",
    "sample_replies",
    "sample_values",
    "target_of",
    "with_complaint",
]
