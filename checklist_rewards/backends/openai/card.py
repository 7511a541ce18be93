"""What a server reports about the model it serves."""

from __future__ import annotations

from typing import Any

from checklist_rewards.backends.openai.connection import Connection
from checklist_rewards.backends.openai.failures import Failure
from checklist_rewards.errors import ModelError, NoServerError

_SHOWN_MODELS = 8


async def served_card(connection: Connection, model: str) -> dict[str, Any]:
    """The server's description of the model; empty if the server does not list its models.

    Raises:
        ModelError: If no server responds, if it does not accept the API key, or if it does not serve `model`.
    """
    address = connection.address
    response = await connection.get("/models", "data")
    if isinstance(response, Failure):
        if response.status in (404, 405):
            return {}
        if response.status in (401, 403):
            raise ModelError(f"the server at {address} does not accept the API key ({response.unanswered}).")
        raise NoServerError(
            f"no OpenAI-compatible server responds at {address} ({response.unanswered}); give another base_url, or "
            f"start a server with: vllm serve {model}"
        )
    cards = {card.get("id"): card for card in response["data"] if isinstance(card, dict)}
    if not cards:
        return {}  # some proxies return an empty list
    if model not in cards:
        names = [str(name) for name in cards]
        more = f" and {len(names) - _SHOWN_MODELS} more" if len(names) > _SHOWN_MODELS else ""
        raise ModelError(f"the server at {address} serves {names[:_SHOWN_MODELS]}{more}, not {model!r}.")
    return cards[model]
