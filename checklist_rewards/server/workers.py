"""Several processes that accept requests, in front of one that calls the judge.

[`Workers`] runs in the process of the judge. Each worker parses and checks requests and writes responses; the queue
and the judge are here. The workers are started anew rather than forked, because an engine has threads and
perhaps a GPU. They get the scorer's settings and load no engine.

Each worker has a listening socket of its own on the shared port, so that the system spreads connections evenly. This
process keeps the sockets open too: connections that wait while a worker is down are accepted by its successor.

A worker that ends is replaced. Its clients lose their connections and send their requests again. On SIGTERM or Ctrl-C
all workers drain (`connections`), and then the queue is closed.

Workers and the process of the judge exchange messages. Each worker has a pair of connected sockets with the process of
the judge, inherited and without a path, so no other process can use it. Both ends have a thread that reads and a
thread that writes, so that neither the event loop nor the judge waits for the other process. A message is a header
with its kind and number, and its pickled content: a request in one, its scores in another. The header of an unreadable
message identifies the request that waits for it.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import pickle
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from types import FrameType
from typing import Any

from checklist_rewards.errors import SampleError
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.server.app import CLOSE_SECONDS, app_of, check_token
from checklist_rewards.server.connections import GRACE_SECONDS, Drain, run_server, server_of
from checklist_rewards.server.rows import Refused
from checklist_rewards.server.scoring import Outcome, ScoringQueue, Status, Work

logger = logging.getLogger(__name__)

_HEADER = struct.Struct("!BQ")
_GONE = "the process of the judge is gone; send the request again later."


class Kind(Enum):
    """What a message is."""

    WORK = "work"
    """To the judge: rows to score."""
    DROP = "drop"
    """To the judge: a request whose client is gone."""
    COUNT = "count"
    """To the judge: an answered request, for the metrics."""
    STATUS = "status"
    METRICS = "metrics"
    STARTED = "started"
    """To the judge: the worker accepts connections."""
    ANSWER = "answer"
    """To the worker: the result of a request, or the error that it raised."""
    DRAIN = "drain"
    """To the worker: finish what is under way and exit."""


_KINDS = tuple(Kind)
Message = tuple[Kind, int, Any]


class Link:
    """One end of a connection.

    Args:
        connection (`Connection`):
            The connected socket.
        receive (`Callable[[Message], None]`):
            Called with each message, in the reading thread.
        unsent (`Callable[[Message, Exception], None]`):
            Called with a message that cannot be pickled.
        unread (`Callable[[Kind, int, Exception], None]`):
            Called with kind and number of a received message that cannot be unpickled.
        lost (`Callable[[], None]`):
            Called once when the other process is gone, or when messages can no longer be read.
    """

    def __init__(
        self,
        connection: Connection,
        receive: Callable[[Message], None],
        unsent: Callable[[Message, Exception], None],
        unread: Callable[[Kind, int, Exception], None],
        lost: Callable[[], None],
    ):
        self._connection, self._receive, self._lost = connection, receive, lost
        self._unsent, self._unread = unsent, unread
        self._out: SimpleQueue[Message | None] = SimpleQueue()
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"checklist-link{work.__name__}", daemon=True).start()

    def send(self, kind: Kind, number: int = 0, content: Any = None) -> None:
        """Send a message without waiting."""
        self._out.put((kind, number, content))

    def close(self) -> None:
        """Send what is queued, then nothing more."""
        self._out.put(None)

    def _read(self) -> None:
        try:
            while True:
                self._received(self._connection.recv_bytes())
        except (EOFError, OSError):  # the other process is gone
            pass
        except Exception:
            logger.exception("a message between the processes of the reward server cannot be handled.")
            self._connection.close()  # the other process notices
        self._out.put(None)
        self._lost()

    def _received(self, data: bytes) -> None:
        place, number = _HEADER.unpack_from(data)
        kind = _KINDS[place]
        try:
            content = pickle.loads(memoryview(data)[_HEADER.size :])
        except Exception as error:  # pickle raises many types of errors
            self._unread(kind, number, error)
        else:
            self._receive((kind, number, content))

    def _write(self) -> None:
        while (message := self._out.get()) is not None:
            try:
                kind, number, content = message
                data = _HEADER.pack(_KINDS.index(kind), number) + pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # pickle raises many types of errors, such as for data nested too deeply
                self._unsent(message, error)
                continue
            try:
                self._connection.send_bytes(data)
            except OSError:  # the reading thread notices too
                return


class RemoteQueue:
    """The queue of the judge's process, as a [`ScoringQueue`] for a worker.

    Args:
        connection (`Connection`):
            The connection to the process of the judge.
        drain (`Callable[[], None]`):
            Called when the worker shall finish what is under way and exit, also if the process of the judge is gone.
    """

    def __init__(self, connection: Connection, drain: Callable[[], None]):
        self._drain = drain
        self._numbers = itertools.count(1)
        self._answers: dict[int, Future[Any]] = {}
        self._gone = False
        self._link = Link(connection, self._receive, self._unsent, self._unread, self._lost)

    def submit(self, work: Work) -> Future[list[Outcome]]:
        """Queue the rows of a request; see [`ScoringQueue`]."""
        return self._request(Kind.WORK, work)

    def status(self) -> Future[Status]:
        """The state of the queue."""
        return self._request(Kind.STATUS)

    def metrics(self) -> Future[str]:
        """The metrics of all workers as text."""
        return self._request(Kind.METRICS)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._link.send(Kind.COUNT, 0, (path, status, seconds))

    def started(self) -> None:
        """Report that this worker accepts connections."""
        self._link.send(Kind.STARTED)

    def close(self) -> None:
        """Do nothing: the queue belongs to the process of the judge."""

    def _request(self, kind: Kind, content: Any = None) -> Future[Any]:
        number = next(self._numbers)
        answer: Future[Any] = Future()
        self._answers[number] = answer
        answer.add_done_callback(lambda done: self._done(kind, number, done))
        if self._gone:
            answer.set_exception(Refused(503, _GONE))
        else:
            self._link.send(kind, number, content)
        return answer

    def _done(self, kind: Kind, number: int, answer: Future[Any]) -> None:
        self._answers.pop(number, None)
        if answer.cancelled() and kind is Kind.WORK:
            self._link.send(Kind.DROP, number)

    def _receive(self, message: Message) -> None:
        kind, number, content = message
        if kind is Kind.DRAIN:
            self._drain()
        elif (answer := self._answers.get(number)) is not None:
            _complete(answer, content)

    def _unsent(self, message: Message, error: Exception) -> None:
        if (answer := self._answers.get(message[1])) is not None:
            _complete(answer, Refused(400, f"the rows cannot be passed to the judge ({error})."))

    def _unread(self, kind: Kind, number: int, error: Exception) -> None:
        if (answer := self._answers.get(number)) is not None:
            _complete(answer, Refused(500, f"the answer of the judge's process cannot be read ({error})."))

    def _lost(self) -> None:
        self._gone = True
        for answer in list(self._answers.values()):
            _complete(answer, Refused(503, _GONE))
        self._drain()


class Served:
    """The judge's end of a worker's connection.

    Args:
        connection (`Connection`):
            The connection to the worker.
        queue ([`ScoringQueue`]):
            The queue for its requests.
        started (`Callable[[], None]`):
            Called when the worker accepts connections.
    """

    def __init__(self, connection: Connection, queue: ScoringQueue, started: Callable[[], None]):
        self._queue, self._started = queue, started
        self._answers: dict[int, Future[Any]] = {}
        self._link = Link(connection, self._receive, self._unsent, self._unread, self._lost)

    def drain(self) -> None:
        """Tell the worker to finish what is under way and to exit."""
        self._link.send(Kind.DRAIN)

    def _receive(self, message: Message) -> None:
        kind, number, content = message
        if kind is Kind.COUNT:
            self._queue.count(*content)
        elif kind is Kind.STARTED:
            self._started()
        elif kind is Kind.DROP:
            if (answer := self._answers.get(number)) is not None:
                answer.cancel()
        else:
            answer = self._called(kind, content)
            self._answers[number] = answer
            answer.add_done_callback(lambda done: self._send(number, done))

    def _called(self, kind: Kind, content: Any) -> Future[Any]:
        if kind is Kind.WORK:
            try:
                return self._queue.submit(content)
            except Exception as error:  # otherwise this thread would end, and with it every request of the worker
                failed: Future[Any] = Future()
                failed.set_exception(Refused(500, f"the rows cannot be queued ({type(error).__name__}: {error})."))
                return failed
        return self._queue.status() if kind is Kind.STATUS else self._queue.metrics()

    def _send(self, number: int, answer: Future[Any]) -> None:
        self._answers.pop(number, None)
        if not answer.cancelled():
            error = answer.exception()
            self._link.send(Kind.ANSWER, number, answer.result() if error is None else error)

    def _unsent(self, message: Message, error: Exception) -> None:
        self._link.send(Kind.ANSWER, message[1], Refused(500, f"the scores cannot be passed to the worker ({error})."))

    def _unread(self, kind: Kind, number: int, error: Exception) -> None:
        self._link.send(Kind.ANSWER, number, Refused(500, f"the judge's process cannot read the rows ({error})."))

    def _lost(self) -> None:
        for answer in list(self._answers.values()):
            answer.cancel()


def _complete(answer: Future[Any], content: Any) -> None:
    try:
        if isinstance(content, Exception):
            answer.set_exception(content)
        else:
            answer.set_result(content)
    except InvalidStateError:  # cancelled since
        return


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
