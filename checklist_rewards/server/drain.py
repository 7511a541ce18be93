"""The end of accepting work, before the end of accepting connections."""

from __future__ import annotations

import threading
from typing import Self

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
