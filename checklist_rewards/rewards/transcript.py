"""Render a completion of several messages as one text: assistant messages, tool calls and tool results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.chat import completion_text


def transcript_text(completion: Any, *, keep_thinking: bool = False, opened: bool = False) -> str:
    """The whole completion as text for a judge.

    Args:
        completion (`str` or list of messages):
            Completion as a trainer passes it to a reward function.
        keep_thinking, opened (`bool`, *optional*, default to `False`):
            As in [`completion_text`], for every assistant message.

    Returns:
        `str`: Paragraphs "role: text" in order, with tool calls as "assistant calls name(arguments)". A string, or a
        single message without tool calls, is returned as its text only, so that the result does not depend on the
        dataset format.

    Raises:
        SampleError: If the completion is neither a string nor a list of messages.
    """
    last_text = completion_text(completion, keep_thinking=keep_thinking, opened=opened)  # raises for other values
    if isinstance(completion, str) or (len(completion) == 1 and not completion[0].get("tool_calls")):
        return last_text
    paragraphs: list[str] = []
    for message in completion:
        role = message.get("role")
        if role == "assistant":
            text = completion_text([message], keep_thinking=keep_thinking, opened=opened)
        else:
            text = completion_text([{**message, "role": "assistant"}], keep_thinking=True)
        name = f" {message['name']}" if role == "tool" and message.get("name") else ""
        paragraphs += [f"{role}{name}: {text}"] if text.strip() else []
        paragraphs += [f"{role} calls {_call(call)}" for call in message.get("tool_calls") or ()]
    return "\n\n".join(paragraphs)


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function") or call
    arguments = function.get("arguments")
    shown: Sequence[str] = ()
    if isinstance(arguments, str):
        return f"{function.get('name')}({arguments})"
    if isinstance(arguments, Mapping):
        # Arrow adds missing arguments as None.
        shown = [f"{key}={json.dumps(value, default=str)}" for key, value in arguments.items() if value is not None]
    return f"{function.get('name')}({', '.join(shown)})"
