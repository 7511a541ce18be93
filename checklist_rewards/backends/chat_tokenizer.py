"""Loads the tokenizer of a model."""

from __future__ import annotations

from typing import Any

from transformers import AutoTokenizer

from checklist_rewards.backends.mistral import MistralChatTokenizer
from checklist_rewards.backends.tokens import ChatTokenizer


def load_chat_tokenizer(path: str, **settings: Any) -> ChatTokenizer:
    """Load the tokenizer of a model.

    Args:
        path (`str`): A folder or a Hub id.
        **settings: Arguments of `AutoTokenizer.from_pretrained`, such as `revision`.
    """
    tokenizer = AutoTokenizer.from_pretrained(path, **settings)
    if type(tokenizer).__name__ != "MistralCommonBackend":
        return ChatTokenizer(tokenizer)
    return MistralChatTokenizer(tokenizer)
