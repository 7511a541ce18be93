"""uvicorn with limits on slow and idle connections.

uvicorn limits the number of connections, and the time of an idle connection between two requests. It does not limit
the time before the first request, the time for headers, or on shutdown the wait for a body that never ends.
[`BoundedConnection`] closes such connections. It also bounds the size of headers. uvicorn does so with h11 only, a
parser that takes 1.7 times the CPU of httptools for `/health` and 1.15 times for a row of eight questions. The limits
for request bodies are in `app`.

On SIGTERM, [`Drain`] refuses new work while connections are still accepted: `/ready` returns 503, so that a load
balancer sends no more requests, and requests for scores get 503 too. When the requests under way are answered, but not
before [`NOTICE_SECONDS`] and not after [`GRACE_SECONDS`], the server exits with status 0.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from types import FrameType
from typing import Any, Self

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from checklist_rewards.server.rows import Refused


class Drain:
    """Whether the server still accepts work, and how many requests it is working on. Use it as a context manager
    around the work of a request; it raises [`Refused`] while draining."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.working = 0

    def __enter__(self) -> Self:
        if self.requested.is_set():
            raise Refused(503, "the server is shutting down and accepts no more rows; send them again later.")
        self.working += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.working -= 1


IDLE_SECONDS = 30
"""Longest time from the start of a connection, or the last response, until the headers of a request are complete."""
GRACE_SECONDS = 25
"""Time after SIGTERM or Ctrl-C until requests that are still being scored are answered with 503. Kubernetes kills a
process after 30 s."""
NOTICE_SECONDS = 5
"""Shortest time after SIGTERM in which `/ready` returns 503, so that a load balancer notices before connections are
refused."""
HEADER_BYTES = 64 * 1024
"""Maximum size of the request line and the headers of a request together. Trailers may have one read more."""
MAX_CONNECTIONS = 4096
"""Maximum number of connections of a process; requests on further connections get 503."""


class BoundedConnection(HttpToolsProtocol):
    """An HTTP connection that is closed if no complete request arrives in time, or if its headers are too large."""

    _received = 0
    """Bytes received since the last complete headers or part of a body. The parser keeps them."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timer for the first request too."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Keep the idle timer running until the headers are complete; uvicorn stops it at the first byte."""
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        before = self.cycle
        self._received += len(data)
        super().data_received(data)
        if self.cycle is before:
            self.timeout_keep_alive_task = timer
            if self._received > HEADER_BYTES and not self.transport.is_closing():
                self.send_400_response("")
        elif timer is not None:
            timer.cancel()

    def on_headers_complete(self) -> None:
        """Bound headers that arrive at once."""
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEADER_BYTES:
            raise ValueError("the headers are too large")  # uvicorn answers with `send_400_response`
        self._received = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count trailers from 0."""
        self._received = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request, or one whose headers are too large, and close the connection."""
        if self._received <= HEADER_BYTES:
            super().send_400_response(msg)
            return
        refused = Refused(431, f"the request line and the headers are larger than {HEADER_BYTES} bytes.", "headers")
        body = refused.content
        head = f"HTTP/1.1 431 {HTTPStatus(431).phrase}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()

    def shutdown(self) -> None:
        """Close the connection of an incomplete request, which has not been accepted yet."""
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self.transport.close()
        else:
            super().shutdown()


class DrainingServer(uvicorn.Server):
    """A server that drains on SIGTERM, by the [`Drain`] of its application."""

    def __init__(self, config: uvicorn.Config, drain: Drain):
        super().__init__(config)
        self.drain = drain
        self._drained_since: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first SIGTERM, which is not raised again at the end."""
        if sig == signal.SIGTERM and not self.drain.requested.is_set():
            self.drain.requested.set()
        elif sig == signal.SIGTERM:
            self.should_exit = True
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Exit when the requests under way are answered and load balancers have had time to notice."""
        if self.drain.requested.is_set() and not self.should_exit:
            now = time.monotonic()
            since = self._drained_since = now if self._drained_since is None else self._drained_since
            left = since + GRACE_SECONDS - now
            if (not self.drain.working and now >= since + NOTICE_SECONDS) or left <= 0:
                self.config.timeout_graceful_shutdown = max(1, round(left))
                self.should_exit = True
        return await super().on_tick(counter)


def server_of(app: FastAPI) -> DrainingServer:
    """A server of `app` that logs its own errors but not those of clients."""
    settings: dict[str, Any] = {"http": BoundedConnection, "ws": "none", "log_level": "error", "access_log": False}
    drain = getattr(app.state, "drain", None) or Drain()
    return DrainingServer(
        uvicorn.Config(
            app,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            **settings,
        ),
        drain,
    )


def run_server(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests already received."""
    # The objects loaded so far live as long as the process. Scanning them in every garbage collection would block all
    # requests for 0.1 s each time.
    gc.collect()
    gc.freeze()
    # After Ctrl-C, uvicorn finishes the accepted requests, then raises the signal again.
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    gc.unfreeze()  # otherwise libraries warn about objects that are never freed
