"""uvicorn with limits on slow and idle connections.

uvicorn does not limit the time for the headers of a request or, after the first byte, the time of an idle connection,
and on shutdown it waits for requests whose body never ends. [`TimedConnection`] closes such connections. The time
limit for request bodies is in `app`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

IDLE_SECONDS = 30
"""Longest time from the start of a connection, or the last response, until the headers of a request are complete."""
GRACE_SECONDS = 30
"""Time after SIGTERM or Ctrl-C until requests that are still being scored are answered with 503. Kubernetes kills a
process after the same time."""
MAX_CONNECTIONS = 4096
"""Maximum number of connections, equal to the default queue size; requests on further connections get 503."""


class TimedConnection(HttpToolsProtocol):
    """An HTTP connection that is closed if no complete request arrives in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timer for the first request too."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Keep the idle timer running until the headers are complete; uvicorn stops it at the first byte."""
        timer, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        before = self.cycle
        super().data_received(data)
        if self.cycle is before:
            self.timeout_keep_alive_task = timer
        elif timer is not None:
            timer.cancel()

    def shutdown(self) -> None:
        """Close the connection of an incomplete request, which has not been accepted yet."""
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self.transport.close()
        else:
            super().shutdown()


def server_of(app: FastAPI) -> uvicorn.Server:
    """A server of `app` that logs its own errors but not those of clients."""
    settings: dict[str, Any] = {"http": TimedConnection, "ws": "none", "log_level": "error", "access_log": False}
    return uvicorn.Server(
        uvicorn.Config(
            app,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            **settings,
        )
    )
