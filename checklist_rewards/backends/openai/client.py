"""One request with its retries, in the background loop.

There is one event loop per process, in a background thread, for synchronous callers. A trainer may already run an
event loop, score from several threads, and fork. A forked child starts its own loop, because threads do not survive a
fork.

A [`Connection`] goes to one server or to its replicas (`replicas` chooses one for each request). At most `concurrency`
requests per address run at the same time, and requests and tokens per minute stay within their limits (`limits`).
After a temporary failure (429, 408, 409, 5xx, a broken connection, a timeout, a web page instead of JSON), a request
is sent again, to another replica at once, or after a pause that grows with each attempt unless the server specifies
it. A request fails after `attempts` attempts or when its `deadline` has passed. Rate limiting by the server (429) does
not count as an attempt. The deadline of a whole call ([`deadline`]) is above all of this: when it passes, requests
that wait or are in flight are cancelled, and their connections closed.

Status 403 is an error of all requests (a wrong key) until a server has accepted one. Afterwards it is about one
request, for example of a firewall that finds "DROP TABLE" in a text, and costs only that request. The same applies to
a 400 about the key, and to a 429 with the code `insufficient_quota`, which servers other than OpenAI send to slow a
client down.

All requests are aiohttp's. The OpenAI SDK takes twice as much time as everything else, and its retries do not support
a deadline. Certificates are those of the system, and proxies those of the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import math
import os
import random
import ssl
import threading
import weakref
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from ipaddress import ip_address, ip_network
from itertools import chain
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from checklist_rewards.backends.base import MISSED, time_left
from checklist_rewards.backends.openai.limits import Limiter
from checklist_rewards.backends.openai.replicas import Replicas, Sent
from checklist_rewards.backends.openai.wire import (
    AT_FIRST,
    RATE_LIMITED,
    TIMED_OUT,
    UNAVAILABLE,
    Failure,
    answer_of,
    no_connection,
    parsed,
    serialized,
)
from checklist_rewards.backends.servers import Settings, is_hosted
from checklist_rewards.errors import ModelError
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.version import __version__

T = TypeVar("T")
Item = TypeVar("Item")
Part = TypeVar("Part")

_THREAD = "checklist-rewards-http"
_REQUESTS = 2
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in the background loop and wait for its result. If the wait is interrupted, the work is cancelled."""
    return run_streaming(lambda _: work, lambda *_: None)


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
    """Answer several prompts, questions or rows with one request. Those without a usable answer (`is_lost`) are sent
    once more. A request that the server rejects is halved, until the part that it rejects is alone. `send` gets parts
    by their place, and returns one answer per part, in order, or the failure, of which `failed` makes an answer."""
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

_PREFIX_HEADER = "X-Session-ID"
"""Requests with the same value share a prefix. A router in front of replicas can hash it."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0
"""Seconds. The shortest pause after a response with `Retry-After`, which may be 0; and the longest after a failure
without it."""
_TEXT_SECONDS = 2.0
_CHECK_SECONDS = 5.0
_SILENT_SECONDS = 30.0
"""How long requests wait without any response before a warning, and between two warnings about a server that is down.
"""
_LOOK_SECONDS = 0.25
"""How often a request that waits for a server which is down looks whether it is back."""
_KEPT_SECONDS = 5.0
"""How long an unused connection is kept."""
_SECRET = 8
"""Characters from which on an API key is not a placeholder."""
_OF_THE_NETWORK = (aiohttp.ClientError, OSError, ValueError)
"""What a server, a proxy or the network between can raise: `OSError` includes timeouts and the errors of ssl, and
`ValueError` is that of a host name, or of an address to which a server redirects. All others are faults of ours."""


@dataclass
class _Session:
    """The state that belongs to one event loop."""

    http: aiohttp.ClientSession
    limiter: Limiter
    replicas: Replicas
    locks: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    pid: int = field(default_factory=os.getpid)
    in_flight: int = 0
    seconds: float = 0.0
    """How long the latest request waits for its response."""
    silence: asyncio.TimerHandle | None = None
    """Runs while requests are in flight, and reports that none has a response."""
    heard: float = -math.inf
    reported: float = -math.inf
    """When a server last responded, or the first request in flight was sent, and when a warning last reported that
    none responds, by the loop's clock."""


class _Request(NamedTuple):
    """What is sent, to any replica."""

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
        self.check: Callable[[dict[str, Any], str], str | None] | None = None
        """Called with the list of models and the address of a replica that is probed, unless it is the only one.
        Returns what is wrong with it."""
        self._headers, self._key = _headers(key), key
        self._deadline_header = deadline_header
        self._is_hosted = any(map(is_hosted, self.addresses))
        self._proxies = list(map(_proxy, self.addresses))
        self._session: _Session | None = None
        self._warned: set[str] = set()
        self._accepted: set[int] = set()
        """Replicas that have answered a request."""

    def lock(self, name: str) -> asyncio.Lock:
        """The lock of this name in this process. A lock cannot be used in the loop of a forked child."""
        return self._current().locks[name]

    async def get(self, path: str, key: str | None, place: int | None = None) -> dict[str, Any] | Failure:
        """Get a JSON object that contains the list `key` (any JSON object if `key` is None), if `place` is given only
        from this replica."""
        return await self._send(_Request(path, None, key, place=place))

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | bytes,
        *,
        key: str = "choices",
        tokens: int = 0,
        patience: float = 1.0,
        prefix: str = "",
        reads: int = 1,
    ) -> dict[str, Any] | Failure:
        """Post a JSON object, to a path relative to the address. Returns the response, or why the request failed.

        The response must contain the list `key`. `tokens` are estimated, for the rate limit. Timeout and deadline are
        multiplied by `patience`. All requests with the same `prefix` go to the same replica, for which each has the
        load of its number of `reads`.
        """
        content = body if isinstance(body, bytes) else serialized(body)
        return await self._send(_Request(path, content, key, tokens, patience, prefix, reads))

    async def texts(self, path: str) -> list[str]:
        """Get a text that is not essential from every replica, in one attempt and without waiting for a slot. `path`
        is relative to the address without "/v1". "" from a replica that does not send it in time."""
        found = await asyncio.gather(*(self._quickly(place, path) for place in range(len(self.addresses))))
        return [text if status == 200 else "" for status, text in found]

    async def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a request that is not essential to one replica after the other, each in one attempt, until one answers
        with a JSON object. `path` is relative to the address without "/v1". Empty if none does."""
        for place in range(len(self.addresses)):
            status, text = await self._quickly(place, path, serialized(body))
            with contextlib.suppress(ValueError):
                if status == 200 and isinstance(answer := parsed(text.encode()), dict):
                    return answer
        return {}

    def home(self, prefix: str) -> int:
        """The replica that gets requests with this prefix unless it is busy."""
        return self._current().replicas.home(prefix)

    @property
    def is_whole(self) -> bool:
        """Whether no replica is set aside."""
        return len(self._current().replicas.up()) == len(self.addresses)

    async def _quickly(self, place: int, path: str, content: bytes | None = None) -> tuple[int, str]:
        """The status and the text of a response that is not essential; status 0 without one."""
        url = self.addresses[place].removesuffix("/v1") + path
        try:
            async with asyncio.timeout(_TEXT_SECONDS):
                status, _, found = await self._answer(place, url, {}, content)
        except _OF_THE_NETWORK:
            return 0, ""
        return status, found.decode(errors="replace")

    async def _send(self, request: _Request) -> dict[str, Any] | Failure:
        seconds = time_left()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if seconds != 0:
                    return await self._retried(request)
        return self._warn(Failure(MISSED, retry=True), None)

    async def _retried(self, request: _Request) -> dict[str, Any] | Failure:
        session, settings = self._current(), self.settings
        limiter, replicas, clock = session.limiter, session.replicas, asyncio.get_running_loop().time
        left = deadline = request.patience * settings.deadline
        attempt = 0
        failed: set[int] = set()
        odd: set[int] = set()  # replicas that reject what another one may accept
        for_one = request.place is not None and len(self.addresses) > 1  # it cannot tell whether the others are down
        while True:
            permit = await limiter.admit(left, deadline)
            if isinstance(permit, Failure):
                return self._warn(permit, request.place)
            left = permit.left
            outcome: dict[str, Any] | Failure | None = None
            sent: Sent | None = None
            resumes: float | None = None
            try:
                if not for_one and (gone := await self._available(session)) is not None:
                    return self._warn(gone, None)
                if not await limiter.spend(request.tokens):  # the server asked for a pause meanwhile
                    continue
                if request.place is not None:
                    sent = replicas.send_to(request.place, clock(), request.reads)
                else:
                    sent = replicas.choose(request.prefix, clock(), request.reads, failed)
                if sent is None:  # the server is down, and another request probes it
                    continue
                outcome = await self._attempt(sent, request, min(left, request.patience * settings.timeout))
                if isinstance(outcome, Failure) and outcome.status in AT_FIRST and sent.place in self._accepted:
                    is_quota = self._is_hosted and outcome.status == RATE_LIMITED
                    outcome = replace(outcome, fatal=outcome.fatal and is_quota)
                now = clock()
                aside = self._record(session, sent, outcome, now)
                if isinstance(outcome, Failure) and outcome.wait is not None:
                    resumes = replicas.due()
            finally:
                if sent is not None and outcome is None:  # cancelled or interrupted
                    replicas.released(sent)
                limiter.done(permit, outcome, resumes)
            is_probe = sent.probe and replicas.down_since is not None and not for_one
            if isinstance(outcome, Failure) and outcome.down and is_probe:
                continue  # the time of a probe does not count against the request's deadline
            left -= now - sent.at
            if not isinstance(outcome, Failure):
                if request.content is not None:
                    self._accepted.add(sent.place)
                for place in odd:
                    replicas.set_aside(place, now)
                return outcome
            failed.add(sent.place)
            if outcome.fatal:
                odd.add(sent.place)
                if len(odd) == len(self.addresses) or request.place is not None:
                    return self._warn(outcome, sent.place)
                outcome = replace(outcome, fatal=False, retry=True, down=True)
                aside = True
            if aside and request.place is None and replicas.up() - failed and left > 0:
                self._warn(outcome, sent.place, moved=True)
                continue
            attempt += 1
            if resumes is not None:
                pause = max(0.0, resumes - now)
            elif request.place is not None and outcome.wait is not None:
                pause = outcome.wait
            else:
                pause = min(settings.pause * 2 ** (attempt - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1)
            is_limited = outcome.status == RATE_LIMITED
            given_up = limiter.is_over(deadline) if is_limited else attempt >= settings.attempts
            if not outcome.retry or given_up or pause >= left:
                return self._warn(outcome, sent.place)
            if is_limited:
                self._warn_once(
                    f"{sent.place} limit",
                    "the server at %s limits the rate of requests (status 429). A request is repeated for %g s before "
                    "it fails; the engine setting `deadline` changes this.",
                    self.addresses[sent.place],
                    settings.deadline,
                )
            elif outcome.status in UNAVAILABLE:
                self._warn(outcome, sent.place)
            if not (is_limited and resumes is not None and pause):  # in such a pause, all requests wait together
                left -= pause
                await asyncio.sleep(pause)

    async def _available(self, session: _Session) -> Failure | None:
        """Wait while the server is down and no probe is due. Returns the failure of all requests if it is gone."""
        replicas, clock = session.replicas, asyncio.get_running_loop().time
        while (seconds := replicas.wait(clock())) > 0:
            if replicas.is_gone(clock()):
                silence = f"no response for {replicas.patience:g} s; last failure: {replicas.last}"
                why = Unanswered(Reason.BACKEND_ERROR, f"the server at {self.address} is down ({silence})")
                return Failure(why, down=True)
            await asyncio.sleep(min(max(0.001, seconds), _LOOK_SECONDS))
        return None

    def _record(self, session: _Session, sent: Sent, outcome: dict[str, Any] | Failure, now: float) -> bool:
        """Record the outcome of a request for its replica. Returns whether the replica is set aside."""
        replicas, has_others = session.replicas, len(self.addresses) > 1
        is_odd = isinstance(outcome, Failure) and outcome.fatal and has_others
        aside = False
        if is_odd and not sent.probe:  # it may serve another model, which is set aside once another replica answers
            replicas.released(sent)
        elif isinstance(outcome, Failure) and (is_odd or not outcome.is_response or outcome.wait is not None):
            is_certain = is_odd or outcome.status in UNAVAILABLE or outcome.wait is not None
            aside = replicas.failed(
                sent,
                now,
                wait=outcome.wait,
                tolerated=0 if is_certain else self.settings.failures - 1,
                reason=str(outcome.unanswered) if outcome.down else None,
            )
            if replicas.down_since is not None:
                self._warn_of_outage(session, now, now - replicas.down_since)
        else:
            replicas.answered(sent)
            # Only a probe shows that a replica works again: meanwhile it may have answered other requests.
            if sent.probe and has_others:
                logger.warning("the server at %s answers again.", self.addresses[sent.place])
                self._warned = {kind for kind in self._warned if not kind.startswith(f"{sent.place} ")}
        return aside

    async def _attempt(self, sent: Sent, request: _Request, seconds: float) -> dict[str, Any] | Failure:
        outcome: dict[str, Any] | Failure | None = None
        if sent.probe and self.check is not None and len(self.addresses) > 1:
            models = await self._once(sent.place, _Request("/models", None, "data"), _CHECK_SECONDS)
            complaint = None if isinstance(models, Failure) else self.check(models, self.addresses[sent.place])
            if complaint is not None:
                why = Unanswered(Reason.BACKEND_ERROR, complaint)
                models = Failure(why, retry=True, down=True, status=0)
            if isinstance(models, Failure) and models.status in UNAVAILABLE:
                outcome = models
        if outcome is None:
            outcome = await self._once(sent.place, request, seconds)
        if not isinstance(outcome, Failure):
            return outcome
        if self._proxies[sent.place] and (outcome.down or outcome.status in (403, 407)):
            reason, detail = outcome.unanswered.reason, outcome.unanswered.detail
            host = urlsplit(self.addresses[sent.place]).hostname
            way = f"sent through the proxy of the environment; NO_PROXY={host} connects directly"
            outcome = replace(outcome, unanswered=Unanswered(reason, f"{detail}; {way}" if detail else way))
        if outcome.wait is not None:
            return replace(outcome, wait=max(outcome.wait, min(_SHORTEST_PAUSE, self.settings.pause)))
        return outcome

    async def _once(self, place: int, request: _Request, seconds: float) -> dict[str, Any] | Failure:
        headers = {}
        if request.prefix and not self._is_hosted:
            headers[_PREFIX_HEADER] = request.prefix
        if self._deadline_header is not None:
            left = time_left()
            headers[self._deadline_header] = str(round((seconds if left is None else min(seconds, left)) * 1000))
        url = self.addresses[place] + request.path
        session, loop = self._current(), asyncio.get_running_loop()
        if session.silence is None:
            session.heard = loop.time()
            session.silence = loop.call_later(_SILENT_SECONDS, self._warn_of_silence, session)
        session.in_flight += 1
        session.seconds = seconds
        try:
            async with asyncio.timeout(seconds):
                answer = await self._answer(place, url, headers, request.content)
        except TimeoutError:
            return TIMED_OUT
        except _OF_THE_NETWORK as error:
            return no_connection(error)
        finally:
            session.in_flight -= 1
            if not session.in_flight and session.silence is not None:
                session.silence.cancel()
                session.silence = None
        session.heard = loop.time()
        status, received, content = answer
        if status >= 300 and len(self._key) >= _SECRET:  # an error may quote it
            content = content.replace(self._key.encode(), b"***")
        return answer_of(status, received, content, request.key)

    async def _answer(
        self, place: int, url: str, headers: dict[str, str], content: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """The status, headers and body of the response to a POST with this content, or to a GET without any."""
        method = "GET" if content is None else "POST"
        http, proxy = self._current().http, self._proxies[place]
        headers = {**self._headers, **headers}  # default headers of a ClientSession would go to the proxy too
        async with http.request(method, url, data=content, headers=headers, proxy=proxy) as response:
            return response.status, response.headers, await response.read()

    def _current(self) -> _Session:
        """The session of this process. A forked child gets its own, because it must not use its parent's sockets. For
        the background loop only: aiohttp needs a running loop."""
        if self._session is None or self._session.pid != os.getpid():
            if self._session is not None:
                # The parent's session is never freed here, not even when Python exits. Parent and child share the
                # kernel's event notification for sockets: if the child closed its copies, the parent would get no
                # more events.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
            settings = self.settings
            http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=_KEPT_SECONDS, ssl=_certificates(*map(os.environ.get, _SSL))
                ),
                timeout=aiohttp.ClientTimeout(total=None),  # each attempt has its own
                cookie_jar=aiohttp.CookieJar(unsafe=True),  # also of addresses without a name
            )
            self._session = _Session(
                http,
                Limiter(self.slots, settings.requests_per_minute, settings.tokens_per_minute),
                Replicas(self.addresses, 2 * settings.pause, settings.failures, settings.patience),
            )
            weakref.finalize(self, close, http.close, os.getpid())
        return self._session

    def _warn(self, failure: Failure, place: int | None, moved: bool = False) -> Failure:
        """Log the first failure of each kind, so that a dead server does not cause one line per read. `moved`: the
        request goes to another replica."""
        if failure.retry or failure.down:
            place = 0 if len(self.addresses) == 1 else place
            address = self.address if place is None else self.addresses[place]
            where = "; its requests go to the other replicas" if moved else ""
            kind = f"{place} {failure.unanswered.reason}{failure.status}"
            self._warn_once(kind, "the server at %s failed a request: %s%s", address, failure.unanswered, where)
        return failure

    def _warn_once(self, kind: str, message: str, *values: object) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning(message, *values)

    def _warn_of_outage(self, session: _Session, now: float, silent: float) -> None:
        """Log that a server is down, when this is noticed and every 30 s."""
        if silent == 0 or now - session.reported >= _SILENT_SECONDS:
            session.reported = now
            logger.warning(
                "the server at %s is down (%s): no response for %.0f s. Requests fail when there is none for %g s "
                "(engine setting `patience`).",
                self.address,
                session.replicas.last,
                silent,
                self.settings.patience,
            )

    def _warn_of_silence(self, session: _Session) -> None:
        """Log every 30 s that requests are in flight and none had a response since."""
        loop = asyncio.get_running_loop()
        if loop.time() - max(session.heard, session.reported) >= _SILENT_SECONDS:
            session.reported = loop.time()
            logger.warning(
                "the server at %s has answered no request for %.0f s; a request waits up to %.0f s (engine setting "
                "`timeout`).",
                self.address,
                session.reported - session.heard,
                session.seconds,
            )
        due = max(session.heard, session.reported) + _SILENT_SECONDS
        session.silence = loop.call_at(due, self._warn_of_silence, session)


def _proxy(address: str) -> str | None:
    """The proxy of the environment for an address. Raises [`ModelError`] for one that is not an HTTP proxy."""
    url, proxies = urlsplit(address), getproxies()
    kind = url.scheme if proxies.get(url.scheme) else "all"
    proxy = proxies.get(kind)
    if not proxy or proxy_bypass(url.netloc) or _is_excepted(url.hostname or "", proxies.get("no", "")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if proxy.partition("://")[0].strip().lower() not in ("http", "https"):
        names = sorted(os.environ, reverse=True)  # of HTTP_PROXY and http_proxy, the latter counts
        name = next((name for name in names if name.lower() == f"{kind}_proxy"), f"{kind.upper()}_PROXY")
        raise ModelError(
            f"{name}={proxy!r} is not an HTTP proxy, and no other kind is supported; give the address of an HTTP "
            f"proxy, or set NO_PROXY={url.hostname} to connect to {address} directly."
        )
    return proxy


def _is_excepted(host: str, names: str) -> bool:
    """Whether `NO_PROXY` has a host in a form that `proxy_bypass` does not take: a network such as 10.0.0.0/8, an
    address of IPv6, "*.domain", or "*" as one of several names."""
    for name in map(str.strip, names.split(",")):
        if name == "*" or (name.startswith("*.") and host.endswith(name[1:].lower())):
            return True
        with contextlib.suppress(ValueError):
            if ip_address(host) in ip_network(name, strict=False):
                return True
    return False


_SSL = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
"""Environment variables that determine an SSL context."""


@cache
def _certificates(*environment: str | None) -> ssl.SSLContext:
    """The SSL context of all clients, because each takes 20 ms. aiohttp's own ignores variables that are set after its
    import. A Python that finds no certificates, as on macOS, gets those of certifi."""
    context, paths = ssl.create_default_context(), ssl.get_default_verify_paths()
    if paths.cafile is None and paths.capath is None:
        with contextlib.suppress(ImportError):
            context.load_verify_locations(import_module("certifi").where())
    return context


def _headers(key: str) -> dict[str, str]:
    """The headers of all requests, as the OpenAI SDK has them, with those that its environment variables add. Raises
    [`ModelError`] if one cannot be sent."""
    custom = (line.partition(":") for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n"))
    owners = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": f"checklist-rewards/{__version__}",
        **{name: value for name, variable in owners.items() if (value := os.environ.get(variable))},
        **{name.strip(): value.strip() for name, colon, value in custom if colon},
        "Authorization": f"Bearer {key}",
    }
    for name, value in headers.items():
        if not (name + value).isprintable():
            source = "the API key" if name == "Authorization" else f"the value of the header {name!r}"
            raise ModelError(f"{source} has a character that cannot be sent, such as a line break; remove it.")
    return headers
