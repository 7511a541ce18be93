"""A connection to one server: a request goes out until it is answered or given up.

Connections to the server are pooled, at most `concurrency` requests are under way, and what is spent per minute keeps
to the limits. A request that fails for a passing reason (429, 408, 409, 5xx, a broken connection, no answer in time, a
web page instead of JSON) is sent again after a pause, longer each time and never the same for two requests, or after
the pause that the server asks for. It is given up after `attempts` attempts, or earlier if its time is up; the
server's asking for patience (429) counts against the time only. Waiting for a turn counts for nothing.

The SDK makes the client: pool, transport, proxies, and the headers that go with every request. The requests are posted
through its HTTP client as they are, and parsed once: the SDK's typed layer costs twice as much as all the rest, and
its retries know no deadline.
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
from checklist_rewards.backends.openai.loop import close, keep
from checklist_rewards.backends.openai.pace import Pace
from checklist_rewards.backends.servers import Settings

logger = logging.getLogger(__name__)

_OPENAI_PATHS = (("GET", "/models"), ("POST", "/chat/completions"), ("POST", "/completions"))
_TELEMETRY = "X-Stainless"
_LONGEST_PAUSE = 8.0
_TEXT_SECONDS = 2.0


@dataclass
class _Session:
    """What lives in one event loop."""

    client: Any
    forms: dict[tuple[str, str], Any]
    """A request per method and path, without content: what all requests of its kind have in common."""
    slots: asyncio.Semaphore
    breaker: Breaker
    requests: Pace
    tokens: Pace
    pid: int = field(default_factory=os.getpid)


class Connection:
    """A server at an address.

    Args:
        address (`str`): such as "http://localhost:8000/v1".
        key (`str`): sent as bearer token.
        settings ([`Settings`]): how to ask.
        paths (*optional*): the methods and paths that there are, where it is no OpenAI-compatible server.
    """

    def __init__(self, address: str, key: str, settings: Settings, paths: Sequence[tuple[str, str]] = _OPENAI_PATHS):
        self.address, self.settings, self.paths = address, settings, paths
        self._key = key
        self._session: _Session | None = None
        self._warned: set[str] = set()

    async def get(self, path: str, key: str | None) -> dict[str, Any] | Failure:
        """Get a JSON object whose list `key` holds what is asked for; with None, any JSON object."""
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
        """Post a request, such as one for a completion.

        Args:
            path (`str`): below the address, such as "/chat/completions".
            body (mapping): JSON.
            key (`str`, *optional*, defaults to `"choices"`): the list of the response that holds what is asked for.
            tokens (`int`): what it will spend, by estimate.
            patience (`float`): factor of timeout and deadline.

        Returns:
            the response with its list `key`, or the [`Failure`] that says why there is none.
        """
        return await self._send("POST", path, json.dumps(body).encode(), key, tokens, patience)

    async def text(self, url: str) -> str | None:
        """Get a text from the server that no answer depends on: one attempt, without a slot; None if there is none."""
        client = self._current().client
        request = client.build_request("GET", url, headers={"Authorization": f"Bearer {self._key}"})
        try:
            async with asyncio.timeout(_TEXT_SECONDS):
                response = await client.send(request)
        except Exception:  # whatever the transport raises, there is no text
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
                    reason = f"backend_error: the server at {self.address} is gone ({gone})"
                    return self._warn(Failure(reason, down=True))
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
                session.breaker.failed(probe, outcome.reason)
                if probe:
                    left += clock() - started  # what a probe costs is the server's affair, not this request's
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
        form = session.forms[method, path]
        request = type(form)(form.method, form.url, headers=form.headers, content=content, extensions=form.extensions)
        try:
            async with asyncio.timeout(seconds):
                response = await session.client.send(request)
        except TimeoutError:
            return timed_out()
        except Exception as error:  # httpx, httpx2, aiohttp, ssl: whatever the transport raises, there is no answer
            return no_connection(error)
        return answer_of(response.status_code, response.headers, response.content, key)

    def _current(self) -> _Session:
        """The session of this process: a fork must not share its parent's sockets."""
        if self._session is None or self._session.pid != os.getpid():
            if self._session is not None:
                keep(self._session)
            settings = self.settings
            client = _http_client()
            sdk = openai.AsyncOpenAI(base_url=self.address, api_key=self._key, http_client=client)
            headers = {
                name: value
                for name, value in {**sdk.default_headers, **sdk.auth_headers}.items()
                if isinstance(value, str) and not name.startswith(_TELEMETRY)
            }
            forms = {
                (method, path): client.build_request(method, self.address + path, headers=headers)
                for method, path in self.paths
            }
            for form in forms.values():
                form.headers.pop("Content-Length", None)
            self._session = _Session(
                client,
                forms,
                asyncio.Semaphore(settings.concurrency),
                Breaker(settings.failures, settings.patience, 2 * settings.pause),
                Pace(settings.requests_per_minute),
                Pace(settings.tokens_per_minute),
            )
            weakref.finalize(self, close, client.aclose, os.getpid())
        return self._session

    def _warn(self, failure: Failure) -> Failure:
        """Log a failure, the first of its kind: a dead server must not write a line per read."""
        kind = failure.reason.partition(": ")[0] + str(failure.status)
        if kind not in self._warned and (failure.retry or failure.down):
            self._warned.add(kind)
            logger.warning("the server at %s failed a request: %s", self.address, failure.reason)
        return failure


def _http_client() -> Any:
    # Attempts have a timeout of their own. The aiohttp transport is three times as fast as the other one.
    try:
        return openai.DefaultAioHttpClient(timeout=None)
    except RuntimeError:
        return openai.DefaultAsyncHttpxClient(timeout=None)
