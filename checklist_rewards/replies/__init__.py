"""Sampling replies from a model, with a store, and parsing them as values of a given schema."""

from checklist_rewards.backends import Engine
from checklist_rewards.replies.ask import NoReply, ask, extract_json, sample_values, with_complaint
from checklist_rewards.replies.sampling import sample_replies

__all__ = [
    "Engine",
    "NoReply",
    "ask",
    "extract_json",
    "sample_replies",
    "sample_values",
    "with_complaint",
]
