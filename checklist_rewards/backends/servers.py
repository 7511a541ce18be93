"""Servers: where a name such as "openrouter" points, and which key opens it. Nothing is contacted here."""

from __future__ import annotations

import os

from checklist_rewards.errors import ModelError

OPENAI = "openai"
SERVERS = {
    OPENAI: ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
"""Servers known by name: address, and the environment variable that holds the key."""


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
