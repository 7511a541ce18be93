"""Chat templates: the text around a user message, up to where the model's answer starts.

A template is rendered once with a marker as the message and split there into *head* (the text before the user message)
and *foot* (the text after it). The following differences between templates are handled:

- A template without a system role raises an error for system messages or silently drops them. The system message is
  then put at the start of the first user message.
- Some templates strip the white space around a message.
- Some templates take the content of a message as typed blocks only.
- A read starts where an answer without a thought starts. Thinking is switched off in the template's own way, and what
  the template writes between its generation prompt and such an answer (a recipient, the final channel of gpt-oss, an
  empty thought, a line break) is part of the foot. A thought that the generation prompt still opens is closed at once.
- A read may follow a thought that the model has written. How a template opens and closes a thought is found by
  rendering an assistant message that has one (`reasoning_content`, as in Qwen3, or `thinking`, as in gpt-oss).
- Some models write a thought before every answer, and their template has no switch. Where the template asks for a
  thought, a read follows an empty one. Otherwise a warning recommends the setting `thinking`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from checklist_rewards.backends.base import Message, Messages, Written
from checklist_rewards.chat import CompletionReader
from checklist_rewards.errors import ModelError
from checklist_rewards.images import Image, has_images, parts
from checklist_rewards.markers import END_THINK, OPENING_TAG, THINK, Section, closing_tag

logger = logging.getLogger(__name__)

_MARK = "CHECKLIST0MARK0A7"
_THOUGHT, _ANSWER = f"{_MARK}THOUGHT", f"{_MARK}ANSWER"
_THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
QUOTED_END = "< /think>"
"""A closing tag inside a thought, where it closes nothing."""
_SWITCHES = {"enable_thinking": False, "thinking": False, "reasoning": False, "thinking_budget": 0}
"""Template variables that switch thinking off: in Qwen3, GLM, Nemotron 3, SmolLM3, Gemma 4; DeepSeek V3.1, Granite,
Kimi K2.5 and K3; Cohere; Seed-OSS. A template ignores the variables that it does not use."""
_SWITCH_WORDS = (("reasoning_effort", "none"), ("reasoning_effort", "no_think"), ("thinking_mode", "disabled"))
"""Template variables that switch thinking off by a word: in Mistral; Hunyuan; MiniMax-M3. Other templates print the
word or refuse it, so it is passed only to a template that compares the variable with it."""
_SOFT_SWITCH = "/no_think"
"""What switches thinking off as a part of the system message, in Nemotron Super 1.5 and Nano 2."""
_FINAL_RESPONSE = "[BEGIN FINAL RESPONSE]\n"
_COMPLETIONS = {
    "<seed:cot_budget_reflect>": "The current thinking budget is 0, so I will directly start answering the question."
    "</seed:cot_budget_reflect>\n</seed:think>",
    "<|extra_0|><think>\n\n</think>\n": "<answer>\n",
    "Here are my reasoning steps:\n": f"\n{_FINAL_RESPONSE}",
    "<|channel>thought\n": "<channel|>",
}
"""What models write after a generation prompt with this end and before an answer, where their template does not show
it: Seed-OSS with a budget of 0, Hunyuan A13B, Apriel, Gemma 4."""
_ANALYSIS, _FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
_NAMES_THOUGHTS = re.compile("think|reason", re.IGNORECASE)
_CUE = "Answer:"


class Frame(NamedTuple):
    """The text around a user message."""

    head: str
    foot: str
    strips: bool
    """Whether the template strips the white space around the message."""
    data: tuple[tuple[int, int], ...] = ()
    """The spans of data in the head: texts that stand before an image of the message."""


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
    """The chat template of a tokenizer. Without one, messages become plain paragraphs."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self.image_token = ""
        """What stands for an image in the texts of a model that sees and has no template."""

    def frame(self, system: str | None, *, think: bool = False) -> Frame:
        """The text around a user message, after a system message if there is one. `think` is whether the model may
        think before it answers. Raises [`ModelError`] if the template drops the message."""
        rules = [_message("system", system)] if system is not None else []
        text = self._render([*rules, _USER], think)
        for mark, strips in ((_padded(_MARK), False), (_MARK, True)):
            head, match, foot = text.partition(mark)
            if match:
                return Frame(head, foot if think else self._before_answer(foot, rules), strips)
        raise ModelError("the model's chat template drops the user message.")

    @cached_property
    def thoughts(self) -> ThoughtFormat:
        """How a thought is opened and closed, by an answer with a thought that the template renders."""
        foot = self.frame(None, think=True).foot
        before, closing = self._around_thought
        if closing and before.startswith(foot):
            return ThoughtFormat(before[len(foot) :], closing)
        if closing and foot.startswith(before):  # the generation prompt has words that the rendered thought has not
            return ThoughtFormat("", closing)
        if foot.rstrip().endswith(THINK):  # opened, but the template drops finished thoughts, as DeepSeek-R1's
            return ThoughtFormat("", f"\n{END_THINK}\n\n")
        if self.frame(None).foot == foot + _FINAL:  # a template of gpt-oss that drops thoughts
            return ThoughtFormat(_ANALYSIS, f"<|end|><|start|>assistant{_FINAL}")
        return NO_FORMAT

    @cached_property
    def reader(self) -> CompletionReader:
        """Reads what a model with this template has written."""
        return CompletionReader(self._tokenizer)

    @cached_property
    def _opened(self) -> Section | None:
        """The section of a thought that the prompt of a reply opens, so that the reply begins inside it."""
        return self.reader.grammar.opened_by(self.frame(None, think=True).foot)

    def conversation(
        self, messages: Messages, *, think: bool = True, pictured: Callable[[str], str] | None = None
    ) -> tuple[str, list[tuple[int, int]]]:
        """Render a whole conversation up to where the model's reply starts. With `pictured`, messages may have images:
        it gives a text of the template with the tokens of its images.

        Returns:
            `tuple[str, list[tuple[int, int]]]`: The text, and the span of each message's content in it; with images,
            of each text between them.

        Raises:
            ModelError: If the template drops a message.
        """
        framed: list[Message] = []
        contents: list[str] = []

        def marked(text: str) -> str:
            contents.append(text)
            return _padded(_numbered(len(contents) - 1))

        for message in messages:
            content: Any = message["content"]
            if pictured is None or not has_images(content):
                content = marked(content)
            else:
                content = [
                    {"type": "image"} if isinstance(part, Image) else {"type": "text", "text": marked(part)}
                    for part in parts(content)
                ]
            framed.append({**message, "content": content})
        rest, text = self._render(framed, think), ""
        spans = []
        for index, content in enumerate(contents):
            before, match, after = rest.partition(_padded(_numbered(index)))
            if not match:
                before, match, after = rest.partition(_numbered(index))
                content = content.strip()
            if not match:
                raise ModelError("the model's chat template drops a message of the conversation.")
            text += before if pictured is None else pictured(before)
            spans.append((len(text), len(text) + len(content)))
            text, rest = text + content, after
        return text + (rest if pictured is None else pictured(rest)), spans

    def pictured_frame(self, system: str | None, before: str, think: bool, pictured: Callable[[str], str]) -> Frame:
        """As [`frame`], around what follows the last image of a user message. `before` is the message up to there;
        `pictured` is as in [`conversation`]."""
        messages = [_message("system", system)] if system else []
        text, spans = self.conversation(
            [*messages, _message("user", before + _padded(_MARK))], think=think, pictured=pictured
        )
        *data, (start, end) = spans
        return Frame(text[:start], self.frame(system, think=think).foot, text[start:end] == _MARK, tuple(data))

    def reply(self, text: str) -> str:
        """Convert a model's decoded output, with special tokens if the [`CompletionReader`] needs them, to text in
        which thinking is in a `<think>` block."""
        if text.lstrip().startswith(THINK) or (self._opened is not None and self._opened.close == END_THINK):
            return self.opened(self.reader.without_special_tokens(text))
        parsed = self.reader.grammar.parse(text, self._opened)
        answer = self.reader.without_special_tokens(parsed.answer)
        if parsed.thought is None:
            return answer
        thought = self.reader.without_special_tokens(parsed.thought).replace(END_THINK, QUOTED_END)
        return f"{THINK}{thought}{'' if parsed.open_thought else END_THINK}{answer}"

    def opened(self, reply: str) -> str:
        """A reply that begins inside a thinking block, with the tag by which the prompt has opened the block."""
        inside = self._opened is not None and not reply.lstrip().startswith(THINK)
        return THINK + reply if inside else reply

    def _render(self, messages: list[Message], think: bool) -> str:
        if not self._source():
            # A base model: plain paragraphs, after the token with which documents start in training.
            return (self._tokenizer.bos_token or "") + "\n\n".join(self._plain(m["content"]) for m in messages) + "\n"
        return self._with_rules(messages, think)

    def _plain(self, content: Any) -> str:
        """A content without a template. Its images are their placeholders."""
        if isinstance(content, str):
            return content
        return "".join(part.get("text", self.image_token) for part in content)

    def _with_rules(self, messages: Sequence[Message], think: bool, answered: bool = False) -> str:
        """Render messages with the system message where the template accepts it."""
        from jinja2 import TemplateError

        alone = len(messages) == 1 or messages[0]["role"] != "system"
        try:
            text = self._switched(messages, think, answered)
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
        rules, content = f"{system['content']}\n\n", first["content"]
        both: Any = rules + content if isinstance(content, str) else [{"type": "text", "text": rules}, *content]
        merged = {**first, "content": both}
        return self._switched([merged, *others], think, answered)

    def _switched(self, messages: Sequence[Message], think: bool, answered: bool) -> str:
        """Render messages with thinking switched on or off."""
        if think:
            return self._apply(messages, answered, enable_thinking=True)
        if self._has_soft_switch:
            messages = _softly_switched(messages)
        return self._apply(messages, answered, **self._switches)

    def _apply(self, messages: Sequence[Message], answered: bool = False, **variables: Any) -> str:
        """Render messages that end where the model's reply starts, or with its reply."""
        if self._takes_blocks:
            messages = [_in_blocks(message) for message in messages]
        return self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=not answered, **variables
        )

    def _tried(self, messages: Sequence[Message], answered: bool = False, **variables: Any) -> str:
        """Messages as the template renders them; empty if it refuses them."""
        try:
            return self._apply(messages, answered, **variables)
        except Exception:  # a template raises any error about messages that it does not expect
            return ""

    @cached_property
    def _switches(self) -> dict[str, Any]:
        """The template variables that switch thinking off."""
        source = self._source() or ""
        words = {
            name: word for name, word in _SWITCH_WORDS if re.search(rf"\b{name}\b[^%}}]*['\"]{word}['\"]", source)
        }
        return {**_SWITCHES, **words}

    @cached_property
    def _has_soft_switch(self) -> bool:
        """Whether a text in the system message switches thinking off, and no variable does."""
        if _SOFT_SWITCH not in (self._source() or ""):
            return False
        without = self._tried([_USER], **self._switches)
        switched = self._tried(_softly_switched([_USER]), **self._switches)
        return _MARK in switched and _after_user(switched) != _after_user(without)

    @cached_property
    def _takes_blocks(self) -> bool:
        """Whether the template drops a content that is not a list of typed blocks."""

        def keeps(message: Message) -> bool:
            try:
                return _MARK in self._tokenizer.apply_chat_template([message], tokenize=False)
            except Exception:  # as in `_tried`
                return False

        return not keeps(_USER) and keeps(_in_blocks(_USER))

    def _before_answer(self, foot: str, rules: list[Message]) -> str:
        """What stands between a user message and an answer without a thought, from the foot that the template writes
        with thinking switched off, and the system message if there is one."""
        if not self._source():
            return foot
        lead = self._lead(rules)
        if lead.startswith(foot):
            # Models write a space with the next word; alone, it would be another token.
            marks = lead[len(foot) :].rstrip(" ")
            return _closed(foot + marks) if marks or OPENING_TAG.search(foot) else foot + self._empty_thought
        # The generation prompt contains a thought, open or empty, that the rendered answer does not have.
        before, closing = self._around_thought
        empty = before + closing
        if empty.startswith(foot) and empty[len(foot) :].strip():
            return empty.rstrip(" ")
        foot = _closed(foot)
        thought = OPENING_TAG.search(foot)
        bare = foot[: thought.start()] if thought else foot
        marks = lead[len(bare) :].rstrip(" ") if lead.startswith(bare) else ""
        return foot + marks if marks.strip() else foot

    def _lead(self, rules: list[Message]) -> str:
        """What the template writes between a user message and an answer without a thought; empty if it renders no
        answers."""
        try:
            text = self._with_rules([*rules, _BARE_USER, _message("assistant", _ANSWER)], False, answered=True)
        except Exception:  # as in `_tried`
            return ""
        lead, answered, _ = _after_user(text).partition(_ANSWER)
        return lead if answered else ""

    @cached_property
    def _around_thought(self) -> tuple[str, str]:
        """What the template writes between a user message and a thought, and between the thought and the answer. Both
        are empty if it renders no thoughts."""
        if not self._source():
            return "", ""
        answer = _message("assistant", _ANSWER) | dict.fromkeys(_THOUGHT_KEYS, _THOUGHT)
        text = _after_user(self._tried([_BARE_USER, answer], answered=True, enable_thinking=True))
        before, _, rest = text.partition(_THOUGHT)
        closing, answered, _ = rest.partition(_ANSWER)
        return (before, closing) if answered else ("", "")

    @cached_property
    def _empty_thought(self) -> str:
        """An empty thought that a read adds if the model writes thoughts and its template has no switch for them;
        usually nothing. A model writes thoughts if its template asks for them, or if its name says so and the template
        renders them. Otherwise a template that renders thoughts may belong to a model that writes none, whose reads an
        empty thought would spoil; so there a warning recommends the setting `thinking`, and nothing is added."""
        on = {name: True for name, value in _SWITCHES.items() if value is False}
        prompts = {self._tried([_RULES, _USER], **variables) for variables in ({}, self._switches, on)}
        if self._has_soft_switch or len(prompts) > 1:
            return ""
        before, closing = self._around_thought
        foot = _after_user(self._tried([_BARE_USER]))
        rendered = before[len(foot) :] + closing if closing and before.startswith(foot) else ""
        asked = _asked_for(self._with_rules([_RULES, _USER], False))
        form = rendered or asked or _asked_for(self._tried([_USER]))
        name = _model_name(self._tokenizer)
        named = _NAMES_THOUGHTS.search(name) is not None
        added = form if asked or named else ""
        if form or named:
            logger.warning(
                "%s may write a thought before every answer, and its chat template has no switch for thoughts. Labels "
                "are read %s. If reads are unanswered because of a low label mass, let the judge think first "
                "(thinking=256).",
                name or "this model",
                "after an empty thought" if added else "at the start of the reply",
            )
        return added

    def _source(self) -> str | None:
        template = getattr(self._tokenizer, "chat_template", None)
        return "".join(template.values()) if isinstance(template, dict) else template


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _padded(mark: str) -> str:
    # Neither a line break alone nor a space alone, because templates add these before a message.
    return f"\n {mark} \n"


_RULES = _message("system", "Answer with one word.")
_USER, _BARE_USER = _message("user", _padded(_MARK)), _message("user", _MARK)


def _numbered(index: int) -> str:
    return f"{_MARK}N{index}N"


def _in_blocks(message: Message) -> Message:
    if not isinstance(message["content"], str):
        return message
    return {**message, "content": [{"type": "text", "text": message["content"]}]}  # type: ignore[dict-item]


def _softly_switched(messages: Sequence[Message]) -> list[Message]:
    """Messages with the text that switches thinking off in the system message."""
    first, *others = messages
    if first["role"] != "system":
        return [_message("system", _SOFT_SWITCH), *messages]
    return [{**first, "content": f"{first['content']}\n\n{_SOFT_SWITCH}"}, *others]


def _after_user(text: str) -> str:
    """What a rendered conversation contains after the first user message."""
    return text.partition(_MARK)[2]


def _closed(foot: str) -> str:
    """A foot in which the thought that it opens, if any, is closed."""
    for end, completion in _COMPLETIONS.items():
        if foot.endswith(end):
            return foot + completion
    tag = next(reversed(list(OPENING_TAG.finditer(foot))), None)
    if tag is None or closing_tag(tag[0]) in foot[tag.end() :]:
        return foot
    if tag[0] == THINK or foot.endswith("\n"):  # the form in which thinking models write an empty block
        return f"{foot.rstrip()}\n\n{closing_tag(tag[0])}\n\n"
    return foot + closing_tag(tag[0])


def _asked_for(prompt: str) -> str:
    """An empty thought of the form that a prompt asks for; empty if it asks for none."""
    for tag in OPENING_TAG.finditer(prompt):
        if closing_tag(tag[0]) in prompt[tag.end() :]:
            return _closed(tag[0])
    return _FINAL_RESPONSE if _FINAL_RESPONSE.strip() in prompt else ""


def _model_name(tokenizer: Any) -> str:
    """The name of a model without its owner and its folder."""
    path = Path(str(getattr(tokenizer, "name_or_path", "")))
    return path.parent.parent.name if path.parent.name == "snapshots" else path.name
