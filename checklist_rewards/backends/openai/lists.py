"""Sends reads in lists of prompts, to servers that support them (`completions`).

Prompts are sent in their order, a few hundred per request, so that those with the same prefix are in one request. With
replicas, each replica gets the lists of the prefixes that it holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import chain

from checklist_rewards.backends.openai import completions
from checklist_rewards.backends.openai.cached import PrefixCache
from checklist_rewards.backends.openai.connection import Connection
from checklist_rewards.backends.openai.failures import Failure
from checklist_rewards.backends.reads import Answer
from checklist_rewards.errors import ModelError
from checklist_rewards.scores.reasons import Reason, Unanswered

logger = logging.getLogger(__name__)

_READS_PER_REQUEST = 256
_PATIENCE = 4.0
_ATTEMPTS = 2


class PromptLists:
    """The prompt lists of one model.

    Args:
        connection ([`Connection`]): The connection to the server.
        model (`str`): The name of the model on the server.
        cache ([`PrefixCache`], *optional*): The server's prefix cache.
    """

    def __init__(self, connection: Connection, model: str, cache: PrefixCache | None):
        self.connection, self.model = connection, model
        self._cache = cache
        self.supported: bool | None = None
        """Whether the server supports lists. None until [`probe`] has an answer."""

    async def probe(self, ids: list[int]) -> bool | Failure:
        """Whether the server supports lists; tested once, with a prompt of one token."""
        if self.supported is None:
            response = await self.connection.post("/completions", completions.body(self.model, [ids[:1]], ids))
            if isinstance(response, Failure) and not response.bad_request:
                return response
            choices = [] if isinstance(response, Failure) else response["choices"]
            self.supported = isinstance(completions.answers(choices, ids, 1)[0], dict)
            if not self.supported:
                logger.info(
                    "the server at %s does not support logprob_token_ids; each read is a separate chat request.",
                    self.connection.address,
                )
        return self.supported

    async def answers(
        self, prompts: Sequence[list[int]], ids: list[int], keys: Sequence[str]
    ) -> tuple[list[Answer], int | None]:
        """Get an answer per prompt.

        Args:
            prompts (sequence of `list[int]`): The prompts as token ids.
            ids (`list[int]`): The tokens whose log-probabilities are requested.
            keys (sequence of `str`): The prefix of each prompt; see [`prefix_key`].

        Returns:
            `tuple[list[Answer], int | None]`: The answers in order, and the number of computed prompt tokens, None if
            unknown.

        Raises:
            ModelError: If the server rejects all requests, for example because of a wrong key.
        """
        before = None if self._cache is None else await self._cache.counts()
        answers: list[Answer] = [Unanswered(Reason.EMPTY_CHOICES)] * len(prompts)

        async def ask(places: list[int]) -> None:
            found = await self._complete([prompts[place] for place in places], ids, keys[places[0]])
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer

        await asyncio.gather(*map(ask, self._requests(keys)))
        if self._cache is None or any(isinstance(answer, str) for answer in answers):
            return answers, None
        return answers, await self._cache.computed(before, sum(map(len, prompts)))

    def _requests(self, keys: Sequence[str]) -> list[list[int]]:
        """The prompts of each request, by their index."""
        by_replica: dict[int, list[int]] = {}
        homes = {key: self.connection.home(key) for key in dict.fromkeys(keys)}
        for place, key in enumerate(keys):
            by_replica.setdefault(homes[key], []).append(place)
        lists = [
            [places[start : start + _READS_PER_REQUEST] for start in range(0, len(places), _READS_PER_REQUEST)]
            for places in by_replica.values()
        ]
        # In turns, so that all replicas are busy from the start.
        return sorted(chain(*lists), key=lambda places: places[0])

    async def _complete(self, prompts: Sequence[list[int]], ids: list[int], key: str) -> list[Answer]:
        """Send one request. Answers that are missing or duplicated in the response are requested once more."""
        answers: list[Answer | None] = [None] * len(prompts)
        for _ in range(_ATTEMPTS):
            missing = [place for place, answer in enumerate(answers) if answer is None]
            if not missing:
                break
            batch = [prompts[place] for place in missing]
            tokens = sum(map(len, batch)) + len(batch)
            response = await self.connection.post(
                "/completions",
                completions.body(self.model, batch, ids),
                tokens=tokens,
                patience=_PATIENCE,
                prefix=key,
                reads=len(batch),
            )
            if isinstance(response, Failure):
                if response.fatal:
                    raise ModelError(
                        f"the server at {self.connection.address} rejected a request: {response.unanswered.detail}"
                    )
                return [response.unanswered if answer is None else answer for answer in answers]
            for place, answer in zip(missing, completions.answers(response["choices"], ids, len(batch)), strict=True):
                answers[place] = answer
        return [Unanswered(Reason.EMPTY_CHOICES) if answer is None else answer for answer in answers]
