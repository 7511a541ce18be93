"""Runs Python that nobody has read, in a process of its own with limits.

The child gets no environment, an empty working folder that is removed afterwards, no third-party packages, closed
standard input and output, and hard limits on processor time, memory, open files and the size of files (`setrlimit`).
It is cut off from the network by a namespace of its own where the kernel allows that. An audit hook stops sockets,
new processes, foreign functions and access to files other than Python's own; a hook cannot be removed by Python code.
Sleeping takes no time.

That keeps honest mistakes and ordinary mischief from a run. It is no wall against an attacker: run untrusted models'
code in a container.

The child reports by one line that begins with a secret it was sent, so code that prints a result, or leaves early, has
not reported one. What happened to the code (it failed, or used up its processor time or memory) is an [`Outcome`]; a
sandbox that could not do its work raises [`CheckError`].
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checklist_rewards.errors import CheckError

_WAIT_FACTOR, _WAIT_SECONDS = 3.0, 10.0
_REPORT_BYTES = 65536
_FAILURES = {-signal.SIGXCPU: "out of time", -signal.SIGSEGV: "out of memory"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the code."""

    value: object = None
    """What `holds` returned; None for code without it."""
    failure: str | None = None
    """Why it did not run to its end: an exception, "out of time", "out of memory", "left early"."""


def run_python(*sources: str, text: str | None = None, seconds: float, memory_mb: int) -> Outcome:
    """Run programs one after another in one namespace, and then their function `holds(text)` where `text` is given.

    Args:
        sources (`str`): Python.
        text (`str`, *optional*): the argument of `holds`.
        seconds (`float`): of processor time; three times that and ten seconds may pass on the clock.
        memory_mb (`int`): of address space.

    Raises:
        CheckError: if there is no result for a reason that is not the code's.
    """
    secret = secrets.token_hex(16)
    order = {"sources": sources, "text": text, "seconds": seconds, "memory": memory_mb * 2**20, "secret": secret}
    started = time.monotonic()
    wait = _WAIT_FACTOR * seconds + _WAIT_SECONDS
    with tempfile.TemporaryDirectory(prefix="checklist-rewards-") as folder, tempfile.TemporaryFile() as report:
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=report,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={},
                start_new_session=True,
            )
        except OSError as error:
            raise CheckError(f"the sandbox could not be started ({error})") from None
        try:
            child.communicate(json.dumps(order).encode(), timeout=wait)
        except subprocess.TimeoutExpired:
            if not _sleeps(child.pid):  # the machine may be too busy to run it, which says nothing about the code
                raise CheckError(f"the code gave no result within {wait:g} s on the clock") from None
            return Outcome(failure="out of time")
        finally:
            _kill(child)
        report.seek(0)
        said = report.read(_REPORT_BYTES).decode(errors="replace").splitlines()
    status = child.returncode
    if status == -signal.SIGKILL and time.monotonic() - started >= seconds:
        status = -signal.SIGXCPU  # what comes to code that does not heed the first limit
    return _outcome(said, secret, status)


def _outcome(said: Sequence[str], secret: str, status: int) -> Outcome:
    for line in said:
        if line.startswith(secret):
            result = json.loads(line.removeprefix(secret))
            if "broken" in result:
                raise CheckError(f"the sandbox could not be set up ({result['broken']})")
            return Outcome(result.get("value"), result.get("failure"))
    if status == -signal.SIGKILL:
        raise CheckError("the code was killed from outside")
    return Outcome(failure=_FAILURES.get(status, "left early"))


def _sleeps(pid: int) -> bool:
    """Whether a process waits for something, rather than for a processor; False where that cannot be told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False


def _kill(child: subprocess.Popen[bytes]) -> None:
    # The whole session: what the code may have started goes with it.
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()


# What the child runs. It needs nothing of this package: it is started without a path to it.
_CHILD = r"""
import json, os, sys


def main():
    order = json.loads(sys.stdin.buffer.read())
    channel, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)

    def report(result, secret=order.pop("secret"), write=os.write, leave=os._exit, dumps=json.dumps):
        write(channel, (secret + dumps(result) + "\n").encode())
        leave(0)

    try:
        confine(order["seconds"], order["memory"])
    except BaseException as error:
        report({"broken": f"{type(error).__name__}: {error}"[:500]})
    try:
        result = run(order["sources"], order["text"])
    except MemoryError:
        result = {"failure": "out of memory"}
    except BaseException as error:
        result = {"failure": f"{type(error).__name__}: {error}"[:500]}
    report(result)


def confine(seconds, memory):
    import ctypes, math, resource, time

    if sys.platform == "linux":
        ctypes.CDLL(None).unshare(0x10000000 | 0x40000000)  # a user and a network namespace, where that is allowed
    seconds = max(1, math.ceil(seconds))
    limits = {"CPU": seconds, "AS": memory, "FSIZE": 32768, "NOFILE": 32, "CORE": 0}
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most + (name == "CPU")))
    realpath, refusal = os.path.realpath, PermissionError
    inside = tuple(realpath(path) + os.sep for path in (os.path.dirname(os.__file__), os.getcwd()))
    events = tuple(
        "socket. subprocess. os.exec os.fork os.posix_spawn os.spawn os.system os.kill pty. ctypes. shutil. os.remove "
        "os.rename os.rmdir os.mkdir os.ch os.link os.symlink os.truncate signal. resource. gc. webbrowser. urllib. "
        "ftplib. http. smtplib. sqlite3. mmap. fcntl. syslog.".split()
    )

    def guard(event, arguments, str=str, isinstance=isinstance):
        reads = event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str)
        if reads and not (realpath(arguments[0]) + os.sep).startswith(inside):
            raise refusal("files are out of reach here")
        if event.startswith(events):
            raise refusal(event + " is not allowed here")

    time.sleep = lambda seconds: None  # waiting would cost time on the clock and nothing else
    sys.addaudithook(guard)


def run(sources, text):
    names = {"__name__": "__main__"}
    for source in sources:
        exec(compile(source, "<code>", "exec"), names)
    if text is None:
        return {}
    value = names["holds"](text)
    return {"value": value if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__}


main()
"""
