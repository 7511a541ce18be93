"""Prompts for models whose tokenizer comes from mistral-common (a folder with `tekken.json` and no `tokenizer.json`).

mistral-common builds the whole prompt. It has no template text to split, and it never creates a control token inside a
message. The prompts of a group are therefore tokenized whole, and the tokens that they have in common are the prefix.
A thought before a label is plain text: mistral-common has no way to continue a reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from checklist_rewards.backends.base import Messages, ReadGroup
from checklist_rewards.backends.encoding import Ids, encodable
from checklist_rewards.backends.templates import NO_FORMAT
from checklist_rewards.backends.tokens import ChatTokenizer, TokenGroup, shared_prefix
from checklist_rewards.prompts import chat_messages


class MistralChatTokenizer(ChatTokenizer):
    """A [`ChatTokenizer`] for tokenizers of mistral-common.

    Args:
        tokenizer (`MistralCommonBackend`): The tokenizer.
    """

    @override
    def groups(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        return [shared_prefix(self._prompts(group)) for group in groups]

    def _prompts(self, group: ReadGroup) -> list[Ids]:
        prompts = [self.prompt(chat_messages(group.system, group.prefix + tail)) for tail in group.tails or ("",)]
        if group.written:
            texts = [NO_FORMAT.around(written)[0] for written in group.written]
            prompts = [prompt + self.encoder.after(text) for prompt, text in zip(prompts, texts, strict=True)]
        return prompts

    @override
    def prompt(self, messages: Messages) -> Ids:
        chat = [{**message, "content": encodable(message["content"])} for message in messages]
        return self.tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
