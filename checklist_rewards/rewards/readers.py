"""How a reward reads the completions of the trainer that calls it.

The trainer's tokenizer, its `chat_template_kwargs`, its tools and its length limit decide which part of a completion
is the answer. A [`CompletionReader`] is built once per tokenizer.

Frameworks with environments pass a rollout as one conversation ([`rollout`]) or turn after turn ([`policy_turn`],
[`environment_turns`]). Either becomes a prompt and a completion of chat messages with tool calls and results, which a
reader reads like any other completion.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.chat import PARTS, CompletionReader, Part, Target, rendered_turns, without_end_tokens
from checklist_rewards.errors import SampleError
from checklist_rewards.validation import import_extra, one_of

_WRITTEN_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.S)
"""A tool call as most chat templates write it (Hermes, Qwen)."""

Turn = dict[str, Any]
"""A chat message."""

logger = logging.getLogger(__name__)


def rollout(messages: Sequence[Any], start: int | None = None) -> tuple[list[Turn], list[Turn]]:
    """The prompt and the completion of a conversation.

    Args:
        messages (sequence): Chat messages: mappings, or pydantic models with the same fields. Tool calls may be nested
            (`{"function": {"name", "arguments"}}`) or flat (`{"name", "arguments"}`), with arguments as JSON or not.
        start (`int`, *optional*): Number of messages of the prompt. By default, those before the first message of the
            assistant.

    Returns:
        `tuple`: Both as lists of mappings.
    """
    turns: list[Turn] = [dict(m) if isinstance(m, Mapping) else m.model_dump(exclude_none=True) for m in messages]
    for turn in turns:
        if turn.get("tool_calls"):
            turn["tool_calls"] = [_flat(call) for call in turn["tool_calls"]]
    if start is None:
        start = next((at for at, turn in enumerate(turns) if turn.get("role") == "assistant"), len(turns))
    return turns[:start], turns[start:]


def _flat(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            pass  # shown as it is
    return {"name": function.get("name"), "arguments": arguments}


def policy_turn(text: str) -> Turn:
    """The message of a text that the policy wrote in one turn, decoded with or without its special tokens.

        >>> policy_turn('Let me look. <tool_call>{"name": "look", "arguments": {"word": "a"}}</tool_call><|im_end|>')
        {'role': 'assistant', 'content': 'Let me look.', 'tool_calls': [{'name': 'look', 'arguments': {'word': 'a'}}]}

    A call that has no name, is not JSON or is written in another form stays in the text.
    """
    calls: list[dict[str, Any]] = []

    def taken(found: re.Match[str]) -> str:
        try:
            call = json.loads(found[1])
        except ValueError:
            return found[0]
        if "name" not in call:
            return found[0]
        calls.append(call)
        return ""

    text = without_end_tokens(text)
    rest = _WRITTEN_CALL.sub(taken, text)
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": rest.strip(), "tool_calls": calls}


def environment_turns(text: str, role: str = "tool") -> list[Turn]:
    """The messages of a text with which an environment answered.

    Args:
        text (`str`): Plain text, or turns that a chat template has rendered.
        role (`str`, *optional*, defaults to `"tool"`): Role of a plain text.
    """
    return rendered_turns(text) or ([{"role": role, "content": text}] if text.strip() else [])


class Readers:
    """Reads completions with the tokenizer of the trainer that passes them.

    Args:
        part, keep_thinking, thinking_opened, tokenizer, thinking_tags: As in [`ChecklistReward`].

    Raises:
        SampleError: For a value that is not allowed.
    """

    def __init__(
        self,
        part: Part = "answer",
        keep_thinking: bool = False,
        thinking_opened: bool | None = None,
        tokenizer: Any = None,
        thinking_tags: Sequence[str] | None = None,
    ):
        one_of("target", part, PARTS)
        if not isinstance(keep_thinking, bool):
            raise SampleError(f"keep_thinking={keep_thinking!r} is not allowed; it must be True or False.")
        if thinking_opened is not None and not isinstance(thinking_opened, bool):
            raise SampleError(f"thinking_opened={thinking_opened!r} is not allowed; it must be True, False or None.")
        if thinking_tags is not None and (
            isinstance(thinking_tags, str)
            or len(thinking_tags) not in (0, 2)
            or not all(isinstance(tag, str) and tag.strip() for tag in thinking_tags)
        ):
            raise SampleError(
                f"thinking_tags={thinking_tags!r} is not allowed; it must be two strings, the opening and the closing "
                "marker of a thought, or empty if the policy writes no thoughts."
            )
        if tokenizer is not None and not isinstance(tokenizer, str) and not hasattr(tokenizer, "apply_chat_template"):
            raise SampleError(
                f"tokenizer={tokenizer!r:.60} is not allowed; it must be a tokenizer, a processor, or the name of a "
                "model."
            )
        self.part: Part = part
        self.keep_thinking, self.thinking_opened = keep_thinking, thinking_opened
        self.tokenizer = tokenizer
        self.thinking_tags = None if thinking_tags is None else tuple(thinking_tags)
        self._warned = False
        self._readers: dict[Any, tuple[Any, CompletionReader]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    def read(
        self,
        completions: Sequence[Any],
        prompts: Sequence[Any] | None = None,
        ids: Sequence[Sequence[int]] | None = None,
        trainer: Any = None,
    ) -> list[Target]:
        """Read the completions of one call; see [`CompletionReader.read_batch`].

        Args:
            trainer (*optional*): The trainer that called the reward. The tokenizer of this object, if any, is used in
                place of the trainer's.
        """
        reader = self.of(trainer)
        if ids is not None and reader.tokenizer is None and not self._warned:
            self._warned = True
            logger.warning(
                "the reward got completion_ids but knows no tokenizer, so it reads the decoded completions. If the "
                "policy marks its thoughts with special tokens (gpt-oss, Gemma 4, Magistral, Cohere and others), "
                "decoding has dropped the markers: pass tokenizer=..."
            )
        limit = getattr(trainer, "max_completion_length", None)
        if limit is None:
            limit = getattr(getattr(trainer, "args", None), "max_new_tokens", None)
        tools = bool(getattr(trainer, "tools", None))
        return reader.read_batch(
            completions, prompts=prompts, ids=ids, limit=limit, tools=tools, opened=self.thinking_opened
        )

    def of(self, trainer: Any = None) -> CompletionReader:
        """The reader for a trainer, or for None. It is built once per tokenizer."""
        tokenizer = getattr(trainer, "processing_class", None) if self.tokenizer is None else self.tokenizer
        settings = dict(getattr(trainer, "chat_template_kwargs", None) or {})
        key = tokenizer if isinstance(tokenizer, str) else id(tokenizer), repr(settings)
        if key not in self._readers:
            loaded = _loaded(tokenizer) if isinstance(tokenizer, str) else tokenizer
            reader = CompletionReader(
                loaded,
                chat_template_kwargs=settings,
                part=self.part,
                keep_thinking=self.keep_thinking,
                thinking_tags=self.thinking_tags,
            )
            reader.check()
            self._readers = {key: (tokenizer, reader)}  # the tokenizer is kept, so that its id stays its own
        return self._readers[key][1]


def _loaded(name: str) -> Any:
    [transformers] = import_extra("transformers", extra="trl")
    from checklist_rewards.backends.models import resolve_model

    try:
        return transformers.AutoTokenizer.from_pretrained(resolve_model(name))
    except (OSError, ValueError) as error:
        raise SampleError(f"tokenizer={name!r} not found ({str(error).splitlines()[0]:.120}).") from None
