"""Chat templates: the text around a user message, up to where the model's answer starts.

A template is rendered once with a marker as the message and split there into *head* (the text before the user message)
and *foot* (the text after it). The following differences between templates are handled:

- A template without a system role raises an error for system messages or silently drops them. The system message is
  then put at the start of the first user message.
- Some templates strip the white space around a message.
- Some templates open a thinking block even with `enable_thinking=False`. A read closes the block, as the models do.
- gpt-oss models choose the channel of their answer. A read opens the final channel.
- A read may follow a thought that the model has written. How a template opens and closes a thought is found by
  rendering an assistant message that has one (`reasoning_content`, as in Qwen3, or `thinking`, as in gpt-oss).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from checklist_rewards.backends.base import Message, Messages, Written
from checklist_rewards.errors import ModelError

logger = logging.getLogger(__name__)

_MARK = "CHECKLIST0MARK0A7"
_THOUGHT, _ANSWER = f"{_MARK}THOUGHT", f"{_MARK}ANSWER"
_THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
_THINK, _END_THINK = "<think>", "</think>"
QUOTED_END = "< /think>"
"""A closing tag inside a thought, where it closes nothing."""
_ASSISTANT, _FINAL = "<|start|>assistant", "<|channel|>final<|message|>"
_ANALYSIS = "<|channel|>analysis<|message|>"
_CUE = "Answer:"
_HARMONY = re.compile(
    r"<\|channel\|>(\w+)[^<]*<\|message\|>(.*?)(?=<\|end\|>|<\|return\|>|<\|call\|>|<\|start\|>|\Z)", re.S
)


class Frame(NamedTuple):
    """The text around a user message."""

    head: str
    foot: str
    strips: bool
    """Whether the template strips the white space around the message."""


class ThoughtFormat(NamedTuple):
    """The text around a thought, after the template's generation prompt."""

    opening: str
    """Empty if the generation prompt opens the thought itself, or if the template has no thoughts."""
    closing: str
    cue: str = ""
    """What precedes an answer; empty if the answer follows the closed thought."""

    def around(self, written: Written) -> tuple[str, list[tuple[int, int]]]:
        """A closed thought, up to the label, and the spans of its data."""
        text = self.opening + written.thought
        spans = [(len(self.opening), len(text))]
        text += self.closing
        if written.question:
            spans.append((len(text), len(text) + len(written.question)))
            text += f"{written.question}\n\n"
        return text + (_CUE if written.question else self.cue), spans


NO_FORMAT = ThoughtFormat("", "\n\n", _CUE)
"""For models whose template has no thoughts: plain text, and the cue for the answer."""


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

    @cached_property
    def thoughts(self) -> ThoughtFormat:
        """How a thought is opened and closed. The template renders an answer with a thought; what stands between the
        generation prompt and the thought opens it, and what stands between thought and answer closes it."""
        foot = self.frame(None, think=True).foot
        _, _, reply = self._answered().partition(_MARK)
        if reply.startswith(foot):
            opening, thinks, rest = reply[len(foot) :].partition(_THOUGHT)
            closing, answers, _ = rest.partition(_ANSWER)
            if thinks and answers:
                return ThoughtFormat(opening, closing)
        if foot.rstrip().endswith(_THINK):  # opened, but the template drops finished thoughts, as DeepSeek-R1's
            return ThoughtFormat("", f"\n{_END_THINK}\n\n")
        if self.marks_channels and foot.endswith(_ASSISTANT):
            return ThoughtFormat(_ANALYSIS, f"<|end|>{_ASSISTANT}{_FINAL}")
        return NO_FORMAT

    @cached_property
    def opens_thinking(self) -> bool:
        """Whether the prompt of a reply opens a thinking block, so that the reply begins inside it."""
        return self.frame(None, think=True).foot.rstrip().endswith(_THINK)

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
            return self.opened(text)
        parts = _HARMONY.findall(text)
        final = "".join(part for channel, part in parts if channel == "final")
        thoughts = "\n".join(part for channel, part in parts if channel != "final")
        thoughts = thoughts.replace(_END_THINK, QUOTED_END)
        return f"{_THINK}{thoughts}{_END_THINK if final else ''}{final}" if thoughts else final

    def opened(self, reply: str) -> str:
        """A reply that begins inside a thinking block, with the tag by which the prompt has opened the block."""
        inside = self.opens_thinking and not reply.lstrip().startswith(_THINK)
        return _THINK + reply if inside else reply

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

    def _answered(self) -> str:
        """A short conversation with a thought; empty if the template cannot render one."""
        from jinja2 import TemplateError

        if not self._source():
            return ""
        answer = {"role": "assistant", "content": _ANSWER} | dict.fromkeys(_THOUGHT_KEYS, _THOUGHT)
        try:
            return self._tokenizer.apply_chat_template(
                [{"role": "user", "content": _MARK}, answer], tokenize=False, enable_thinking=True
            )
        except TemplateError:
            return ""

    def _source(self) -> str | None:
        template = getattr(self._tokenizer, "chat_template", None)
        return "".join(template.values()) if isinstance(template, dict) else template


def _padded(mark: str) -> str:
    # Neither a line break alone nor a space alone, because templates add these before a message.
    return f"\n {mark} \n"
