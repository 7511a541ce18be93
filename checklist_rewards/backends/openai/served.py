"""What a running server reports: the model that it serves, how it renders a chat, and its prefix cache.

[`served_card`] also compares what the replicas report. [`PrefixCache`] counts the prompt tokens that a vLLM server
took from its prefix cache, using the counters of its `/metrics`: vLLM reports cached tokens in a response only if it
was started with `--enable-prompt-tokens-details`, and for a list of prompts only those of the last one. The counters
of `/metrics` include the traffic of other clients. So they are read before and after a call, and used only if the
number of tokens in between is exactly that of the call's prompts. Otherwise the number is unknown.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from checklist_rewards.backends.base import Usage
from checklist_rewards.backends.openai.client import Connection
from checklist_rewards.backends.openai.wire import NOT_SERVED, Failure, in_words
from checklist_rewards.errors import ModelError, NoServerError
from checklist_rewards.images import has_images, images_in

logger = logging.getLogger(__name__)

_SHOWN_MODELS = 8
_SAME = ("root", "parent", "max_model_len")
"""What replicas of one model have in common, if they report it."""


async def served_card(connection: Connection, model: str) -> dict[str, Any]:
    """The server's description of the model; empty if the server does not list its models.

    A replica that does not respond is used as soon as it does, if it then reports the same as the others.

    Raises:
        ModelError: If no server responds, if one does not accept the API key or does not serve `model`, or if replicas
            serve different models.
    """
    places = range(len(connection.addresses))
    responses = await asyncio.gather(*(connection.get("/models", "data", place) for place in places))
    cards: dict[str, dict[str, Any]] = {}
    absent: list[str] = []
    why: Failure | None = None
    for address, response in zip(connection.addresses, responses, strict=True):
        if not isinstance(response, Failure):
            cards[address] = _card(response, model, address)
        elif response.status in NOT_SERVED or "scope" in response.message:  # a key may be for the model only
            cards[address] = {}
        elif response.fatal:
            raise ModelError(f"the server at {address} does not accept the API key ({response.unanswered}).")
        else:
            absent.append(address)
            why = why or response
    if why is not None and not cards:
        raise NoServerError(
            f"no OpenAI-compatible server responds at {connection.address} ({in_words(why)}); check base_url, "
            f"which usually ends with /v1, or start a server with: vllm serve {model}"
        )
    if absent:
        logger.warning("no server responds at %s; the run starts with the other replicas.", ", ".join(absent))
    usual = Counter(map(_identity, cards.values())).most_common(1)[0][0]
    card = next(card for card in cards.values() if _identity(card) == usual)

    def check(response: dict[str, Any], address: str) -> str | None:
        try:
            found = _card(response, model, address)
        except ModelError as error:
            return str(error)
        return _difference(found, card, address)

    for address, found in cards.items():
        if (complaint := _difference(found, card, address)) is not None:
            raise ModelError(f"all replicas must serve the same model; {complaint}.")
    connection.check = check
    return card


def _card(response: dict[str, Any], model: str, address: str) -> dict[str, Any]:
    """The description of the model in a list of models. Raises [`ModelError`] if it is missing."""
    listed = [card for card in response["data"] if isinstance(card, dict)]
    cards = {card["id"]: card for card in listed if isinstance(card.get("id"), str)}
    if not cards:
        return {}  # some proxies return an empty list
    if model not in cards:
        names = list(cards)
        if address.startswith("https://") and len(names) > 1:
            logger.warning("the server at %s does not list %r among its %d models.", address, model, len(names))
            return {}
        more = f" and {len(names) - _SHOWN_MODELS} more" if len(names) > _SHOWN_MODELS else ""
        raise ModelError(f"the server at {address} serves {names[:_SHOWN_MODELS]}{more}, not {model!r}.")
    length = cards[model].get("max_model_len")
    is_known = isinstance(length, int) and length > 0
    return {name: value for name, value in cards[model].items() if name != "max_model_len" or is_known}


def _identity(card: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(card.get(name)) for name in _SAME)


def _difference(card: dict[str, Any], usual: dict[str, Any], address: str) -> str | None:
    """How a replica differs from the others, in words. None if it does not."""
    for name in _SAME:
        if card.get(name) != usual.get(name):
            return f"the server at {address} reports {name} {card.get(name)!r}, the others {usual.get(name)!r}"
    return None


async def served_prompt(
    connection: Connection, model: str, decode: Callable[[list[int]], str] | None = None
) -> str | None:
    """A chat of one message as the server renders it, up to where the reply starts: from `/tokenize` and `/detokenize`
    of vLLM, or `/apply-template` of llama.cpp. None if the server has neither.

    Args:
        connection ([`Connection`]): The connection to the server.
        model (`str`): The name of the model.
        decode (`Callable[[list[int]], str]`, *optional*): Converts token ids to text, if the tokenizer is here.
    """
    chat = [{"role": "user", "content": "Hello."}]
    tokens = (await connection.ask("/tokenize", {"model": model, "messages": chat})).get("tokens")
    prompt: Any = None
    if isinstance(tokens, list) and tokens and all(isinstance(token, int) and 0 <= token < 2**31 for token in tokens):
        if decode is not None:
            return decode(tokens)
        prompt = (await connection.ask("/detokenize", {"model": model, "tokens": tokens})).get("prompt")
    if not isinstance(prompt, str):
        prompt = (await connection.ask("/apply-template", {"messages": chat})).get("prompt")
    return prompt if isinstance(prompt, str) and prompt else None


async def has_encoded(*texts: str) -> bool:
    """Whether texts have images. They are encoded here, each once: it takes longer than a request."""
    if not any(map(has_images, texts)):
        return False
    await asyncio.to_thread(lambda: [image.url for image in images_in(*texts)])
    return True


def takes_no_images(model: str, where: str, why: str) -> ModelError:
    """The error of a server that refuses a small white image."""
    return ModelError(
        f"{model!r} at {where} does not take images{why}; use a vision-language model, or judge by text alone with "
        "images='ignore'."
    )


_COUNTER = re.compile(r"^vllm:prefix_cache_(queries|hits)(?:_total)?(?:\{.*\})? (\d+(?:\.\d+)?(?:e\+?\d+)?)$", re.M)
_LOOKS, _PAUSE = 3, 0.05
"""How often to read the counters, and the seconds between. The server updates them after it has sent its answers."""
_MISSES = 3
"""Calls in a row whose counters were missing or did not change, after which they are not requested again."""


class Counts(NamedTuple):
    """Prompt tokens of all engines since the start of the server: all (`queries`), and those cached (`hits`)."""

    queries: float
    hits: float


class PrefixCache:
    """The prefix cache of a vLLM server or of its replicas. The counters are not requested again after several calls
    in a row in which they were missing or did not change. A server whose `card` has no context length is not vLLM:
    nothing is requested then."""

    def __init__(self, connection: Connection, card: Mapping[str, Any]):
        self.connection = connection
        self._tries = _MISSES if "max_model_len" in card else 0

    async def counts(self) -> Counts | None:
        """Read the counters, added up over all replicas. None if a replica has none or is set aside."""
        if self._tries <= 0 or not self.connection.is_whole:
            return None
        counts = list(map(counts_in, await self.connection.texts("/metrics")))
        if None in counts:
            self._tries -= 1
            return None
        return Counts(*map(sum, zip(*filter(None, counts), strict=True)))

    async def computed(self, before: Counts | None, prompt_tokens: int) -> int | None:
        """The number of prompt tokens of a call that were not in the cache, from the counts before it and the tokens
        of all its prompts. None if unknown."""
        for look in range(_LOOKS):
            after = None if before is None else await self.counts()
            if before is None or after is None:
                return None
            queries = after.queries - before.queries
            if queries == prompt_tokens:
                self._tries = _MISSES
                return prompt_tokens - int(after.hits - before.hits)
            if queries > prompt_tokens:
                return None  # requests of another client, or requests that were sent twice
            if look < _LOOKS - 1:
                await asyncio.sleep(_PAUSE)
        if queries == 0:  # the counters are late, or the prefix cache is disabled
            self._tries -= 1
        return None

    async def usage(self, before: Counts | None, usages: Sequence[Usage]) -> Usage:
        """The usage of a call, from that of its requests. The responses of vLLM may not have its cached tokens."""
        total = Usage.total(usages)
        computed = total.computed_tokens
        if computed is None:
            computed = await self.computed(before, total.prompt_tokens)
        return replace(total, computed_tokens=computed, completion_tokens=total.completion_tokens or None)


def counts_in(metrics: str) -> Counts | None:
    """Parse the counters from Prometheus' text format. None if they are missing."""
    totals: dict[str, float] = {}
    for name, value in _COUNTER.findall(metrics):
        totals[name] = totals.get(name, 0.0) + float(value)
    return Counts(totals["queries"], totals["hits"]) if totals.keys() == {"queries", "hits"} else None
