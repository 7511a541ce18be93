"""Converts a trainer's prompts and completions to plain text for a judge or a generator.

Prompts and completions are strings (standard format) or lists of chat messages (conversational format). The content of
a message is a string or a list of typed blocks. Three texts are extracted:

- *input*: the last user message, or the whole prompt if it is a string;
- *history*: all other messages of the prompt in order, including system messages, as "role: text" paragraphs;
- *target*: the completion. If it has several messages (tool use), the last assistant message that contains text.

The texts of typed blocks are concatenated without a separator, as chat templates do; images are ignored. By default,
thinking is removed from a target: a policy is judged by its answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.errors import SampleError

_THINK, _END_THINK = "<think>", "</think>"
_BLOCK = re.compile(r"<think>.*?(?:</think>\s*|\Z)", re.DOTALL)
_PARSED_THINKING = ("reasoning_content", "thinking")


def prompt_text(prompt: Any) -> tuple[str | None, str | None]:
    """Extract the input and the history from a prompt.

    Args:
        prompt (`str` or list of messages): A value of the `prompt` column.

    Returns:
        `tuple`: The input, or None if the prompt has no user message; and the history, or None if it is empty.

    Raises:
        SampleError: If the prompt is neither a string nor a list of messages.
    """
    if isinstance(prompt, str):
        return prompt, None
    messages = _messages(prompt, "a prompt")
    last_user = max((i for i, message in enumerate(messages) if message.get("role") == "user"), default=None)
    turns = [(message.get("role"), strip_thinking(_content(message))) for message in messages]
    history = "\n\n".join(f"{role}: {text}" for i, (role, text) in enumerate(turns) if text and i != last_user)
    return None if last_user is None else _content(messages[last_user]), history or None


def completion_text(completion: Any, *, keep_thinking: bool = False, opened: bool = False) -> str:
    """Extract the text to judge from a completion.

    Args:
        completion (`str` or list of messages): As a trainer passes it to a reward function. Earlier assistant
            messages, tool calls and tool results are ignored.
        keep_thinking (`bool`, *optional*, defaults to `False`): Whether to keep thinking. Thinking that a tokenizer
            has parsed into a separate field is put in front, as a `<think>` block.
        opened (`bool`, *optional*, defaults to `False`): Whether the prompt has already opened the thinking block.

    Returns:
        `str`: The text; "" if the completion has none.

    Raises:
        SampleError: If the completion is neither a string nor a list of messages.
    """
    if isinstance(completion, str):
        texts = [completion]
    else:
        messages = [m for m in _messages(completion, "a completion") if m.get("role") == "assistant"]
        texts = [_thoughts(m) + _content(m) if keep_thinking else _content(m) for m in messages]
    text = next((text for text in reversed(texts) if text.strip()), "")
    return text if keep_thinking else strip_thinking(text, opened=opened)


def strip_thinking(text: str, *, opened: bool = False) -> str:
    """Remove `<think>…</think>` blocks and the white space after each.

    A block that is never closed extends to the end of the text: a completion with thinking only has no answer. If a
    text closes a block before it opens one, the prompt has opened the block; everything up to that point is thinking.

        >>> strip_thinking("<think>Two words?</think> Hello there.")
        'Hello there.'
        >>> strip_thinking("Two words?</think>Hello there.")
        'Hello there.'
        >>> strip_thinking("<think>Two words? Then")
        ''
    """
    before, closed, _ = text.partition(_END_THINK)
    if opened or (closed and _THINK not in before):
        text = _THINK + text
    return _BLOCK.sub("", text)


def opens_thinking(prompt: Any) -> bool:
    """Whether the prompt ends with `<think>`, so that the completion begins inside the block."""
    if isinstance(prompt, str):
        return prompt.rstrip().endswith(_THINK)
    last = _messages(prompt, "a prompt")[-1:]
    return any(message.get("role") == "assistant" and opens_thinking(_content(message)) for message in last)


def _thoughts(message: Mapping[str, Any]) -> str:
    thoughts = next((message[key] for key in _PARSED_THINKING if message.get(key)), None)
    return "" if thoughts is None else f"{_THINK}\n{thoughts}\n{_END_THINK}\n\n"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    return "".join(block.get("text") or "" for block in _messages(content, "the content of a message"))


def _messages(value: Any, what: str) -> Sequence[Mapping[str, Any]]:
    if isinstance(value, Sequence) and all(isinstance(message, Mapping) for message in value):
        return value
    raise SampleError(f"{what} must be a string or a list of mappings (chat messages); got {value!r:.80}.")
