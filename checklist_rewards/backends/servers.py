"""Servers: where a name such as "openrouter" points, which key opens it, and how it is asked. Nothing is contacted
here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from checklist_rewards.errors import ModelError

OPENAI = "openai"
SERVERS = {
    OPENAI: ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
"""Servers known by name: address, and the environment variable that holds the key."""


@dataclass(frozen=True)
class Settings:
    """How a server is asked.

    Args:
        concurrency (`int`, *optional*, defaults to `128`): requests under way at once.
        requests_per_minute, tokens_per_minute (`float`, *optional*): limits; tokens are estimated before they are
            spent, from the length of the prompt and the longest reply.
        timeout (`float`, *optional*, defaults to `120.0`): seconds for one attempt.
        deadline (`float`, *optional*, defaults to `300.0`): seconds for all attempts of one request and the pauses
            between them. A list of prompts gets four times both.
        attempts (`int`, *optional*, defaults to `5`): attempts per request.
        pause (`float`, *optional*, defaults to `0.5`): seconds before the second attempt, at most; doubles each time.
        failures (`int`, *optional*, defaults to `32`): failed attempts in a row after which the server counts as down:
            requests wait, and it is probed.
        patience (`float`, *optional*, defaults to `120.0`): seconds after which a server that is down is given up.
    """

    concurrency: int = 128
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    timeout: float = 120.0
    deadline: float = 300.0
    attempts: int = 5
    pause: float = 0.5
    failures: int = 32
    patience: float = 120.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                raise ModelError(f"{name}={value!r} is not allowed for a server; it is a number above 0.")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Settings by name. Raises [`ModelError`] for one that there is not."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ModelError(f"{name!r} is no setting of a server; allowed: {', '.join(known)}.")
        return cls(**given)


def server_address(base_url: str | None = None) -> str:
    """The address of a server.

    Args:
        base_url (`str`, *optional*): an address, or "openai" or "openrouter". Defaults to OpenAI, or to what
            `OPENAI_BASE_URL` says.

    Raises:
        ModelError: if it is neither an address nor a known name.
    """
    if base_url is None:
        base_url = os.environ.get("OPENAI_BASE_URL") or OPENAI
    if base_url in SERVERS:
        return SERVERS[base_url][0]
    if not base_url.startswith(("http://", "https://")):
        raise ModelError(
            f"base_url={base_url!r} is no address; give one such as 'http://localhost:8000/v1', or "
            f"{' or '.join(map(repr, SERVERS))}."
        )
    return base_url.rstrip("/")


def server_key(address: str) -> str:
    """The key for the server at `address`, from the environment; servers of one's own mostly want none.

    Raises:
        ModelError: if a server known by name has no key.
    """
    for known, variable in SERVERS.values():
        if address == known:
            key = os.environ.get(variable)
            if not key:
                raise ModelError(f"the server at {address} needs a key: set {variable}.")
            return key
    return os.environ.get("OPENAI_API_KEY") or "EMPTY"
