"""Chat templates: the text around a user's message, up to where the model answers.

A template is rendered once around a marker and cut there: *head* (everything before the user's message) and *foot*
(everything after it). Templates differ in ways that a judge must not trip over:

- One without a system role refuses it or, worse, drops it silently. The rules then open the first user message.
- One may strip the white space around a message.
- One may open a thinking block although it is asked not to. A read closes the block, as the models themselves do.
- gpt-oss chooses the channel of its answer itself. A read opens the final one.
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
    """The text around a user's message."""

    head: str
    foot: str
    strips: bool
    """The template strips the white space around the message."""


class ChatTemplate:
    """The chat template of a tokenizer, or plain paragraphs where it has none.

    Args:
        tokenizer (`PreTrainedTokenizerBase`).
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self.marks_channels = "<|channel|>" in (self._source() or "")
        """Thinking and answer are told apart by special tokens, as in gpt-oss."""

    def frame(self, system: str | None, *, think: bool = False) -> Frame:
        """What stands around a user's message.

        Args:
            system (`str`, *optional*): the rules.
            think (`bool`, *optional*, defaults to `False`): the model may think before it answers.

        Raises:
            ModelError: if the template drops the message.
        """
        messages = [{"role": "system", "content": system}] if system is not None else []
        text = self._render([*messages, {"role": "user", "content": _padded(_MARK)}], think)
        for mark, strips in ((_padded(_MARK), False), (_MARK, True)):
            head, found, foot = text.partition(mark)
            if found:
                return Frame(head, foot, strips)
        raise ModelError("the model's chat template drops the user's message.")

    def conversation(self, messages: Messages) -> tuple[str, list[tuple[int, int]]]:
        """A whole conversation as text, ready for the model's reply, and where the content of each message is in it.

        Raises:
            ModelError: if the template drops a message.
        """
        marks = [f"{_MARK}N{index}N" for index in range(len(messages))]
        framed = [{**message, "content": _padded(mark)} for message, mark in zip(messages, marks, strict=True)]
        rest, text = self._render(framed, True), ""
        spans = []
        for message, mark in zip(messages, marks, strict=True):
            content = message["content"]
            before, found, after = rest.partition(_padded(mark))
            if not found:
                before, found, after = rest.partition(mark)
                content = content.strip()
            if not found:
                raise ModelError("the model's chat template drops a message of the conversation.")
            text += before
            spans.append((len(text), len(text) + len(content)))
            text, rest = text + content, after
        return text + rest, spans

    def reply(self, text: str) -> str:
        """What a model wrote, with its thinking in a `<think>` block.

        Args:
            text (`str`): the decoded reply, special tokens included if the template [`marks_channels`].
        """
        if not self.marks_channels:
            return text
        parts = _HARMONY.findall(text)
        final = "".join(part for channel, part in parts if channel == "final")
        thoughts = "\n".join(part for channel, part in parts if channel != "final")
        return f"{_THINK}{thoughts}{_END_THINK if final else ''}{final}" if thoughts else final

    def _render(self, messages: list[Message], think: bool) -> str:
        if not self._source():
            # A base model: plain paragraphs, opened as the model was trained to see a document open.
            return (self._tokenizer.bos_token or "") + "\n\n".join(m["content"] for m in messages) + "\n"
        text = self._with_rules(messages, think)
        opened = text.rfind(_THINK)
        if not think and opened > text.rfind(_END_THINK):
            # A template that opens a thinking block whatever it is told; thinking models spell an empty one like this.
            text = f"{text.rstrip()}\n\n{_END_THINK}\n\n"
        if not think and self.marks_channels and text.endswith(_ASSISTANT):
            text += _FINAL
        return text

    def _with_rules(self, messages: Sequence[Message], think: bool) -> str:
        from jinja2 import TemplateError

        def render(messages: Sequence[Message]) -> str:
            # Templates that know no `enable_thinking` ignore it.
            return self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=think
            )

        alone = len(messages) == 1 or messages[0]["role"] != "system"
        try:
            text = render(messages)
            if alone or messages[0]["content"].strip() in text:
                return text
            logger.info("this model's chat template drops system messages; they open the first user message instead.")
        except TemplateError:
            if alone:
                raise
        system, first, *others = messages
        return render([{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others])

    def _source(self) -> str | None:
        template = getattr(self._tokenizer, "chat_template", None)
        return "".join(template.values()) if isinstance(template, dict) else template


def _padded(mark: str) -> str:
    # Neither a line end nor a space alone: a template writes these itself before a message.
    return f"\n {mark} \n"
