"""Waits for another thread or process. A wait of HANG seconds fails the test, so that no run hangs."""

import re
import subprocess
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tests.conftest import HANG
from tests.zygote import Program

Found = TypeVar("Found")


def until(condition: Callable[[], Found], *, seconds: float = HANG) -> Found:
    """The value of `condition()` once it is true."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() >= end:
            raise TimeoutError(f"still not true after {seconds:g} s")
        time.sleep(0.01)
    return found


def printed(process: subprocess.Popen[str] | Program, pattern: str) -> re.Match[str]:
    """The first match in a line that a process prints on standard error. A process that stays silent is killed."""
    assert process.stderr is not None
    lines: list[str] = []
    killed = threading.Timer(HANG, process.kill)
    killed.start()
    try:
        for line in process.stderr:
            lines.append(line)
            if found := re.search(pattern, line):
                return found
    finally:
        killed.cancel()
    raise AssertionError(f"the process ended, or was killed after {HANG:g} s, before it printed {pattern}: {lines}")
