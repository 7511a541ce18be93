"""uvicorn with limits on what a client's connection may hold up.

uvicorn itself limits neither the time for a request's headers nor, once a first byte has come, an idle connection, and
on shutdown it waits for requests whose body never ends. [`Connection`] closes these. The body of a request has its own
limit of time in `app`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

IDLE_SECONDS = 30
"""From the start of a connection, or the last response, until the next request's headers are complete."""
GRACE_SECONDS = 30
"""From SIGTERM or Ctrl-C until requests that are still being scored are answered with 503. Kubernetes kills a process
after the same time."""
MAX_CONNECTIONS = 4096
"""As many as rows may wait by default; the requests of any more are answered with 503."""


class Connection(HttpToolsProtocol):
    """An HTTP connection that is closed where no complete request comes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request as long as for any later one."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Let the time run on until the headers are complete; uvicorn stops it at the first byte."""
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        before = self.cycle
        super().data_received(data)
        if self.cycle is before:
            self.timeout_keep_alive_task = timer
        elif timer is not None:
            timer.cancel()

    def shutdown(self) -> None:
        """Close the connection of a request that is not complete: it was not accepted."""
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self.transport.close()
        else:
            super().shutdown()


def server_of(app: FastAPI) -> uvicorn.Server:
    """A server of `app` that logs errors of its own only, not those of clients."""
    settings: dict[str, Any] = {"http": Connection, "ws": "none", "log_level": "error", "access_log": False}
    return uvicorn.Server(
        uvicorn.Config(
            app,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            **settings,
        )
    )
