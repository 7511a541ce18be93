"""Chat as plain text: what a judge or a generator is shown of a trainer's prompts and completions.

Both come as strings (standard format) or as lists of chat messages (conversational), whose content is a string or a
list of typed blocks. Of these one takes

- *input*: the last user message, or the whole prompt where it is a string;
- *history*: every other message of the prompt in order, system messages among them, as "role: text" paragraphs;
- *target*: the completion, or of several messages (tool use) the last one by the assistant that has any text.

Of typed blocks the text is joined with nothing in between, as chat templates do; images have no text. Thinking is no
part of a target unless it is asked for: a policy is judged by what it answers.
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
    """Input and history of a prompt.

    Args:
        prompt (`str` or list of messages): as the `prompt` column has it.

    Returns:
        `tuple`: the input, None where there is no user message; the history, None where there is none.

    Raises:
        SampleError: if the prompt is neither.
    """
    if isinstance(prompt, str):
        return prompt, None
    messages = _messages(prompt, "a prompt")
    asked = max((i for i, message in enumerate(messages) if message.get("role") == "user"), default=None)
    turns = [(message.get("role"), strip_thinking(_content(message))) for message in messages]
    history = "\n\n".join(f"{role}: {text}" for i, (role, text) in enumerate(turns) if text and i != asked)
    return None if asked is None else _content(messages[asked]), history or None


def completion_text(completion: Any, *, keep_thinking: bool = False, opened: bool = False) -> str:
    """The text of a completion that is judged; "" where the policy wrote none.

    Args:
        completion (`str` or list of messages): as a trainer hands it to a reward function. Earlier assistant messages,
            tool calls and tool results are left out.
        keep_thinking (`bool`, *optional*, defaults to `False`): leave thinking in. Thinking that a tokenizer has
            parsed into a field of its own comes back in front, as a `<think>` block.
        opened (`bool`, *optional*, defaults to `False`): the thinking block was opened before the completion began.

    Raises:
        SampleError: if the completion is neither.
    """
    if isinstance(completion, str):
        said = [completion]
    else:
        messages = [m for m in _messages(completion, "a completion") if m.get("role") == "assistant"]
        said = [_thoughts(m) + _content(m) if keep_thinking else _content(m) for m in messages]
    text = next((text for text in reversed(said) if text.strip()), "")
    return text if keep_thinking else strip_thinking(text, opened=opened)


def strip_thinking(text: str, *, opened: bool = False) -> str:
    """`text` without its `<think>…</think>` blocks and the white space after each.

    A block that is never closed reaches to the end: who only thought has answered nothing. A text that closes a block
    before it opens one began inside it, because its prompt had opened it; so everything up to there is thinking.

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
    """Whether the prompt's own text ends in `<think>`, so that the completion begins inside the block."""
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
    raise SampleError(f"{what} must be a string or a list of mappings, as chat formats have it; got {value!r:.80}.")
