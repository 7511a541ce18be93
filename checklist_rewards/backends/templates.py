"""Chat templates: the text around a user message, up to where the model's answer starts.

A template is rendered once with a marker as the message and split there into *head* (the text before the user message)
and *foot* (the text after it). The following differences between templates are handled:

- A template without a system role raises an error for system messages or silently drops them. The system message is
  then put at the start of the first user message.
- Some templates strip the white space around a message.
- Some templates open a thinking block even with `enable_thinking=False`. A read closes the block, as the models do.
- gpt-oss models choose the channel of their answer. A read opens the final channel.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from checklist_rewards.backends.base import Message, Messages
from checklist_rewards.errors import ModelError

logger = logging.getLogger(__name__)

_MARK = "CHECKLIST0MARK0A7"
_THINK, _END_THINK = "<think>", "</think>"
_ASSISTANT, _FINAL = "<|start|>assistant", "<|channel|>final<|message|>"
_HARMONY = re.compile(
    r"<\|channel\|>(\w+)[^<]*<\|message\|>(.*?)(?=<\|end\|>|<\|return\|>|<\|call\|>|<\|start\|>|\Z)", re.S
)


class Frame(NamedTuple):
    """The text around a user message."""

    head: str
    foot: str
    strips: bool
    """Whether the template strips the white space around the message."""


class ChatTemplate:
    """The chat template of a tokenizer. Without one, messages become plain paragraphs.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): The tokenizer.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self.marks_channels = "<|channel|>" in (self._source() or "")
        """Whether special tokens separate thinking and answer, as in gpt-oss."""

    def frame(self, system: str | None, *, think: bool = False) -> Frame:
        """Compute the text around a user message.

        Args:
            system (`str`, *optional*): The system message.
            think (`bool`, *optional*, defaults to `False`): Whether the model may think before it answers.

        Raises:
            ModelError: If the template drops the message.
        """
        messages = [{"role": "system", "content": system}] if system is not None else []
        text = self._render([*messages, {"role": "user", "content": _padded(_MARK)}], think)
        for mark, strips in ((_padded(_MARK), False), (_MARK, True)):
            head, match, foot = text.partition(mark)
            if match:
                return Frame(head, foot, strips)
        raise ModelError("the model's chat template drops the user message.")

    def conversation(self, messages: Messages) -> tuple[str, list[tuple[int, int]]]:
        """Render a whole conversation up to where the model's reply starts.

        Returns:
            `tuple[str, list[tuple[int, int]]]`: The text, and the span of each message's content in it.

        Raises:
            ModelError: If the template drops a message.
        """
        marks = [f"{_MARK}N{index}N" for index in range(len(messages))]
        framed = [{**message, "content": _padded(mark)} for message, mark in zip(messages, marks, strict=True)]
        rest, text = self._render(framed, True), ""
        spans = []
        for message, mark in zip(messages, marks, strict=True):
            content = message["content"]
            before, match, after = rest.partition(_padded(mark))
            if not match:
                before, match, after = rest.partition(mark)
                content = content.strip()
            if not match:
                raise ModelError("the model's chat template drops a message of the conversation.")
            text += before
            spans.append((len(text), len(text) + len(content)))
            text, rest = text + content, after
        return text + rest, spans

    def reply(self, text: str) -> str:
        """Convert a model's output to text in which thinking is in a `<think>` block.

        Args:
            text (`str`): The decoded output, with special tokens if [`marks_channels`] is true.
        """
        if not self.marks_channels:
            return text
        parts = _HARMONY.findall(text)
        final = "".join(part for channel, part in parts if channel == "final")
        thoughts = "\n".join(part for channel, part in parts if channel != "final")
        return f"{_THINK}{thoughts}{_END_THINK if final else ''}{final}" if thoughts else final

    def _render(self, messages: list[Message], think: bool) -> str:
        if not self._source():
            # A base model: plain paragraphs, after the token with which documents start in training.
            return (self._tokenizer.bos_token or "") + "\n\n".join(m["content"] for m in messages) + "\n"
        text = self._with_rules(messages, think)
        opened = text.rfind(_THINK)
        if not think and opened > text.rfind(_END_THINK):
            # The template always opens a thinking block. Thinking models write an empty block in this form.
            text = f"{text.rstrip()}\n\n{_END_THINK}\n\n"
        if not think and self.marks_channels and text.endswith(_ASSISTANT):
            text += _FINAL
        return text

    def _with_rules(self, messages: Sequence[Message], think: bool) -> str:
        from jinja2 import TemplateError

        def render(messages: Sequence[Message]) -> str:
            # Templates without the variable `enable_thinking` ignore it.
            return self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=think
            )

        alone = len(messages) == 1 or messages[0]["role"] != "system"
        try:
            text = render(messages)
            if alone or messages[0]["content"].strip() in text:
                return text
            logger.info(
                "this model's chat template drops system messages; they are put at the start of the first user "
                "message instead."
            )
        except TemplateError:
            if alone:
                raise
        system, first, *others = messages
        return render([{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others])

    def _source(self) -> str | None:
        template = getattr(self._tokenizer, "chat_template", None)
        return "".join(template.values()) if isinstance(template, dict) else template


def _padded(mark: str) -> str:
    # Neither a line break alone nor a space alone, because templates add these before a message.
    return f"\n {mark} \n"
