"""Several processes that accept requests, in front of one that calls the judge.

[`Workers`] runs in the process of the judge. Each worker parses and checks requests and writes responses; the queue
and the judge are here (`link`). The workers are started anew rather than forked, because an engine has threads and
perhaps a GPU. They get the scorer's settings and load no engine.

Each worker has a listening socket of its own on the shared port, so that the system spreads connections evenly. This
process keeps the sockets open too: connections that wait while a worker is down are accepted by its successor.

A worker that ends is replaced. Its clients lose their connections and send their requests again. On SIGTERM or Ctrl-C
all workers drain (`connections`), and then the queue is closed.
"""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType

from checklist_rewards.errors import SampleError
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.server.app import CLOSE_SECONDS, app_of
from checklist_rewards.server.connections import GRACE_SECONDS, run_server, server_of
from checklist_rewards.server.drain import Drain
from checklist_rewards.server.link import RemoteQueue, Served
from checklist_rewards.server.middleware import check_token
from checklist_rewards.server.scoring import ScoringQueue

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.2
_RESTART_SECONDS = 1.0
"""Pause before a worker is started again that ended before it accepted connections."""


@dataclass(frozen=True)
class AppSettings:
    """What a worker needs for its endpoints. `scorer` is pickled, so that it is that of the start."""

    scorer: bytes
    max_body: int
    token: str | None

    @classmethod
    def of(cls, scorer: ChecklistScorer, *, max_body: int, token: str | None) -> AppSettings:
        """Settings with a scorer that is not loaded yet. Raises [`SampleError`] if it cannot be pickled, or if the
        token is blank."""
        check_token(token)
        try:
            return cls(pickle.dumps(scorer), max_body, token)
        except Exception as error:  # pickle raises many types of errors
            raise SampleError(
                f"several workers require a scorer that can be pickled, and this one cannot ({error}); use one worker."
            ) from error


class _Worker:
    """A worker process, and the listening socket and connection of it."""

    def __init__(self, settings: AppSettings, listening: socket.socket, queue: ScoringQueue):
        self.settings, self.listening, self.queue = settings, listening, queue
        self.process: SpawnProcess
        self.is_started = threading.Event()
        self.start_after = 0.0
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.is_started.clear()
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(
            target=_work, args=(self.settings, self.listening, theirs), name="checklist-rewards-worker", daemon=True
        )
        self.process.start()
        theirs.close()  # so that the end of the worker closes the connection
        self.served = Served(ours, self.queue, self.is_started.set)

    def keep_up(self) -> None:
        """Start the process again if it ended."""
        if self.process.is_alive():
            return
        if not self.start_after:
            logger.error(
                "a worker of the reward server ended (exit code %s); starting another.", self.process.exitcode
            )
            self.start_after = time.monotonic() + (0.0 if self.is_started.is_set() else _RESTART_SECONDS)
        if time.monotonic() >= self.start_after:
            self.start_after = 0.0
            self.start()


class Workers:
    """The workers of a server.

    Args:
        settings ([`AppSettings`]):
            Settings of their endpoints.
        queue ([`ScoringQueue`]):
            The queue for their requests.
        listening (sequence of sockets):
            A listening socket for each worker. Closed at the end.
    """

    def __init__(self, settings: AppSettings, queue: ScoringQueue, listening: Sequence[socket.socket]):
        self.queue, self.listening = queue, listening
        self._workers = [_Worker(settings, each, queue) for each in listening]
        self._stopping = False

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def run(self, started: Callable[[], None]) -> None:
        """Keep the workers running until SIGTERM or Ctrl-C, then let them finish and close the queue.

        Args:
            started (`Callable[[], None]`):
                Called when all workers accept connections.

        Raises:
            SampleError: If a worker ends before that.
        """
        with self._signals():
            try:
                while not self._stopping and not all(worker.is_started.is_set() for worker in self._workers):
                    if any(not worker.process.is_alive() for worker in self._workers):
                        raise SampleError("a worker of the reward server ended at its start; see its error above.")
                    time.sleep(0.01)
                if not self._stopping:
                    started()
                while not self._stopping:
                    alive = [each.process.sentinel for each in self._workers if each.process.is_alive()]
                    wait(alive, _TICK_SECONDS) if len(alive) == len(self._workers) else time.sleep(_TICK_SECONDS)
                    for worker in self._workers:
                        worker.keep_up()
            finally:
                self._end()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _end(self) -> None:
        for worker in self._workers:
            worker.served.drain()
        end = time.monotonic() + GRACE_SECONDS + CLOSE_SECONDS
        for worker in self._workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        for listening in self.listening:
            listening.close()
        # In a daemon thread, so that the process can exit even if the engine never returns.
        closing = threading.Thread(target=self.queue.close, daemon=True)
        closing.start()
        closing.join(max(0.0, end - time.monotonic()))


def _work(settings: AppSettings, listening: socket.socket, connection: Connection) -> None:
    """The main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group
    drain = Drain()
    queue = RemoteQueue(connection, drain.requested.set)
    app = app_of(pickle.loads(settings.scorer), queue, drain, max_body=settings.max_body, token=settings.token)
    server = server_of(app, ignores_interrupt=True)
    server.on_started = queue.started
    run_server(server, listening)
