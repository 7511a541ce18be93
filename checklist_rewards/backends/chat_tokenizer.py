"""Loads the tokenizer of a model."""

from __future__ import annotations

from typing import Any

from checklist_rewards.backends.tokens import ChatTokenizer


def load_chat_tokenizer(path: str, **settings: Any) -> ChatTokenizer:
    """Load the tokenizer of a model.

    Args:
        path (`str`): A folder or a Hub id.
        **settings: Arguments of `AutoTokenizer.from_pretrained`, such as `revision`.

    Raises:
        ImportError: If transformers, or jinja2 for its chat templates, is not installed.
    """
    import jinja2  # noqa: F401
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, **settings)
    if type(tokenizer).__name__ != "MistralCommonBackend":
        return ChatTokenizer(tokenizer)
    from checklist_rewards.backends.mistral import MistralChatTokenizer

    return MistralChatTokenizer(tokenizer)
