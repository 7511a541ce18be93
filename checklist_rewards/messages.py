"""Chat messages of trainers, files and servers: the speaker, the text, the thought and the tool calls of each.

Messages come in the shapes of several APIs: OpenAI (parts, refusals, `tool_calls` and the older `function_call`),
Mistral and Gemini (thoughts as parts), ShareGPT (`from`, `value`), and under many names of roles. This module is the
only one that reads these shapes. An image is a part of a message; in its text, its mark stands for it (`images.py`).
Audio, videos and files are refused unless the user ignores them.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Literal

from checklist_rewards.errors import SampleError
from checklist_rewards.images import PLACE, Image, clean, image_of
from checklist_rewards.markers import LIKE_THOUGHTS

Images = Literal["show", "ignore"]
"""What to do with images in messages: show them to the judge, and refuse audio, videos and files; or judge the text
alone."""

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
IMAGE_TYPES = ("image", "image_url", "input_image")
"""The types of a content part that is an image."""
_IMAGE_KEYS = ("image", "image_url", "url", "path", "bytes", "base64", "source")
"""Fields of an image part with its image."""

PROMPT_COLUMNS = (
    "prompt", "question", "instruction", "query", "problem", "task", "goal", "input", "user_input", "user_prompt",
    "user_query", "user_message", "question_text", "prompt_text", "task_description", "conversation", "messages",
    "conversation_input", "conversation_history", "context_messages", "instruction_text",
)  # fmt: skip
"""Columns in which data sets have the prompt, in lower case."""


def speaker(message: Mapping[str, Any]) -> str | None:
    """Who a message is from: "user", "assistant", "system" or "tool"; None for a role that is not in `SPEAKERS`."""
    return SPEAKERS.get(str(message.get("role")).lower())


def speakers(value: Any) -> list[str | None]:
    """Who each message of a conversation is from; empty for another value."""
    return list(map(speaker, chat_messages(value))) if is_chat(value) else []


def is_chat(value: Any) -> bool:
    """Whether a value is a list of mappings, as chat messages are."""
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(m, Mapping) for m in value)


def chat_messages(value: Any) -> Any:
    """Messages as trainers and policies take them: those of ShareGPT (`from`, `value`) with a role and content, and
    the user and the assistant by these names. Other values are unchanged."""
    if not is_chat(value):
        return value
    messages = [_with_role(message) for message in value]
    return [{**m, "role": who} if (who := speaker(m)) in ("user", "assistant") else dict(m) for m in messages]


def calls_of(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The tool calls of a message; older APIs have a single one, as `function_call`."""
    one = message.get("function_call")
    return message.get("tool_calls") or ([one] if one else [])


def is_call(call: Any) -> bool:
    """Whether a value has the shape of a tool call."""
    return isinstance(call, Mapping) and isinstance(call.get("function") or {}, Mapping)


def shown_call(call: Mapping[str, Any]) -> str:
    """A tool call as text: `name(arguments)`."""
    function = call.get("function") or call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        return clean(f"{function.get('name')}({arguments})")
    shown: Sequence[str] = ()
    if isinstance(arguments, Mapping):
        # Arrow adds missing arguments as None.
        shown = [f"{key}={json.dumps(value, default=str)}" for key, value in arguments.items() if value is not None]
    return clean(f"{function.get('name')}({', '.join(shown)})")


def parsed_thought(message: Mapping[str, Any]) -> str | None:
    """The thought that a tokenizer or a server has parsed out of a message."""
    thoughts = [message[key] for key in THOUGHT_KEYS if message.get(key)][:1]
    content = message.get("content")
    if not thoughts and isinstance(content, Sequence) and not isinstance(content, str):
        thoughts = [block for block in list_of_messages(content, "the content of a message") if _is_thought(block)]
    return clean("\n".join(map(_thought_of, thoughts))) if thoughts else None


def _is_thought(block: Mapping[str, Any]) -> bool:
    """Whether a content block is a thought: by its type ("thinking", "reasoning_text"), or as Gemini marks it."""
    return LIKE_THOUGHTS.search(str(block.get("type"))) is not None or block.get("thought") is True


def _thought_of(value: Any, depth: int = 5) -> str:
    """The text of a parsed thought: a string, or blocks whose text may be in blocks again (Mistral, OpenAI)."""
    if isinstance(value, Mapping):
        keys = ("text", *THOUGHT_KEYS, "summary", "content")
        value = next((value[key] for key in keys if value.get(key) and value[key] is not True), "")
    if isinstance(value, Sequence | Mapping) and not isinstance(value, str):
        blocks = [value] if isinstance(value, Mapping) else value
        return "".join(_thought_of(block, depth - 1) for block in blocks) if depth else ""
    return "" if value is None else str(value)


def content_of(message: Mapping[str, Any]) -> str:
    """The text of a message, without its thought; parts are joined. The mark of an [`Image`] stands in its place.
    Raises [`SampleError`] for a text that is none."""
    content = message.get("content")
    if isinstance(content, str) and content:
        return clean(content)
    if content is None or (isinstance(content, Sequence) and not content):
        # OpenAI's API has a refusal in a field of its own
        refusal = message.get("refusal") or ""
        if not isinstance(refusal, str):
            raise SampleError(f"the refusal of a message must be a string, got {refusal!r:.60}.")
        return clean(refusal)
    blocks = list_of_messages(content, "the content of a message")
    texts = []
    for block in blocks:
        text = "" if _is_thought(block) else block.get("text") or block.get("refusal") or ""
        if not isinstance(text, str):
            raise SampleError(f"the text of a content block must be a string, got {type(text).__name__} {text!r:.60}.")
        image = block.get("image")
        texts.append((image.mark if isinstance(image, Image) else "") + clean(text))
    return "".join(texts)


def list_of_messages(value: Any, what: str) -> Sequence[Mapping[str, Any]]:
    """`value`, if it is a list of mappings; raises [`SampleError`] otherwise, which calls it `what`."""
    if isinstance(value, Sequence) and all(isinstance(message, Mapping) for message in value):
        return value
    raise SampleError(f"{what} must be a string or a list of mappings (chat messages); got {value!r:.80}.")


def with_images(
    value: Any,
    given: Sequence[Any] = (),
    what: str = "a prompt",
    folder: str | Path | None = "",
    read: Callable[..., Image] = image_of,
) -> Any:
    """Chat messages, each of whose image parts has an [`Image`]. Other values are unchanged.

    A part without an image, such as `{"type": "image"}`, gets the next of the given images. If no part has or lacks an
    image, the images are put in front of the first user message that is a string. TRL does the same
    (`prepare_multimodal_messages`); its trainers pass prompts that have their images already, together with the column
    that these came from.

    Args:
        given (sequence, *optional*): The images of the row, as [`image_of`] accepts them.
        what (`str`, *optional*): What the error calls the messages, which are a prompt or a completion.
        folder, read (*optional*): As in [`image_of`], and the function to read an image with.

    Raises:
        SampleError: If an image cannot be read, or if there are more or fewer parts without one than given images.
    """
    if not is_chat(value):
        return value
    parts = [part for message in value for part in _image_parts(message)]
    if not parts and not given:
        return value
    rest = [read(image, f"image {n} of {what}", folder) for n, image in enumerate(given, start=1)]
    contents = [_content_of_image(part) for part in parts]
    empty = sum(content is None for content in contents)
    if not parts:
        return _in_front(value, rest, what)
    found = [
        None if content is None else read(content, f"image part {n} of {what}", folder)
        for n, content in enumerate(contents, start=1)
    ]
    if empty != len(rest) and not (empty == 0 and _in_order(rest, found)):
        raise SampleError(
            f"{what} has {empty} image parts without an image, but its row has {len(rest)} images in the column "
            "'image' or 'images'."
        )
    in_order, shown = iter(rest), iter(found)

    def held(part: Mapping[str, Any]) -> dict[str, Any]:
        text = {"text": part["text"]} if part.get("text") else {}
        return {"type": "image", "image": next(shown) or next(in_order), **text}

    return _with_parts(value, held)


def has_its_images(value: Any) -> bool:
    """Whether a prompt has image parts, each with its image. The images of other prompts are in a column."""
    parts = [part for message in value for part in _image_parts(message)] if is_chat(value) else []
    return bool(parts) and all(any(_is_given(part.get(key)) for key in _IMAGE_KEYS) for part in parts)


def with_places(value: Any, given: Sequence[Any] = ()) -> tuple[Any, list[Any]]:
    """A prompt or completion for people: "[image]" in place of each image, and these images, which are not read.

    The images have the order and the places of [`with_images`]. An image part for which none is given has None.
    """
    if isinstance(value, str):
        return PLACE * len(given) + value, list(given)
    if not is_chat(value):
        return value, list(given)
    in_order, found = iter(given), []
    for part in (part for message in value for part in _image_parts(message)):
        try:
            content = _content_of_image(part)
        except SampleError:  # reading the image reports it
            content = part
        found.append(next(in_order, None) if content is None else content)
    messages = _with_parts(value, lambda part: {"type": "text", "text": f"{PLACE}{part.get('text') or ''}"})
    if not found and given:
        for place, message in enumerate(map(_with_role, messages)):
            if speaker(message) == "user" and isinstance(message.get("content"), str):
                messages[place] = {**message, "content": PLACE * len(given) + message["content"]}
                return messages, list(given)
    return messages, found


def _with_parts(messages: Sequence[Any], made: Callable[[Mapping[str, Any]], Any]) -> list[Any]:
    """Chat messages with what `made` returns in place of each image part, in order."""
    return [
        {**m, "content": [made(p) if isinstance(p, Mapping) and _is_image(p) else p for p in m["content"]]}
        if any(_image_parts(m))
        else m
        for m in messages
    ]


def _image_parts(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The image parts of a message, in order."""
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        yield from (part for part in content if isinstance(part, Mapping) and _is_image(part))


def _is_image(part: Mapping[str, Any]) -> bool:
    """Whether a content block is an image: by its type, or without one by its fields."""
    kind = part.get("type")
    if kind is None:
        return any(_is_given(part.get(name)) for name in _IMAGE_KEYS[:2])
    return kind in IMAGE_TYPES


def _content_of_image(part: Mapping[str, Any]) -> Any:
    """What an image part has as its image; None if it is only a place for one."""
    key = next((key for key in _IMAGE_KEYS if _is_given(part.get(key))), None)
    value = None if key is None else part[key]
    if key == "source" and isinstance(value, Mapping):  # Anthropic
        key, value = ("base64", value["data"]) if value.get("data") else ("url", value.get("url"))
    if key != "base64" or not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise SampleError(f"an image part has base64 text that cannot be decoded: {error}.") from None


def _in_order(images: Sequence[Image], found: Sequence[Image | None]) -> bool:
    """Whether the images are among those found, in their order."""
    remaining = iter(found)
    return all(any(other is image for other in remaining) for image in images)


def _in_front(messages: Sequence[Mapping[str, Any]], images: Sequence[Image], what: str) -> list[Mapping[str, Any]]:
    """The messages with images in front of the first user message."""
    for place, message in enumerate(messages):
        content = _with_role(message).get("content")
        if speaker(_with_role(message)) == "user" and isinstance(content, str):
            parts = [*({"type": "image", "image": image} for image in images), {"type": "text", "text": content}]
            return [*messages[:place], {**_with_role(message), "content": parts}, *messages[place + 1 :]]
    raise SampleError(
        f"{what} has no place for the images of its row: add image parts to its content, or a user message that is a "
        "string."
    )


def images_of(messages: Any) -> list[Image]:
    """The images of messages from [`with_images`], in order. None of other values."""
    found = [part.get("image") for message in messages for part in _image_parts(message)] if is_chat(messages) else []
    return [image for image in found if isinstance(image, Image)]


def conversation(value: Any, what: str, images: Images = "show") -> list[Mapping[str, Any]]:
    """The messages of `value`, each with a known role, and with `images="show"` as [`with_images`] returns them. A
    message or a part of one without text is refused, because its judge would see a conversation with an empty turn."""
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
        if isinstance(calls, str) or not all(is_call(call) for call in calls):
            raise SampleError(f"{where} must have its tool calls as a list of mappings, got {calls!r:.60}.")
        content = message.get("content")
        parts = list_of_messages(content, "the content of a message") if not isinstance(content, str | None) else ()
        for part in (message, *parts):
            _check_part(part, where, images, whole=part is message)
    if images == "show":
        return with_images(messages, what=what, folder=None)  # callers that allow paths have read them already
    return without_images(messages)


def with_moved(messages: Any, move: Callable[[Any], Any]) -> Any:
    """Chat messages with what `move` makes of the image of each image part. Other values are unchanged."""
    if not is_chat(messages) or not any(any(_image_parts(message)) for message in messages):
        return messages

    def moved(part: Mapping[str, Any]) -> dict[str, Any]:
        named = (name for name in _IMAGE_KEYS if name != "base64" and _is_given(part.get(name)))
        return {**part, **{name: move(part[name]) for name in named}}

    return _with_parts(messages, moved)


def without_images(messages: Any) -> Any:
    """Chat messages without their image parts, but with the texts of these. Other values are unchanged."""
    if not is_chat(messages):
        return messages
    return _with_parts(messages, lambda part: {"type": "text", "text": part.get("text") or ""})


def _with_role(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message with role and content. ShareGPT has them as `from` and `value`."""
    if "role" in message or not {"from", "value"} <= message.keys():
        return message
    role = SPEAKERS.get(str(message["from"]).lower(), message["from"])
    others = {name: value for name, value in message.items() if name not in ("from", "value")}
    return {"role": role, "content": message["value"], **others}


def _check_part(part: Mapping[str, Any], where: str, images: Images, whole: bool) -> None:
    """Refuse a part of a message with other media than an image, a message with media outside of its parts, and a part
    without text."""
    kind = "" if whole else str(part.get("type") or "")
    media = next((name for name in part if _MEDIA.fullmatch(str(name)) and _is_given(part[name])), None)
    if media is not None or _MEDIA.fullmatch(kind):
        if images == "ignore" or (not whole and _is_image(part)):
            return
        advice = "remove the part, or replace it by text"
        if "image" in (media or kind):
            advice = 'put each image into a part {"type": "image", "image": ...} of the content'
        raise SampleError(
            f"{where} has a part {media or kind!r}, but a judge reads text and images only; {advice} (in Python, "
            "rewards and readers with images='ignore' judge the text alone)."
        )
    if (
        not whole
        and part.get("text") is None
        and part.get("refusal") is None
        and kind not in _TEXT_BLOCKS
        and not _is_thought(part)
    ):
        raise SampleError(f"{where} has a part without text, which a judge cannot read: {dict(part)!r:.80}.")


def _is_given(value: Any) -> bool:
    return value is not None and not (isinstance(value, Sized) and len(value) == 0)
