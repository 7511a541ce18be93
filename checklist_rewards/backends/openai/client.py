"""One request with its retries, in the background loop.

There is one event loop per process, in a background thread, for synchronous callers. A trainer may already run an
event loop, score from several threads, and fork. All calls run in the background loop. A forked child starts its own
loop, because threads do not survive a fork.

A [`Connection`] goes to one server or to its replicas. Connections are pooled. At most `concurrency` requests per
address run at the same time, and requests and tokens per minute stay within their limits. While a server, or each of
its replicas, limits the rate and asks for a pause (`Retry-After`), all requests wait (`limits`). After a temporary
failure (429, 408, 409, 5xx, a broken connection, a timeout, a web page instead of JSON), a request is sent again after
a pause. Pauses grow with each attempt and are randomized, unless the server specifies the pause. A request fails after
`attempts` attempts or when its `deadline` has passed. Rate limiting by the server (429) does not count as an attempt.
Time spent waiting for a free slot counts against the deadline only while the server refuses everything. The deadline
of a whole call ([`deadline`]) is above all of this: when it passes, requests that wait or are in flight are
cancelled, and their connections closed.

Status 403 is an error of all requests (a wrong key) until a server has accepted one. Afterwards it is about one
request, for example of a firewall that finds "DROP TABLE" in a text, and costs only that request.

With several addresses, `replicas` chooses the one for each request. If it does not work, is rate-limited or serves
another model, the request goes to the next one at once, which does not count as an attempt either. The breaker counts
a failure only if no other replica is up. Before a replica that failed gets requests again, `check` compares the model
that it reports with that of the others.

Headers come from the OpenAI SDK, and so does the HTTP client for `https` addresses and proxies, which reads the
certificates of the system. Its typed layer is not used: it takes twice as much time as everything else, and its
retries do not support a deadline. An `http` address without a proxy, such as a vLLM server, gets its requests from
aiohttp itself, which takes half as much time as through that client.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import random
import threading
import weakref
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import chain
from queue import SimpleQueue
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import openai

from checklist_rewards.backends.base import MISSED, time_left
from checklist_rewards.backends.openai.limits import Breaker, Limiter, ServerGone
from checklist_rewards.backends.openai.replicas import Replicas, Sent
from checklist_rewards.backends.openai.wire import (
    FORBIDDEN,
    NOT_SERVED,
    RATE_LIMITED,
    UNAVAILABLE,
    Failure,
    answer_of,
    no_connection,
    timed_out,
)
from checklist_rewards.backends.servers import Settings, is_hosted
from checklist_rewards.scores.reasons import Reason, Unanswered

T = TypeVar("T")
Item = TypeVar("Item")
Part = TypeVar("Part")

_THREAD = "checklist-rewards-http"
_REQUESTS = 2
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in the background loop and wait for its result. If the wait is interrupted, the work is cancelled."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:  # Ctrl-C included: the requests must not go on without a caller
        future.cancel()
        raise


def run_streaming(
    work: Callable[[Callable[[int, Item], None]], Coroutine[Any, Any, T]], receive: Callable[[int, Item], None]
) -> T:
    """Like [`run`], for work that returns items while it runs: `work(emit)` runs in the background loop, and each
    emitted item is passed to `receive` in this thread."""
    items: SimpleQueue[tuple[int, Item] | None] = SimpleQueue()
    future = asyncio.run_coroutine_threadsafe(work(lambda place, item: items.put((place, item))), _loop())
    future.add_done_callback(lambda _: items.put(None))
    try:
        while (entry := items.get()) is not None:
            receive(*entry)
        return future.result()
    except BaseException:  # Ctrl-C included: the requests must not go on without a caller
        future.cancel()
        raise


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of coroutines that run concurrently. After an error, the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def in_parts(
    parts: Sequence[Part],
    send: Callable[[Mapping[int, Part]], Awaitable[list[T] | Failure]],
    failed: Callable[[Failure], T],
    is_lost: Callable[[T], bool] = lambda answer: False,
) -> list[T]:
    """Answer several prompts, questions or rows with one request. Those without a usable answer are sent once more. A
    request that the server rejects is halved, until the part that it rejects is alone.

    Args:
        parts (sequence): What is sent.
        send (async callable): Sends parts, by their place. Returns one answer per part, in order, or the failure.
        failed (callable): Returns the answer of a part whose request failed.
        is_lost (callable, *optional*): Whether an answer is not usable. By default, all are.
    """
    answers: dict[int, T] = {}
    pending = dict(enumerate(parts))
    for _ in range(_REQUESTS):
        response = await send(pending)
        if not isinstance(response, Failure):
            found = response
        elif response.concerns_request and len(pending) > 1:
            rest, half = list(pending.values()), len(pending) // 2
            halves = (in_parts(some, send, failed, is_lost) for some in (rest[:half], rest[half:]))
            found = list(chain(*await together(halves)))
        else:
            found = [failed(response)] * len(pending)
        answers.update(zip(pending, found, strict=True))
        pending = {place: part for place, part in pending.items() if is_lost(answers[place])}
        if isinstance(response, Failure) or not pending:
            break
    return [answers[place] for place in range(len(parts))]


def close(work: Callable[[], Coroutine[Any, Any, None]], pid: int) -> None:
    """Run `work` in the background loop of process `pid`, to close a resource when it is garbage-collected or Python
    exits."""
    loop = _loops.get(pid)
    if loop is None or pid != os.getpid():
        return
    future = asyncio.run_coroutine_threadsafe(work(), loop)
    if threading.current_thread().name != _THREAD:  # the loop's thread must not wait for itself
        with contextlib.suppress(Exception):
            future.result(1)


def keep_forever(resource: object) -> None:
    """In a forked child, never free a resource of the parent's loop, not even when Python exits. Parent and child
    share the kernel's event notification for sockets: if the child closed its copies, the parent would get no more
    events."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if os.getpid() not in _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
            _loops[os.getpid()] = loop
        return _loops[os.getpid()]


def _after_fork() -> None:
    # Another thread of the parent may have held the lock during the fork.
    global _lock
    _lock = threading.Lock()
    _loops.clear()


os.register_at_fork(after_in_child=_after_fork)


logger = logging.getLogger(__name__)

_TELEMETRY = "X-Stainless"
_PREFIX_HEADER = "X-Session-ID"
"""Requests with the same value share a prefix. A router in front of replicas can hash it."""
_LONGEST_PAUSE = 8.0
_TEXT_SECONDS = 2.0
_CHECK_SECONDS = 5.0
_SILENT_SECONDS = 30.0
"""How long requests wait without any response before a warning, and between two warnings about a server that is down.
"""
_KEPT_SECONDS = 5.0
"""How long an unused connection is kept, as by the SDK."""


@dataclass
class _Session:
    """The state that belongs to one event loop."""

    client: Any
    """The HTTP client of the SDK."""
    direct: aiohttp.ClientSession
    """For addresses that need nothing of the SDK's client."""
    headers: dict[str, str]
    limiter: Limiter
    breaker: Breaker
    replicas: Replicas
    locks: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    pid: int = field(default_factory=os.getpid)


@dataclass(frozen=True)
class _Request:
    """What is sent, to any replica."""

    method: str
    path: str
    content: bytes | None
    key: str | None
    tokens: int = 0
    patience: float = 1.0
    prefix: str = ""
    reads: int = 1
    place: int | None = None


class Connection:
    """A connection to the server at an address, or to replicas at several.

    Args:
        addresses (`str` or sequence of `str`): The URLs of the server, such as "http://localhost:8000/v1".
        key (`str`): The API key, sent as bearer token.
        settings ([`Settings`]): The request settings.
        deadline_header (`str`, *optional*): The header that reports how many milliseconds an attempt waits for its
            response.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        key: str,
        settings: Settings,
        deadline_header: str | None = None,
    ):
        self.addresses = (addresses,) if isinstance(addresses, str) else tuple(addresses)
        self.address = ", ".join(self.addresses)
        self.settings = settings
        self.slots = settings.concurrency * len(self.addresses)
        self.check: Callable[[dict[str, Any]], str | None] | None = None
        """Called with the list of models of a replica that is probed, unless it is the only one. Returns what is wrong
        with it."""
        self._key = key
        self._deadline_header = deadline_header
        self._is_hosted = any(map(is_hosted, self.addresses))
        self._is_plain = all(map(_is_plain, self.addresses))
        self._session: _Session | None = None
        self._warned: set[str] = set()
        self._accepted: set[int] = set()
        """Replicas that have answered a request."""
        self._heard = self._reported = 0.0
        """When a server last responded, and when a warning last reported that one does not, by the loop's clock."""

    def lock(self, name: str) -> asyncio.Lock:
        """The lock of this name in this process. A lock cannot be used in the loop of a forked child."""
        return self._current().locks[name]

    async def get(self, path: str, key: str | None, place: int | None = None) -> dict[str, Any] | Failure:
        """Get a JSON object that contains the list `key` (any JSON object if `key` is None), if `place` is given only
        from this replica."""
        return await self._send(_Request("GET", path, None, key, place=place))

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        key: str = "choices",
        tokens: int = 0,
        patience: float = 1.0,
        prefix: str = "",
        reads: int = 1,
    ) -> dict[str, Any] | Failure:
        """Post a request, for example for a completion.

        Args:
            path (`str`): The path relative to the address, such as "/chat/completions".
            body (mapping): The JSON object to send.
            key (`str`, *optional*, defaults to `"choices"`): The list that the response must contain.
            tokens (`int`, *optional*, defaults to `0`): Estimated number of tokens, for the rate limit.
            patience (`float`, *optional*, defaults to `1.0`): Factor by which timeout and deadline are multiplied.
            prefix (`str`, *optional*): The same for all requests that share a prefix; they go to the same replica.
            reads (`int`, *optional*, defaults to `1`): Number of reads in the request, for the load of a replica.

        Returns:
            `dict` or [`Failure`]: The response, or the reason why the request failed.
        """
        return await self._send(
            _Request("POST", path, json.dumps(body).encode(), key, tokens, patience, prefix, reads)
        )

    async def texts(self, path: str) -> list[str | None]:
        """Get a text that is not essential from every replica, in one attempt and without waiting for a slot. `path`
        is relative to the address without "/v1". "" from a replica that does not serve it to this client; None without
        an answer in time."""
        return await asyncio.gather(*(self._text(address.removesuffix("/v1") + path) for address in self.addresses))

    async def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a request that is not essential to one replica after the other, each in one attempt, until one answers
        with a JSON object. `path` is relative to the address without "/v1". Empty if none does."""
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        for address in self.addresses:
            url = address.removesuffix("/v1") + path
            try:
                async with asyncio.timeout(_TEXT_SECONDS):
                    status, _, content = await self._answer(
                        self._current(), "POST", url, headers, json.dumps(body).encode()
                    )
                    answer = json.loads(content) if status == 200 else None
            except Exception:  # HTTP clients raise many types of errors
                continue
            if isinstance(answer, dict):
                return answer
        return {}

    def home(self, prefix: str) -> int:
        """The replica that gets requests with this prefix unless it is busy."""
        return self._current().replicas.home(prefix)

    @property
    def is_whole(self) -> bool:
        """Whether no replica is set aside."""
        return len(self._current().replicas.up()) == len(self.addresses)

    async def _text(self, url: str) -> str | None:
        headers = {"Authorization": f"Bearer {self._key}"}
        try:
            async with asyncio.timeout(_TEXT_SECONDS):
                status, _, content = await self._answer(self._current(), "GET", url, headers)
        except Exception:  # HTTP clients raise many types of errors
            return None
        if status in (401, 403, *NOT_SERVED):
            return ""
        return content.decode(errors="replace") if status == 200 else None

    async def _send(self, request: _Request) -> dict[str, Any] | Failure:
        seconds = time_left()
        if seconds is None:
            return await self._retried(request)
        try:
            async with asyncio.timeout(seconds):
                return await self._retried(request) if seconds else self._missed()
        except TimeoutError:
            return self._missed()

    def _missed(self) -> Failure:
        return self._warn(Failure(MISSED, retry=True), None)

    async def _retried(self, request: _Request) -> dict[str, Any] | Failure:
        session, settings = self._current(), self.settings
        limiter, replicas, clock = session.limiter, session.replicas, asyncio.get_running_loop().time
        left, attempt = request.patience * settings.deadline, 0
        failed: set[int] = set()
        odd: set[int] = set()  # replicas that reject what another one may accept
        while True:
            permit = await limiter.admit(left)
            if isinstance(permit, Failure):
                return self._warn(permit, request.place)
            left, probe, sent = permit.left, False, None
            try:
                probe = await session.breaker.admit()
                if not await limiter.spend(request.tokens):  # the server asked for a pause meanwhile
                    limiter.done(permit, None)
                    session.breaker.released(probe)
                    continue
                started = clock()
                if request.place is None:
                    sent = replicas.choose(request.prefix, started, request.reads, failed)
                else:
                    sent = replicas.send_to(request.place, request.reads)
                seconds = min(left, request.patience * settings.timeout)
                outcome = await self._attempt(session, sent, request, seconds)
            except ServerGone as gone:
                limiter.done(permit, None)
                why = Unanswered(Reason.BACKEND_ERROR, f"the server at {self.address} is down ({gone})")
                return self._warn(Failure(why, down=True), None)
            except BaseException:  # cancelled or interrupted: release what the request holds
                limiter.done(permit, None)
                session.breaker.released(probe)
                if sent is not None:
                    replicas.released(sent)
                raise
            left -= clock() - started
            if not isinstance(outcome, Failure) and request.method == "POST":
                self._accepted.add(sent.place)
            elif isinstance(outcome, Failure) and outcome.status == FORBIDDEN and sent.place in self._accepted:
                outcome = replace(outcome, fatal=False)
            aside = self._record(replicas, sent, outcome, clock())
            resumes = None
            if isinstance(outcome, Failure) and outcome.status == RATE_LIMITED and outcome.wait is not None:
                resumes = replicas.due()
            limiter.done(permit, outcome, resumes)
            if not isinstance(outcome, Failure):
                session.breaker.passed(probe)
                for place in odd:
                    replicas.set_aside(place, clock())
                return outcome
            failed.add(sent.place)
            up = replicas.up() - {sent.place} if request.place is None else set()
            if outcome.down and not up:
                if session.breaker.failed(probe, outcome.unanswered):
                    self._warn_of_outage(session.breaker, clock())
                if probe:
                    left += clock() - started  # the time of a probe does not count against the request's deadline
                    continue
            elif outcome.down or outcome.status == RATE_LIMITED:
                session.breaker.released(probe)
            else:
                session.breaker.passed(probe)
            if outcome.fatal:
                odd.add(sent.place)
                if len(odd) == len(self.addresses) or request.place is not None:
                    return self._warn(outcome, sent.place)
                outcome = replace(outcome, fatal=False, retry=True, down=True)
                aside = True
            if aside and up - failed and left > 0:
                self._warn(outcome, sent.place, moved=True)
                continue
            attempt += 1
            together = resumes is not None and resumes > clock()  # all requests wait until then
            pause = resumes - clock() if resumes is not None and together else outcome.wait
            if pause is None:
                pause = min(settings.pause * 2 ** (attempt - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1)
            given_up = attempt >= settings.attempts and outcome.status != RATE_LIMITED
            if not outcome.retry or given_up or pause >= left:
                return self._warn(outcome, sent.place)
            if outcome.status == RATE_LIMITED:
                self._warn_of_limit(sent.place)
            elif outcome.status in UNAVAILABLE:
                self._warn(outcome, sent.place)
            if not together:
                left -= pause
                await asyncio.sleep(pause)

    def _record(self, replicas: Replicas, sent: Sent, outcome: dict[str, Any] | Failure, now: float) -> bool:
        """Record the outcome of a request for its replica. Returns whether the replica is set aside."""
        if not isinstance(outcome, Failure):
            if sent.probe and len(self.addresses) > 1:
                logger.warning("the server at %s answers again.", self.addresses[sent.place])
                self._warned = {kind for kind in self._warned if not kind.startswith(f"{sent.place} ")}
            replicas.answered(sent)
        elif outcome.status in UNAVAILABLE or (outcome.fatal and sent.probe):
            return replicas.failed(sent, now, wait=outcome.wait)
        elif outcome.down:
            return replicas.failed(sent, now, tolerated=self.settings.failures - 1)
        else:
            replicas.released(sent)
        return False

    async def _attempt(
        self, session: _Session, sent: Sent, request: _Request, seconds: float
    ) -> dict[str, Any] | Failure:
        if sent.probe and self.check is not None and len(self.addresses) > 1:
            models = await self._once(session, sent.place, _Request("GET", "/models", None, "data"), _CHECK_SECONDS)
            complaint = None if isinstance(models, Failure) else self.check(models)
            if complaint is not None:
                why = Unanswered(Reason.BACKEND_ERROR, complaint)
                models = Failure(why, retry=True, down=True, status=0)
            if isinstance(models, Failure) and models.status in UNAVAILABLE:
                return models
        return await self._once(session, sent.place, request, seconds)

    async def _once(
        self, session: _Session, place: int, request: _Request, seconds: float
    ) -> dict[str, Any] | Failure:
        headers = dict(session.headers)
        if request.prefix and not self._is_hosted:
            headers[_PREFIX_HEADER] = request.prefix
        if self._deadline_header is not None:
            left = time_left()
            headers[self._deadline_header] = str(round((seconds if left is None else min(seconds, left)) * 1000))
        url = self.addresses[place] + request.path
        loop = asyncio.get_running_loop()
        started = loop.time()
        silence = loop.call_later(_SILENT_SECONDS, self._warn_of_silence, place, started, seconds)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._answer(session, request.method, url, headers, request.content)
        except TimeoutError:
            return timed_out()
        except Exception as error:  # httpx, httpx2, aiohttp and ssl raise many types of errors
            return no_connection(error)
        finally:
            silence.cancel()
        self._heard = loop.time()
        return answer_of(*answer, request.key)

    async def _answer(
        self, session: _Session, method: str, url: str, headers: dict[str, str], content: bytes | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """The status, headers and body of the response."""
        if self._is_plain:
            async with session.direct.request(method, url, data=content, headers=headers) as response:
                return response.status, response.headers, await response.read()
        found = await session.client.request(method, url, content=content, headers=headers)
        return found.status_code, found.headers, found.content

    def _current(self) -> _Session:
        """The session of this process. A forked child gets its own, because it must not use its parent's sockets. For
        the background loop only: aiohttp needs a running loop."""
        if self._session is None or self._session.pid != os.getpid():
            if self._session is not None:
                keep_forever(self._session)
            settings = self.settings
            client = _http_client()
            sdk = openai.AsyncOpenAI(base_url=self.addresses[0], api_key=self._key, http_client=client)
            headers = {
                name: value
                for name, value in {**sdk.default_headers, **sdk.auth_headers}.items()
                if isinstance(value, str) and not name.startswith(_TELEMETRY)
            }
            direct = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None),  # each attempt has its own
                cookie_jar=aiohttp.CookieJar(unsafe=True),  # also of addresses without a name
            )
            self._session = _Session(
                client,
                direct,
                headers,
                Limiter(self.slots, settings.requests_per_minute, settings.tokens_per_minute),
                Breaker(settings.failures, settings.patience, 2 * settings.pause),
                Replicas(self.addresses, 2 * settings.pause),
            )
            weakref.finalize(self, close, client.aclose, os.getpid())
            weakref.finalize(self, close, direct.close, os.getpid())
        return self._session

    def _warn(self, failure: Failure, place: int | None, moved: bool = False) -> Failure:
        """Log the first failure of each kind, so that a dead server does not cause one line per read. `moved`: the
        request goes to another replica."""
        if len(self.addresses) == 1:
            place = 0
        kind = f"{place} {failure.unanswered.reason}{failure.status}"
        if kind not in self._warned and (failure.retry or failure.down):
            self._warned.add(kind)
            address = self.address if place is None else self.addresses[place]
            where = "; its requests go to the other replicas" if moved else ""
            logger.warning("the server at %s failed a request: %s%s", address, failure.unanswered, where)
        return failure

    def _warn_of_outage(self, breaker: Breaker, now: float) -> None:
        """Log that a server is down, when this is noticed and every 30 s."""
        silent = breaker.down_for(now)
        if silent == 0 or now - self._reported >= _SILENT_SECONDS:
            self._reported = now
            logger.warning(
                "the server at %s is down (%s): no response for %.0f s. Requests fail when there is none for %g s "
                "(engine setting `patience`).",
                self.address,
                breaker.last,
                silent,
                breaker.patience,
            )

    def _warn_of_silence(self, place: int, started: float, seconds: float) -> None:
        """Log that a request has no response yet, unless another one got one since."""
        if max(self._heard, self._reported) <= started:
            self._reported = asyncio.get_running_loop().time()
            logger.warning(
                "the server at %s has answered no request for %.0f s; a request waits up to %.0f s (engine setting "
                "`timeout`).",
                self.addresses[place],
                _SILENT_SECONDS,
                seconds,
            )

    def _warn_of_limit(self, place: int) -> None:
        """Log once per server that requests wait for its rate limit, and how long."""
        if f"{place} limit" not in self._warned:
            self._warned.add(f"{place} limit")
            logger.warning(
                "the server at %s limits the rate of requests (status 429). A request is repeated for %g s before it "
                "fails; the engine setting `deadline` changes this.",
                self.addresses[place],
                self.settings.deadline,
            )


def _is_plain(address: str) -> bool:
    """Whether requests to an address need neither certificates nor a proxy."""
    url = urlsplit(address)
    return url.scheme == "http" and bool(proxy_bypass(url.netloc) or not getproxies().keys() & {"http", "all"})


def _http_client() -> Any:
    # No timeout here, because each attempt has its own. The aiohttp transport is three times as fast as httpx.
    try:
        return openai.DefaultAioHttpClient(timeout=None, verify=_certificates(*map(os.environ.get, _SSL)))
    except RuntimeError:
        return openai.DefaultAsyncHttpxClient(timeout=None, verify=_certificates(*map(os.environ.get, _SSL)))


_SSL = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
"""Environment variables that determine an SSL context."""


@cache
def _certificates(*environment: str | None) -> Any:
    """The SSL context of all clients, as the httpx of the SDK makes it: each would read the certificates for 20 ms."""
    httpx = import_module(openai.DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0])  # or httpx2
    return httpx.create_ssl_context()
