"""What a vLLM server took from its prefix cache, by the counters of its `/metrics`.

vLLM puts cached tokens into a response only if it was started with `--enable-prompt-tokens-details`, and for a list of
prompts only those of the last one. Its counters are the server's, other clients' traffic included. So they are read
before and after a call, and are used only if exactly the call's own prompt tokens were looked up in between. Otherwise
the number is not known.
"""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from checklist_rewards.backends.openai.connection import Connection

_COUNTER = re.compile(r"^vllm:prefix_cache_(queries|hits)(?:_total)?(?:\{.*\})? ([0-9.e+]+)$", re.M)
_LOOKS, _PAUSE = 3, 0.05
"""A server counts a step after it has sent its answers: how often to look, and the seconds between."""


class Counts(NamedTuple):
    """Prompt tokens since the server's start, over all its engines."""

    queries: float
    hits: float


class PrefixCache:
    """The prefix cache of the server at the other end of a connection; not asked again once it proved not to count.

    Args:
        connection ([`Connection`]): to an address that ends in "/v1".
    """

    def __init__(self, connection: Connection):
        self.connection = connection
        self._url = connection.address.removesuffix("/v1") + "/metrics"
        self._counts = True

    async def counts(self) -> Counts | None:
        """What the counters say; None if there are none."""
        if not self._counts:
            return None
        text = await self.connection.text(self._url)
        found = counts_in(text or "")
        self._counts = found is not None
        return found

    async def computed(self, before: Counts | None, prompt_tokens: int) -> int | None:
        """The tokens of a call that were not in the cache; None if that is not known.

        Args:
            before ([`Counts`]): what [`counts`] gave before the call.
            prompt_tokens (`int`): of all prompts of the call.
        """
        for look in range(_LOOKS):
            after = None if before is None else await self.counts()
            if before is None or after is None:
                return None
            asked = after.queries - before.queries
            if asked == prompt_tokens:
                return prompt_tokens - int(after.hits - before.hits)
            if asked > prompt_tokens:
                return None  # another client's, or requests that were sent twice
            if look < _LOOKS - 1:
                await asyncio.sleep(_PAUSE)
        self._counts = asked > 0  # the cache is switched off, and so are its counters
        return None


def counts_in(metrics: str) -> Counts | None:
    """The counters in Prometheus' text format; None if they are not there."""
    totals: dict[str, float] = {}
    for name, value in _COUNTER.findall(metrics):
        totals[name] = totals.get(name, 0.0) + float(value)
    return Counts(totals["queries"], totals["hits"]) if totals.keys() == {"queries", "hits"} else None
