"""What a server reports about the model it serves, and whether its replicas report the same."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

from checklist_rewards.backends.openai.connection import Connection
from checklist_rewards.backends.openai.failures import NOT_SERVED, Failure
from checklist_rewards.errors import ModelError, NoServerError

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
        elif response.status in NOT_SERVED:
            cards[address] = {}
        elif response.status in (401, 403):
            raise ModelError(f"the server at {address} does not accept the API key ({response.unanswered}).")
        else:
            absent.append(address)
            why = why or response
    if why is not None and not cards:
        raise NoServerError(
            f"no OpenAI-compatible server responds at {connection.address} ({why.unanswered}); give another base_url, "
            f"or start a server with: vllm serve {model}"
        )
    if absent:
        logger.warning("no server responds at %s; the run starts with the other replicas.", ", ".join(absent))
    usual = Counter(map(_identity, cards.values())).most_common(1)[0][0]
    card = next(card for card in cards.values() if _identity(card) == usual)

    def check(response: dict[str, Any], address: str = "it") -> str | None:
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
    cards = {card.get("id"): card for card in response["data"] if isinstance(card, dict)}
    if not cards:
        return {}  # some proxies return an empty list
    if model not in cards:
        names = [str(name) for name in cards]
        more = f" and {len(names) - _SHOWN_MODELS} more" if len(names) > _SHOWN_MODELS else ""
        raise ModelError(f"the server at {address} serves {names[:_SHOWN_MODELS]}{more}, not {model!r}.")
    return cards[model]


def _identity(card: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(card.get(name)) for name in _SAME)


def _difference(card: dict[str, Any], usual: dict[str, Any], address: str) -> str | None:
    """How a replica differs from the others, in words. None if it does not."""
    for name in _SAME:
        if card.get(name) != usual.get(name):
            return f"the server at {address} reports {name} {card.get(name)!r}, the others {usual.get(name)!r}"
    return None
