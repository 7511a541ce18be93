"""A connection to one server, which sends requests with retries.

Connections to the server are pooled. At most `concurrency` requests run at the same time, and requests and tokens per
minute stay within their limits. While the server asks for a pause (`Retry-After`), all requests wait (`throttle`).
After a temporary failure (429, 408, 409, 5xx, a broken connection, a timeout, a web
page instead of JSON), a request is sent again after a pause. Pauses grow with each attempt and are randomized, unless
the server specifies the pause. A request fails after `attempts` attempts or when its `deadline` has passed. Rate
limiting by the server (429) does not count as an attempt. Time spent waiting for a free slot does not count against
the deadline.

The OpenAI SDK creates the HTTP client, with its connection pool, transport, proxies and headers. Requests are sent
directly through this client, because the typed layer of the SDK takes twice as much time as everything else, and its
retries do not support a deadline.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai

from checklist_rewards.backends.openai.breaker import Breaker, ServerGone
from checklist_rewards.backends.openai.failures import (
    RATE_LIMITED,
    Failure,
    answer_of,
    no_connection,
    timed_out,
)
from checklist_rewards.backends.openai.loop import close, keep_forever
from checklist_rewards.backends.openai.rate_limit import RateLimit
from checklist_rewards.backends.openai.throttle import Throttle
from checklist_rewards.backends.servers import Settings
from checklist_rewards.scores.reasons import Reason, Unanswered

logger = logging.getLogger(__name__)

_OPENAI_PATHS = (("GET", "/models"), ("POST", "/chat/completions"), ("POST", "/completions"))
_TELEMETRY = "X-Stainless"
_LONGEST_PAUSE = 8.0
_TEXT_SECONDS = 2.0


@dataclass
class _Session:
    """The state that belongs to one event loop."""

    client: Any
    templates: dict[tuple[str, str], Any]
    """A request without content for each method and path, from which all requests are created."""
    slots: asyncio.Semaphore
    breaker: Breaker
    requests: RateLimit
    tokens: RateLimit
    throttle: Throttle
    pid: int = field(default_factory=os.getpid)


class Connection:
    """A connection to the server at an address.

    Args:
        address (`str`): The URL of the server, such as "http://localhost:8000/v1".
        key (`str`): The API key, sent as bearer token.
        settings ([`Settings`]): The request settings.
        paths (*optional*): The methods and paths of the server. Defaults to those of an OpenAI-compatible server.
        deadline_header (`str`, *optional*): The header that reports how many milliseconds an attempt waits for its
            response.
    """

    def __init__(
        self,
        address: str,
        key: str,
        settings: Settings,
        paths: Sequence[tuple[str, str]] = _OPENAI_PATHS,
        deadline_header: str | None = None,
    ):
        self.address, self.settings, self.paths = address, settings, paths
        self._deadline_header = deadline_header
        self._key = key
        self._session: _Session | None = None
        self._warned: set[str] = set()

    async def get(self, path: str, key: str | None) -> dict[str, Any] | Failure:
        """Get a JSON object that contains the list `key` (any JSON object if `key` is None)."""
        return await self._send("GET", path, None, key, 0, 1.0)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        key: str = "choices",
        tokens: int = 0,
        patience: float = 1.0,
    ) -> dict[str, Any] | Failure:
        """Post a request, for example for a completion.

        Args:
            path (`str`): The path relative to the address, such as "/chat/completions".
            body (mapping): The JSON object to send.
            key (`str`, *optional*, defaults to `"choices"`): The list that the response must contain.
            tokens (`int`, *optional*, defaults to `0`): Estimated number of tokens, for the rate limit.
            patience (`float`, *optional*, defaults to `1.0`): Factor by which timeout and deadline are multiplied.

        Returns:
            `dict` or [`Failure`]: The response, or the reason why the request failed.
        """
        return await self._send("POST", path, json.dumps(body).encode(), key, tokens, patience)

    async def text(self, url: str) -> str | None:
        """Get a text that is not essential, in one attempt and without waiting for a slot. None if that fails."""
        client = self._current().client
        request = client.build_request("GET", url, headers={"Authorization": f"Bearer {self._key}"})
        try:
            async with asyncio.timeout(_TEXT_SECONDS):
                response = await client.send(request)
        except Exception:  # HTTP clients raise many types of errors
            return None
        return response.text if response.status_code == 200 else None

    async def _send(
        self, method: str, path: str, content: bytes | None, key: str | None, tokens: int, patience: float
    ) -> dict[str, Any] | Failure:
        session, settings = self._current(), self.settings
        clock = asyncio.get_running_loop().time
        left, attempt = patience * settings.deadline, 0
        while True:
            async with session.slots:
                try:
                    probe = await session.breaker.admit()
                except ServerGone as gone:
                    why = Unanswered(Reason.BACKEND_ERROR, f"the server at {self.address} is down ({gone})")
                    return self._warn(Failure(why, down=True))
                try:
                    await session.requests.spend()
                    await session.tokens.spend(tokens)
                    started = clock()
                    outcome = await self._attempt(
                        session, method, path, content, key, min(left, patience * settings.timeout)
                    )
                except BaseException:
                    session.breaker.released(probe)
                    raise
            left -= clock() - started
            if not isinstance(outcome, Failure):
                session.breaker.passed(probe)
                return outcome
            if outcome.down:
                session.breaker.failed(probe, outcome.unanswered)
                if probe:
                    left += clock() - started  # the time of a probe does not count against the request's deadline
                    continue
            elif outcome.status == RATE_LIMITED:
                session.breaker.released(probe)
            else:
                session.breaker.passed(probe)
            attempt += 1
            pause = outcome.wait
            if pause is None:
                pause = min(settings.pause * 2 ** (attempt - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1)
            given_up = attempt >= settings.attempts and outcome.status != RATE_LIMITED
            if not outcome.retry or given_up or pause >= left:
                return self._warn(outcome)
            left -= pause
            await asyncio.sleep(pause)

    async def _attempt(
        self, session: _Session, method: str, path: str, content: bytes | None, key: str | None, seconds: float
    ) -> dict[str, Any] | Failure:
        started = asyncio.get_running_loop().time()
        permit = await session.throttle.admit(seconds)
        if isinstance(permit, Failure):
            return permit
        outcome: dict[str, Any] | Failure | None = None
        try:
            left = max(0.001, seconds - (asyncio.get_running_loop().time() - started))
            outcome = await self._exchange(session, method, path, content, key, left)
            return outcome
        finally:
            session.throttle.done(permit, outcome)

    async def _exchange(
        self, session: _Session, method: str, path: str, content: bytes | None, key: str | None, seconds: float
    ) -> dict[str, Any] | Failure:
        template = session.templates[method, path]
        headers = template.headers
        if self._deadline_header is not None:
            headers = headers.copy()
            headers[self._deadline_header] = str(round(seconds * 1000))
        request = type(template)(
            template.method, template.url, headers=headers, content=content, extensions=template.extensions
        )
        try:
            async with asyncio.timeout(seconds):
                response = await session.client.send(request)
        except TimeoutError:
            return timed_out()
        except Exception as error:  # httpx, httpx2, aiohttp and ssl raise many types of errors
            return no_connection(error)
        return answer_of(response.status_code, response.headers, response.content, key)

    def _current(self) -> _Session:
        """The session of this process. A forked child gets its own, because it must not use its parent's sockets."""
        if self._session is None or self._session.pid != os.getpid():
            if self._session is not None:
                keep_forever(self._session)
            settings = self.settings
            client = _http_client()
            sdk = openai.AsyncOpenAI(base_url=self.address, api_key=self._key, http_client=client)
            headers = {
                name: value
                for name, value in {**sdk.default_headers, **sdk.auth_headers}.items()
                if isinstance(value, str) and not name.startswith(_TELEMETRY)
            }
            templates = {
                (method, path): client.build_request(method, self.address + path, headers=headers)
                for method, path in self.paths
            }
            for template in templates.values():
                template.headers.pop("Content-Length", None)
            self._session = _Session(
                client,
                templates,
                asyncio.Semaphore(settings.concurrency),
                Breaker(settings.failures, settings.patience, 2 * settings.pause),
                RateLimit(settings.requests_per_minute),
                RateLimit(settings.tokens_per_minute),
                Throttle(settings.concurrency),
            )
            weakref.finalize(self, close, client.aclose, os.getpid())
        return self._session

    def _warn(self, failure: Failure) -> Failure:
        """Log the first failure of each kind, so that a dead server does not cause one line per read."""
        kind = f"{failure.unanswered.reason}{failure.status}"
        if kind not in self._warned and (failure.retry or failure.down):
            self._warned.add(kind)
            logger.warning("the server at %s failed a request: %s", self.address, failure.unanswered)
        return failure


def _http_client() -> Any:
    # No timeout here, because each attempt has its own. The aiohttp transport is three times as fast as httpx.
    try:
        return openai.DefaultAioHttpClient(timeout=None)
    except RuntimeError:
        return openai.DefaultAsyncHttpxClient(timeout=None)
