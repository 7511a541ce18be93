"""Counts the prompt tokens that a vLLM server took from its prefix cache, using the counters of its `/metrics`.

vLLM reports cached tokens in a response only if it was started with `--enable-prompt-tokens-details`, and for a list
of prompts only those of the last one. The counters of `/metrics` include the traffic of other clients. So they are
read before and after a call, and used only if the number of tokens in between is exactly that of the call's prompts.
Otherwise the number is unknown.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

from checklist_rewards.backends.openai.connection import Connection

_COUNTER = re.compile(r"^vllm:prefix_cache_(queries|hits)(?:_total)?(?:\{.*\})? ([0-9.e+]+)$", re.M)
_LOOKS, _PAUSE = 3, 0.05
"""How often to read the counters, and the seconds between. The server updates them after it has sent its answers."""
_MISSES = 3
"""Calls in a row without a usable answer of `/metrics`, after which it is not requested again."""


class Counts(NamedTuple):
    """Prompt tokens of all engines since the start of the server: all (`queries`), and those cached (`hits`)."""

    queries: float
    hits: float


class PrefixCache:
    """The prefix cache of a vLLM server or of its replicas. The counters are not requested again if no replica has
    them, or after several calls in a row in which they were not reported or did not change.

    Args:
        connection ([`Connection`]): The connection to the server. Its addresses end in "/v1".
    """

    def __init__(self, connection: Connection):
        self.connection = connection
        self._counts = True
        self._misses = 0

    async def counts(self) -> Counts | None:
        """Read the counters, added up over all replicas. None if a replica has none."""
        if not self._counts or not self.connection.is_whole:
            return None
        texts = await self.connection.texts("/metrics")
        counts = [counts_in(text or "") for text in texts]
        found = [count for count in counts if count is not None]
        if None in texts:
            self._missed()
        elif not found:
            self._counts = False
        return _total(found) if len(found) == len(counts) else None

    async def computed(self, before: Counts | None, prompt_tokens: int) -> int | None:
        """The number of prompt tokens of a call that were not in the cache. None if unknown.

        Args:
            before ([`Counts`]): The result of [`counts`] before the call.
            prompt_tokens (`int`): The tokens of all prompts of the call.
        """
        for look in range(_LOOKS):
            after = None if before is None else await self.counts()
            if before is None or after is None:
                return None
            queries = after.queries - before.queries
            if queries == prompt_tokens:
                self._misses = 0
                return prompt_tokens - int(after.hits - before.hits)
            if queries > prompt_tokens:
                return None  # requests of another client, or requests that were sent twice
            if look < _LOOKS - 1:
                await asyncio.sleep(_PAUSE)
        if queries == 0:  # the counters are late, or the prefix cache is disabled
            self._missed()
        return None

    def _missed(self) -> None:
        self._misses += 1
        self._counts = self._misses < _MISSES


def _total(counts: Sequence[Counts]) -> Counts:
    return Counts(sum(count.queries for count in counts), sum(count.hits for count in counts))


def counts_in(metrics: str) -> Counts | None:
    """Parse the counters from Prometheus' text format. None if they are missing."""
    totals: dict[str, float] = {}
    for name, value in _COUNTER.findall(metrics):
        totals[name] = totals.get(name, 0.0) + float(value)
    return Counts(totals["queries"], totals["hits"]) if totals.keys() == {"queries", "hits"} else None
