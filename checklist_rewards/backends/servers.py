"""Addresses, API keys and request settings of servers. This module does not contact any server."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self
from urllib.parse import urlsplit

from checklist_rewards.errors import ModelError, without_password
from checklist_rewards.validation import unknown

OPENAI = "openai"
SERVERS = {
    OPENAI: ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
"""Servers with a name: the address, and the environment variable with the API key."""


@dataclass(frozen=True)
class Settings:
    """Settings for requests to a server.

    Args:
        concurrency (`int`, *optional*, defaults to `128`): Maximum number of concurrent requests per address: with
            three replicas, three times as many in all. A replica that is down leaves its share to the others.
        requests_per_minute (`float`, *optional*): Rate limit of requests, over all replicas. No limit by default.
        tokens_per_minute (`float`, *optional*): Rate limit of tokens, over all replicas. No limit by default. The
            tokens of a request are estimated in advance from the length of its prompt and the maximum length of its
            reply.
        timeout (`float`, *optional*, defaults to `120.0`): Seconds for one attempt. Requests with a list of prompts
            get four times `timeout` and `deadline`.
        deadline (`float`, *optional*, defaults to `300.0`): Seconds for all attempts of a request, including the
            pauses between them.
        attempts (`int`, *optional*, defaults to `5`): Maximum number of attempts per request.
        pause (`float`, *optional*, defaults to `0.5`): Maximum seconds before the second attempt; doubles after each
            further attempt. A server that asks for a pause (`Retry-After`) gets that, or 0.25 s if it is shorter.
        failures (`int`, *optional*, defaults to `32`): Number of consecutive failed attempts after which the server
            counts as down. Requests then wait while the server is probed.
        patience (`float`, *optional*, defaults to `120.0`): Seconds after which requests to a server that is down
            fail. Only a last probe, sent when they end, may wait for its `timeout` longer.
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
                raise ModelError(f"{name}={value!r} is not allowed for a server; it must be a number greater than 0.")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Create settings from a mapping. Raises [`ModelError`] for an unknown name."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ModelError(unknown("server setting", name, known))
        return cls(**given)


def server_addresses(base_url: str | Sequence[str] | None = None) -> tuple[str, ...]:
    """Resolve the addresses of one server or of several replicas.

    Args:
        base_url (`str` or sequence of `str`, *optional*): A URL, "openai" or "openrouter"; or several URLs: a
            sequence, or a string in which commas separate them. Defaults to the environment variable
            `OPENAI_BASE_URL` if set, else to OpenAI.

    Returns:
        `tuple[str, ...]`: One URL per replica, without a final slash, in the given order.

    Raises:
        ModelError: If an address is not a URL, is listed twice, or if a server with a name is one of several.
    """
    given = joined(base_url)
    if given is None:
        given = os.environ.get("OPENAI_BASE_URL") or OPENAI
    urls = [url.strip() for url in given.split(",") if url.strip()] or [given]
    addresses = tuple(map(_address, urls))
    for url, address in zip(urls, addresses, strict=True):
        if url in SERVERS and len(urls) > 1:
            raise ModelError(f"base_url={given!r} combines {url!r} with other addresses; give it alone.")
        if addresses.count(address) > 1:
            raise ModelError(f"base_url={given!r} lists {address} twice; give each replica once.")
    return addresses


def _address(url: str) -> str:
    if url in SERVERS:
        return SERVERS[url][0]
    try:
        is_url = url.startswith(("http://", "https://")) and bool(urlsplit(url).netloc)
    except ValueError:  # such as one bracket of an IPv6 address
        is_url = False
    if not is_url:
        raise ModelError(
            f"base_url={url!r} is not a URL; give one such as 'http://localhost:8000/v1', or "
            f"{' or '.join(map(repr, SERVERS))}."
        )
    if without_password(url) != url:  # HTTP clients send one login only, and the key is one
        raise ModelError(f"base_url={url!r} has a login; set OPENAI_API_KEY to the key of the server instead.")
    return url.rstrip("/")


def joined(base_url: str | Sequence[str] | None) -> str | None:
    """`base_url` as one string, in which commas separate several addresses. Raises [`ModelError`] for other types."""
    if base_url is None or isinstance(base_url, str):
        return base_url
    if not isinstance(base_url, Sequence) or not base_url or not all(isinstance(url, str) for url in base_url):
        raise ModelError(f"base_url={base_url!r:.80} is not allowed; it must be a URL or a list of URLs.")
    return ",".join(base_url)


def is_hosted(address: str) -> bool:
    """Whether `address` belongs to one of the servers with a name."""
    return urlsplit(address).hostname in {urlsplit(known).hostname for known, _ in SERVERS.values()}


def server_key(address: str) -> str:
    """The API key for the server at `address`, from the environment. Self-hosted servers usually need none.

    Raises:
        ModelError: If a named server has no key.
    """
    for known, variable in SERVERS.values():
        if address == known:
            key = os.environ.get(variable)
            if not key:
                raise ModelError(f"the server at {address} requires an API key: set {variable}.")
            return key
    return os.environ.get("OPENAI_API_KEY") or "EMPTY"
