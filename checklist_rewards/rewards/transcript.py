"""A completion of several messages as one text: what a policy said, which tools it called, and what they gave."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.chat import completion_text


def transcript_text(completion: Any, *, keep_thinking: bool = False, opened: bool = False) -> str:
    """The whole completion, for a judge.

    Args:
        completion (`str` or list of messages): as a trainer hands it to a reward function.
        keep_thinking, opened (`bool`): as [`completion_text`] takes them, for every message of the assistant.

    Returns:
        `str`: "role: text" paragraphs in order, a tool call as "assistant calls name(arguments)". A string, or a
        single message without tool calls, is its text alone: what is judged does not depend on the format.

    Raises:
        SampleError: if the completion is neither.
    """
    said = completion_text(completion, keep_thinking=keep_thinking, opened=opened)  # refuses what is no completion
    if isinstance(completion, str) or (len(completion) == 1 and not completion[0].get("tool_calls")):
        return said
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
        # Arrow fills the arguments that a call does not have with None.
        shown = [f"{key}={json.dumps(value, default=str)}" for key, value in arguments.items() if value is not None]
    return f"{function.get('name')}({', '.join(shown)})"
