"""Replies of a model: sampled through the store, and read as values of a declared shape."""

from checklist_rewards.backends import Engine
from checklist_rewards.replies.ask import ask, extract_json
from checklist_rewards.replies.sampling import BACKEND_ERROR, sample_replies

__all__ = ["BACKEND_ERROR", "Engine", "ask", "extract_json", "sample_replies"]
