"""How many tokens a request takes at most, known before it is sent: what budgets and dry runs count with.

With the model's tokenizer, prompts are counted as they are. Without it a prompt takes at most a token per byte of its
text, and the chat template adds to it; English takes about a quarter of that. A template that adds more than
`TEMPLATE_TOKENS` (a long system prompt of its own) breaks this bound for very short prompts.

A label read of a served model may take a second request: a server that gives no log-probabilities, or another word, is
asked to write the label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import TemplateError

from checklist_rewards.backends.base import Messages, ReadGroup, Sampling
from checklist_rewards.backends.encoding import encodable
from checklist_rewards.backends.models import POCKET, pocket_dir
from checklist_rewards.errors import ModelError

if TYPE_CHECKING:
    from checklist_rewards.backends.tokens import ChatTokenizer

WORD_TOKENS = 16
"""Of the answer to a label read that is a word, not log-probabilities."""
THINKING_TOKENS = 4096
"""What models that think before every answer get on top of it."""
TEMPLATE_TOKENS = 128
"""What a chat template may add to a prompt."""
_TOKENIZER = "tokenizer_config.json"
_THINKS = re.compile(r"(?:^|/)(?:o[134]|gpt-5)(?![a-z0-9])(?!.*chat)", re.I)


class Tokens(NamedTuple):
    """Tokens of one request."""

    prompt: int
    completion: int


def thinks(model: str) -> bool:
    """Whether this is one of OpenAI's reasoning models, whose thinking is billed with every answer."""
    return _THINKS.search(model) is not None


class Bounds:
    """Bounds for the requests to one model.

    Args:
        model (`str`): its name.
        tokens ([`ChatTokenizer`], *optional*): its tokenizer, where there is one.
        requests (`int`, *optional*, defaults to `1`): that a label read may take: 2 where the second asks for a word.
    """

    def __init__(self, model: str, tokens: ChatTokenizer | None = None, *, requests: int = 1):
        self.tokens, self.requests = tokens, requests
        self._thinking = THINKING_TOKENS if thinks(model) else 0
        self._answer = 1 + (requests - 1) * WORD_TOKENS + requests * self._thinking

    def reads(self, groups: Sequence[ReadGroup]) -> list[list[Tokens]]:
        """Per group, per tail."""
        if self.tokens is not None:
            sizes = [[len(group.prefix) + len(tail) for tail in group.tails] for group in self.tokens.groups(groups)]
        else:
            shared = [_bytes((group.system or "") + group.prefix) for group in groups]
            sizes = [
                [size + _bytes(tail) + TEMPLATE_TOKENS for tail in group.tails]
                for size, group in zip(shared, groups, strict=True)
            ]
        return [[Tokens(self.requests * size, self._answer) for size in group] for group in sizes]

    def reply(self, messages: Messages, sampling: Sampling) -> Tokens:
        """Of `sampling.n` replies to one prompt."""
        completion = sampling.n * (sampling.max_tokens + self._thinking)
        if self.tokens is not None:
            try:
                return Tokens(len(self.tokens.prompt(messages)), completion)
            except (ModelError, TemplateError):  # the server's template may allow what the tokenizer's does not
                pass
        return Tokens(sum(_bytes(message["content"]) for message in messages) + TEMPLATE_TOKENS, completion)


@cache
def local_tokenizer(model: str) -> ChatTokenizer | None:
    """The tokenizer of a model whose files are on this machine, without loading or fetching anything else; None where
    they are not."""
    from huggingface_hub import try_to_load_from_cache

    source = str(pocket_dir()) if model == POCKET else model
    try:
        if not Path(source).is_dir() and not isinstance(try_to_load_from_cache(source, _TOKENIZER), str):
            return None
        from checklist_rewards.backends.tokens import load_chat_tokenizer  # takes seconds

        return load_chat_tokenizer(source, local_files_only=True)
    except Exception:  # whatever is wrong with the name or the files, loading the model will say it
        return None


def _bytes(text: str) -> int:
    """Bytes of a text, and of what neutralizing its control strings adds (`openai/neutral.py`)."""
    return len(encodable(text).encode()) + 3 * (text.count("<") + text.count("[") + text.count("]"))
