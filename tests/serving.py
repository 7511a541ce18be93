"""An ASGI application on a port of its own, in this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from checklist_rewards.cli.serving import listen
from checklist_rewards.server.connections import server_of
from tests.conftest import HANG
from tests.waiting import until


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """The address where `app` is served as long as the block lasts."""
    with listen("127.0.0.1", 0) as listening, running(server_of(app), listening):
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def running(server: uvicorn.Server, listening: socket.socket) -> Iterator[threading.Thread]:
    """The thread that serves as long as the block lasts."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    try:
        yield thread
    finally:
        server.should_exit = True
        thread.join(HANG)
