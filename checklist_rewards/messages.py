"""Chat messages of trainers, files and servers: the speaker, the text, the thought and the tool calls of each.

Messages come in the shapes of several APIs: OpenAI (parts, refusals, `tool_calls` and the older `function_call`),
Mistral and Gemini (thoughts as parts), ShareGPT (`from`, `value`), and under many names of roles. This module is the
only one that reads these shapes. A judge reads text only, so media are refused unless the user ignores them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Literal, get_args

from checklist_rewards.errors import SampleError
from checklist_rewards.markers import LIKE_THOUGHTS

Images = Literal["refuse", "ignore"]
IMAGES: tuple[str, ...] = get_args(Images)
"""What to do with images, audio and videos in messages: refuse them, or judge the text alone."""

SPEAKERS: Mapping[str, str] = {
    name: speaker
    for speaker, names in {
        "user": "user human prompter",
        "assistant": "assistant model chatbot bot ai gpt agent",
        "system": "system developer platform root control context document documents available_tools latest_reminder",
        "tool": "tool tools function functions function_call function_response tool_call tool_response tool_result "
        "observation environment ipython",
    }.items()
    for name in names.split()
}
"""The roles of messages, in lower case, and who speaks in each: user, assistant, system or tool."""

SAYING = (
    "content", "tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "thought", "thoughts"
)  # fmt: skip
"""Fields of a chat message with what it says."""
THOUGHT_KEYS = SAYING[3:]
"""Fields of a message in which tokenizers and servers put a thought that they have parsed."""
_TEXT_BLOCKS = ("text", "input_text", "output_text")
_MEDIA = re.compile(r"(?:input_)?(?:image|audio|video|file)s?(?:_url|_file|_id|_data)?")


def speaker(message: Mapping[str, Any]) -> str | None:
    """Who a message is from: "user", "assistant", "system" or "tool"; None for a role that is not in `SPEAKERS`."""
    return SPEAKERS.get(str(message.get("role")).lower())


def chat_messages(value: Any) -> Any:
    """Messages as trainers and policies take them: those of ShareGPT (`from`, `value`) with a role and content, and
    the user and the assistant by these names. Other values are unchanged."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(m, Mapping) for m in value):
        return value
    messages = [_with_role(message) for message in value]
    return [{**m, "role": who} if (who := speaker(m)) in ("user", "assistant") else dict(m) for m in messages]


def calls_of(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The tool calls of a message; older APIs have a single one, as `function_call`."""
    one = message.get("function_call")
    return message.get("tool_calls") or ([one] if one else [])


def _is_call(call: Any) -> bool:
    return isinstance(call, Mapping) and isinstance(call.get("function") or {}, Mapping)


def shown_call(call: Mapping[str, Any]) -> str:
    """A tool call as text: `name(arguments)`."""
    function = call.get("function") or call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        return f"{function.get('name')}({arguments})"
    shown: Sequence[str] = ()
    if isinstance(arguments, Mapping):
        # Arrow adds missing arguments as None.
        shown = [f"{key}={json.dumps(value, default=str)}" for key, value in arguments.items() if value is not None]
    return f"{function.get('name')}({', '.join(shown)})"


def parsed_thought(message: Mapping[str, Any]) -> str | None:
    """The thought that a tokenizer or a server has parsed out of a message."""
    parsed = next((message[key] for key in THOUGHT_KEYS if message.get(key)), None)
    if parsed is None and isinstance(message.get("content"), Sequence) and not isinstance(message["content"], str):
        blocks = [b for b in list_of_messages(message["content"], "the content of a message") if _is_thought(b)]
        return "\n".join(map(_thought_of, blocks)) if blocks else None
    return None if parsed is None else _thought_of(parsed)


def _is_thought(block: Mapping[str, Any]) -> bool:
    """Whether a content block is a thought: by its type ("thinking", "reasoning_text"), or as Gemini marks it."""
    return LIKE_THOUGHTS.search(str(block.get("type"))) is not None or block.get("thought") is True


def _thought_of(value: Any, depth: int = 5) -> str:
    """The text of a parsed thought: a string, or blocks whose text may be in blocks again (Mistral, OpenAI)."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("text", *THOUGHT_KEYS, "summary", "content") if _says(value, key)), "")
    if isinstance(value, Sequence | Mapping) and not isinstance(value, str):
        blocks = [value] if isinstance(value, Mapping) else value
        return "".join(_thought_of(block, depth - 1) for block in blocks) if depth else ""
    return "" if value is None else str(value)


def _says(block: Mapping[str, Any], key: str) -> bool:
    return bool(block.get(key)) and block[key] is not True


def content_of(message: Mapping[str, Any]) -> str:
    """The text of a message, without its thought; parts are joined. Raises [`SampleError`] for a text that is none."""
    content = message.get("content")
    if isinstance(content, str) and content:
        return content
    if content is None or (isinstance(content, Sequence) and not content):
        # OpenAI's API has a refusal in a field of its own
        refusal = message.get("refusal") or ""
        if not isinstance(refusal, str):
            raise SampleError(f"the refusal of a message must be a string, got {refusal!r:.60}.")
        return refusal
    blocks = list_of_messages(content, "the content of a message")
    texts = [block.get("text") or block.get("refusal") or "" for block in blocks if not _is_thought(block)]
    for text in texts:
        if not isinstance(text, str):
            raise SampleError(f"the text of a content block must be a string, got {type(text).__name__} {text!r:.60}.")
    return "".join(texts)


def list_of_messages(value: Any, what: str) -> Sequence[Mapping[str, Any]]:
    """`value`, if it is a list of mappings; raises [`SampleError`] otherwise, which calls it `what`."""
    if isinstance(value, Sequence) and all(isinstance(message, Mapping) for message in value):
        return value
    raise SampleError(f"{what} must be a string or a list of mappings (chat messages); got {value!r:.80}.")


def conversation(value: Any, what: str, images: Images = "refuse") -> list[Mapping[str, Any]]:
    """The messages of `value`, each with a known role. A message or a part of one without text is refused, because
    its judge would see a conversation with an empty turn."""
    messages = [_with_role(message) for message in list_of_messages(value, what)]
    for number, message in enumerate(messages, start=1):
        where = f"message {number} of {what}"
        if not (isinstance(message.get("role"), str) and message["role"]):
            raise SampleError(f"every message of {what} must have a role; got {dict(message)!r:.80}.")
        if speaker(message) is None:
            allowed = ", ".join(SPEAKERS)
            raise SampleError(f"{where} has the unknown role {message['role']!r:.60}; allowed: {allowed}.")
        others = [name for name in message if name not in ("role", "name", "id") and _is_given(message[name])]
        if others and not message.keys() & set(SAYING):
            raise SampleError(f"{where} has no content; it has the keys {', '.join(map(repr, message))}.")
        calls = calls_of(message)
        if isinstance(calls, str) or not all(_is_call(call) for call in calls):
            raise SampleError(f"{where} must have its tool calls as a list of mappings, got {calls!r:.60}.")
        content = message.get("content")
        parts = list_of_messages(content, "the content of a message") if not isinstance(content, str | None) else ()
        for part in (message, *parts):
            _check_part(part, where, images, whole=part is message)
    return messages


def _with_role(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message with role and content. ShareGPT has them as `from` and `value`."""
    if "role" in message or not {"from", "value"} <= message.keys():
        return message
    role = SPEAKERS.get(str(message["from"]).lower(), message["from"])
    others = {name: value for name, value in message.items() if name not in ("from", "value")}
    return {"role": role, "content": message["value"], **others}


def _check_part(part: Mapping[str, Any], where: str, images: Images, whole: bool) -> None:
    """Refuse a part of a message, or a message as a whole, with an image or other media, and a part without text."""
    kind = "" if whole else str(part.get("type") or "")
    media = next((name for name in part if _MEDIA.fullmatch(str(name)) and _is_given(part[name])), None)
    if media is not None or _MEDIA.fullmatch(kind):
        if images == "refuse":
            raise SampleError(
                f"{where} has a part {media or kind!r}, but a judge reads text only; remove the part, or replace it "
                "by text (in Python, rewards and readers with images='ignore' judge the text alone)."
            )
    elif (
        not whole
        and part.get("text") is None
        and part.get("refusal") is None
        and kind not in _TEXT_BLOCKS
        and not _is_thought(part)
    ):
        raise SampleError(f"{where} has a part without text, which a judge cannot read: {dict(part)!r:.80}.")


def _is_given(value: Any) -> bool:
    return value is not None and not (isinstance(value, Sized) and len(value) == 0)
