"""Upper bounds for the number of tokens of a request before it is sent, used by budgets and dry runs.

With the model's tokenizer, prompts are counted exactly. Without it, the bound is one token per byte of the text plus
`TEMPLATE_TOKENS` for the chat template; English text takes about a quarter of that. A template that adds more than
`TEMPLATE_TOKENS` (a long system prompt of its own) may exceed the bound for very short prompts.

A label read from a server may take a second request: if the server returns no log-probabilities or none of the labels,
it is requested to write the label.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from checklist_rewards.backends.base import Messages, ReadGroup, Sampling
from checklist_rewards.backends.encoding import encodable
from checklist_rewards.backends.models import POCKET, pocket_dir
from checklist_rewards.backends.packaged import PACKAGED, packaged_folder
from checklist_rewards.errors import ModelError

if TYPE_CHECKING:
    from checklist_rewards.backends.tokens import ChatTokenizer

WORD_TOKENS = 16
"""Maximum length of the answer to a label read without log-probabilities."""
THINKING_TOKENS = 4096
"""Additional tokens for models that think before every answer."""
TEMPLATE_TOKENS = 128
"""Assumed maximum number of tokens that a chat template adds to a prompt."""
_TOKENIZER = "tokenizer_config.json"
_THINKS = re.compile(r"(?:^|/)(?:o[134]|gpt-5)(?![a-z0-9])(?!.*chat)", re.I)


class Tokens(NamedTuple):
    """Number of tokens of a request."""

    prompt: int
    completion: int


def thinks(model: str) -> bool:
    """Whether `model` is one of OpenAI's reasoning models, whose thinking is billed with every answer."""
    return _THINKS.search(model) is not None


class Bounds:
    """Upper bounds for the tokens of requests to a model.

    Args:
        model (`str`): The name of the model.
        tokens ([`ChatTokenizer`], *optional*): The tokenizer of the model, if available.
        requests (`int`, *optional*, defaults to `1`): Maximum number of requests per label read: 2 if a second one may
            be needed to get the label as a word.
    """

    def __init__(self, model: str, tokens: ChatTokenizer | None = None, *, requests: int = 1):
        self.tokens, self.requests = tokens, requests
        self._thinking = THINKING_TOKENS if thinks(model) else 0
        self._answer = 1 + (requests - 1) * WORD_TOKENS + requests * self._thinking

    def reads(self, groups: Sequence[ReadGroup]) -> list[list[Tokens]]:
        """Bounds for label reads: one list per group with one entry per tail."""
        if self.tokens is not None:
            tokenized = self.tokens.groups_ahead(groups)
            sizes = [[len(group.prefix) + len(tail) for tail in group.tails] for group in tokenized]
        else:
            prefixes = [_bytes((group.system or "") + group.prefix) for group in groups]
            sizes = [
                [
                    size + _bytes(tail + "".join((w.thought, w.question) if w else ())) + TEMPLATE_TOKENS
                    for tail, w in zip_longest(group.tails, group.written)
                ]
                for size, group in zip(prefixes, groups, strict=True)
            ]
        return [[Tokens(self.requests * size, self._answer) for size in group] for group in sizes]

    def reply(self, messages: Messages, sampling: Sampling) -> Tokens:
        """Bound for `sampling.n` replies to one prompt."""
        completion = sampling.n * (sampling.max_tokens + self._thinking)
        if self.tokens is not None:
            from jinja2 import TemplateError  # installed wherever a tokenizer is

            try:
                return Tokens(len(self.tokens.prompt(messages)), completion)
            except (ModelError, TemplateError):  # the server may use a template that accepts these messages
                pass
        return Tokens(sum(_bytes(message["content"]) for message in messages) + TEMPLATE_TOKENS, completion)


@cache
def local_tokenizer(model: str) -> ChatTokenizer | None:
    """The tokenizer of a model if its files are on this machine, else None. Nothing is downloaded."""
    source = str(pocket_dir()) if model == POCKET else model
    if model in PACKAGED:
        source = str(packaged_folder(model))  # if it was prepared
    try:
        from huggingface_hub import try_to_load_from_cache

        if not Path(source).is_dir() and not isinstance(try_to_load_from_cache(source, _TOKENIZER), str):
            return None
        from checklist_rewards.backends.chat_tokenizer import load_chat_tokenizer  # this import takes seconds

        return load_chat_tokenizer(source, local_files_only=True)
    except Exception:  # without transformers; an invalid name and broken files are reported when the model is loaded
        return None


def _bytes(text: str) -> int:
    """Bytes of a text, including those that neutralizing its control strings may add (`openai/neutral.py`)."""
    return len(encodable(text).encode()) + 3 * (text.count("<") + text.count("[") + text.count("]"))
