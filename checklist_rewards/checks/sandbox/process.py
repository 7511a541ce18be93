"""A guest that is not isolated: a plain process with limits (`allow_code="unsafe"`).

The process has no environment variables, an empty working folder that is deleted afterwards, no third-party packages,
and limits on processor time, memory, open files and file sizes (`setrlimit`). When the check ends, its whole session
is killed. Nevertheless, the process can read and write all files that the user can, use the network, and escape being
killed by leaving its session. Use it only for code that you trust, or inside a container.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checklist_rewards.checks.sandbox.guest import MESSAGE_BYTES, PROGRAM, Ended, framed
from checklist_rewards.errors import CheckError

WAIT_FACTOR, WAIT_SECONDS = 3.0, 10.0
_PRELUDE = """
import resource, sys
for name, most in (("CPU", {seconds}), ("AS", {memory}), ("FSIZE", 32768), ("NOFILE", 32), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most + (name == "CPU")))
"""


class ProcessGuest:
    """A guest in a process.

    Args:
        seconds (`float`): Limit of processor time. The limit of elapsed time is three times that plus ten seconds.
        memory_mb (`int`): Limit of address space.

    Raises:
        CheckError: If the process cannot be started.
    """

    def __init__(self, seconds: float, memory_mb: int):
        self._wait = WAIT_FACTOR * seconds + WAIT_SECONDS
        self._end = time.monotonic() + self._wait
        self._folder = tempfile.TemporaryDirectory(prefix="checklist-rewards-")
        self._channel, theirs = socket.socketpair()
        prelude = _PRELUDE.format(seconds=max(1, math.ceil(seconds)), memory=memory_mb * 2**20)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", "-c", prelude + PROGRAM, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd=self._folder.name,
                    env={},
                    start_new_session=True,
                )
            except OSError as error:
                self._channel.close()
                self._folder.cleanup()
                raise CheckError(f"the process could not be started ({error})") from None

    def exchange(self, *payloads: bytes) -> bytes:
        """Send messages and return the reply.

        Raises:
            Ended: If the process ends without a reply.
            CheckError: If the machine was too busy to run the process in time.
        """
        try:
            self._channel.settimeout(self._left())
            self._channel.sendall(b"".join(map(framed, payloads)))
            size = int.from_bytes(self._received(8), "big")
            if size > MESSAGE_BYTES:
                raise Ended("said too much")
            return self._received(size)
        except TimeoutError:
            if not _sleeps(self._process.pid):
                raise CheckError(f"the code returned no result within {self._wait:g} s of elapsed time") from None
            raise Ended("out of time") from None
        except ConnectionError:
            raise self._ended() from None

    def close(self) -> None:
        """Kill the process and all processes in its session."""
        self._channel.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()
        self._folder.cleanup()

    def _received(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._channel.settimeout(self._left())
            part = self._channel.recv(size - len(data))
            if not part:
                raise self._ended()
            data += part
        return bytes(data)

    def _left(self) -> float:
        return max(0.001, self._end - time.monotonic())

    def _ended(self) -> Ended:
        try:
            status = self._process.wait(self._left())
        except subprocess.TimeoutExpired:
            status = 0
        return Ended({-signal.SIGXCPU: "out of time", -signal.SIGKILL: "killed"}.get(status, "left early"))


def _sleeps(pid: int) -> bool:
    """Whether a process is waiting for something other than a processor; False if this cannot be determined."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False
