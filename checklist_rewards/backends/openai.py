"""A vLLM server, spoken to over its OpenAI-compatible API.

Reads are prompts of token ids (tokenized here, with the served model's own tokenizer), a few hundred in one
`/v1/completions` request, a few requests at a time so that the server never runs dry. vLLM's `logprob_token_ids`
returns the exact log-probability of the named tokens, under keys that carry the id and not the text ("yes" and " yes"
may look alike as text).

Connection errors, timeouts, 429 and 5xx are retried a few times with growing pauses; a request that still fails
leaves its own reads unanswered and no others. What no retry can mend (no such server, another model, a server that is
not vLLM) is a [`ModelError`].
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import openai
from transformers import AutoTokenizer

from checklist_rewards.backends.base import TOO_LONG, Messages, ReadGroup, ReadResult, Reply, Sampling
from checklist_rewards.backends.models import served_identity
from checklist_rewards.backends.reads import Answer, read_prompts
from checklist_rewards.backends.tokens import ChatTokenizer
from checklist_rewards.errors import ModelError

logger = logging.getLogger(__name__)

_READS_PER_REQUEST = 256
_REQUESTS_AT_ONCE = 4
_CHATS_AT_ONCE = 64
_RETRIES = 4
_RETRIED = (408, 409, 429)


class OpenAIBackend:
    """A model on a vLLM server.

    Args:
        model (`str`): the name that the server knows it by.
        base_url (`str`): address of the server, such as "http://localhost:8000/v1". The key, if it wants one, is taken
            from `OPENAI_API_KEY`.

    Raises [`ModelError`] if no server answers, if it does not serve `model`, or if the model's tokenizer cannot be
    loaded here.
    """

    chunk_reads = 4096

    def __init__(self, model: str, base_url: str):
        self.model = model
        self.base_url = base_url
        self.identity = served_identity(model, base_url)
        self.client = openai.OpenAI(
            base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY") or "EMPTY", max_retries=_RETRIES
        )
        card = self._card()
        self.limit: int = getattr(card, "max_model_len", None) or 2**31
        source = getattr(card, "root", None) or model
        try:
            self.tokens = ChatTokenizer(AutoTokenizer.from_pretrained(source))
        except (OSError, ValueError) as error:
            raise ModelError(
                f"the tokenizer {source!r} of the model served at {base_url} cannot be loaded here; reads need it."
            ) from error

    def read(self, groups: Sequence[ReadGroup], labels: Sequence[str]) -> ReadResult:
        """See [`Backend`]. `computed_tokens` is an upper bound: what the server found in its cache it does not say for
        a list of prompts."""
        return read_prompts(self.tokens, groups, labels, self._ask, limit=self.limit)

    def generate(self, prompts: Sequence[Messages], sampling: Sampling) -> list[list[Reply]]:
        """See [`Backend`]. The server renders the chat template."""
        with ThreadPoolExecutor(_CHATS_AT_ONCE) as pool:
            return list(pool.map(lambda messages: self._chat(messages, sampling), prompts))

    def _card(self) -> Any:
        try:
            cards = list(self.client.models.list())
        except openai.APIStatusError as error:
            raise ModelError(f"the server at {self.base_url} does not list its models: {error.message}") from error
        except openai.APIError as error:
            raise ModelError(
                f"no server answers at {self.base_url} ({error.message}); start one with: vllm serve {self.model}"
            ) from error
        for card in cards:
            if card.id == self.model:
                return card
        raise ModelError(f"the server at {self.base_url} serves {[card.id for card in cards]}, not {self.model!r}.")

    def _ask(self, prompts: list[list[int]], ids: list[int]) -> tuple[list[Answer], int]:
        requests = [prompts[i : i + _READS_PER_REQUEST] for i in range(0, len(prompts), _READS_PER_REQUEST)]
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            answers = list(chain.from_iterable(pool.map(lambda request: self._complete(request, ids), requests)))
        return answers, sum(map(len, prompts))

    def _complete(self, prompts: list[list[int]], ids: list[int]) -> list[Answer]:
        try:
            completion = self.client.completions.create(
                model=self.model,
                prompt=prompts,
                max_tokens=1,
                temperature=0,
                logprobs=1,
                extra_body={"logprob_token_ids": ids, "return_tokens_as_token_ids": True},
            )
        except openai.APIError as error:
            return [self._failed(error)] * len(prompts)
        return [self._named(choice, ids) for choice in sorted(completion.choices, key=lambda choice: choice.index)]

    def _named(self, choice: Any, ids: list[int]) -> Answer:
        top = choice.logprobs.top_logprobs[0] if choice.logprobs and choice.logprobs.top_logprobs else {}
        try:
            return {token: top[f"token_id:{token}"] for token in ids}
        except KeyError as missing:
            raise ModelError(
                f"the server at {self.base_url} gave no log-probability of {missing}; reads need a vLLM server that "
                "knows `logprob_token_ids`."
            ) from missing

    def _chat(self, messages: Messages, sampling: Sampling) -> list[Reply]:
        room = self.limit - len(self.tokens.prompt(messages))
        if room < 1:
            return [Reply(None, unanswered=TOO_LONG)] * sampling.n
        chat: Any = list(messages)
        try:
            completion = self.client.chat.completions.create(
                model=self.model,
                messages=chat,
                n=sampling.n,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=min(sampling.max_tokens, room),
                seed=sampling.seed,
            )
        except openai.APIError as error:
            return [Reply(None, unanswered=self._failed(error))] * sampling.n
        return [Reply(choice.message.content or "", choice.finish_reason) for choice in completion.choices]

    def _failed(self, error: openai.APIError) -> str:
        """Why there is no answer after all retries. Raises [`ModelError`] for what no retry would have mended."""
        status = error.status_code if isinstance(error, openai.APIStatusError) else None
        if status is not None and status < 500 and status not in _RETRIED:
            raise ModelError(f"the server at {self.base_url} refused a request: {error.message}") from error
        logger.warning("the server at %s failed: %s", self.base_url, error.message)
        return f"backend_error: {error.message}"
