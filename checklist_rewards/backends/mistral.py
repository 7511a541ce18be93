"""Prompts for models whose tokenizer comes from mistral-common (a folder with `tekken.json` and no `tokenizer.json`).

There the library builds the whole prompt: it has no template text to cut, and it never forms a control token inside a
message. Prompts of a group are therefore tokenized whole, and the tokens that they begin with are their prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

from checklist_rewards.backends.base import Messages, ReadGroup
from checklist_rewards.backends.encoding import Ids, encodable
from checklist_rewards.backends.tokens import ChatTokenizer, TokenGroup, shared_prefix


class MistralChatTokenizer(ChatTokenizer):
    """See [`ChatTokenizer`].

    Args:
        tokenizer (`MistralCommonBackend`).
    """

    def groups(self, groups: Sequence[ReadGroup]) -> list[TokenGroup]:
        """See [`ChatTokenizer.groups`]."""
        return [
            shared_prefix([self.prompt(_messages(group.system, group.prefix + tail)) for tail in group.tails or ("",)])
            for group in groups
        ]

    def prompt(self, messages: Messages) -> Ids:
        """See [`ChatTokenizer.prompt`]."""
        chat = [{**message, "content": encodable(message["content"])} for message in messages]
        return self.tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)


def _messages(system: str | None, user: str) -> Messages:
    rules = [] if system is None else [{"role": "system", "content": system}]
    return [*rules, {"role": "user", "content": user}]
