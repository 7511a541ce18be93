"""Runs untrusted Python: the code in a text to be judged, or a program in a checklist.

Threat model: the text is hostile, because in reinforcement learning a policy learns whatever raises its reward. It may
try to access files, processes and the network of the host; to pass a check although the tests fail; to have the item
dropped instead of answered no; to exhaust time, memory or disk; or to influence later checks. Tests and programs come
with the checklist. Their author is assumed honest, but may be a model, so they get no privileges either.

What is guaranteed:

- *Isolation.* All code runs in guests: CPython in WebAssembly ([`WasmGuest`]), which can only compute and exchange
  messages with the host. Each check starts new guests, so checks cannot influence each other. Guests run in a plain
  process only if the user allows it ([`ProcessGuest`]).
- *No false yes.* Nothing inside an interpreter can be protected from code in the same interpreter, so the tests run in
  a second guest. They call the functions of the code, which run in the first guest. Arguments and results are passed
  as plain data, and all comparisons are made in the tests' interpreter. The code never sees the expected result, and
  objects of its own classes are equal to nothing else, so it can only return the correct result by computing it.
  Printed output is never interpreted as a message.
- *No evasion.* An exception, an exit, a crash, or too much time, memory or output of the code means no, whatever the
  code does to cause it. A check is unanswered only for reasons outside the code: the tests are not valid Python or
  import a missing module, or the host cannot start a guest.
- *Bounded memory.* Guests that run at once may together take half of the machine's memory, but one check always runs.
- *Reproducibility.* Time is counted in instructions and random numbers are fixed, so the load of the machine does not
  affect the result.

What is not guaranteed: the quality of the tests. Code without tests passes if it runs, and most values pass
`assert f(2) != 3`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from checklist_rewards.checks.sandbox.guests import Ended, Guest, ProcessGuest, WasmGuest, unavailable
from checklist_rewards.checks.sandbox.inside import BROKEN, FAILED, PASS_ON, RAN
from checklist_rewards.errors import CheckError

__all__ = ["EXHAUSTED", "Execution", "is_unsafe", "run_code", "run_program", "unavailable", "unsafe"]

EXHAUSTED = ("out of time", "out of memory", "out of stack", "crashed", "killed", "said too much")
"""Failures that a text can cause in a correct program."""
_unsafe: ContextVar[bool] = ContextVar("unsafe", default=False)


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of running untrusted code."""

    value: str = ""
    """`repr` of the value that `holds` returned, or the name of its type if it is not None, a boolean or a number.
    Empty for code."""
    failure: str | None = None
    """Why the code did not complete: an error, "left early", or one of `EXHAUSTED`. None if it completed."""


@contextmanager
def unsafe(allowed: bool) -> Iterator[None]:
    """Run checks inside this context in a plain process if `allowed`, and isolated otherwise."""
    before = _unsafe.set(allowed)
    try:
        yield
    finally:
        _unsafe.reset(before)


def is_unsafe() -> bool:
    """Whether checks run in a plain process here."""
    return _unsafe.get()


def run_code(code: str, tests: str = "", *, seconds: float, memory_mb: int) -> Execution:
    """Run code, then its tests in a separate guest.

    Args:
        code (`str`): Python code.
        tests (`str`, *optional*): Python code. Names that it does not define refer to `code`.
        seconds (`float`): Limit of computing time, for the code and the tests each.
        memory_mb (`int`): Limit of memory, for the code and the tests each.

    Raises:
        CheckError: If the tests cannot run with any code, or if a guest cannot be started.
    """
    with _memory(2 * memory_mb), closing(_guest(seconds, memory_mb)) as under_test:
        report = _report(lambda: under_test.exchange(b"code", _bytes(code)))
        if not report.startswith(RAN) or not tests.strip():
            return _execution(report)
        with closing(_guest(seconds, memory_mb)) as tester:
            report = _report(lambda: _tested(under_test, tester, tests))
    if report.startswith(BROKEN):
        raise CheckError(f"the tests cannot be run ({_execution(report).failure})")
    return _execution(report)


def run_program(source: str, text: str, *, seconds: float, memory_mb: int) -> Execution:
    """Run a program and call its function `holds(text)`. The limits are those of [`run_code`]."""
    with _memory(memory_mb), closing(_guest(seconds, memory_mb)) as guest:
        return _execution(_report(lambda: guest.exchange(b"program", _bytes(source), _bytes(text))))


class Memory:
    """Memory that several threads take parts of, in the order in which they ask.

    Args:
        most_mb (`int`): All parts together. A single part may be larger if it is the only one.
    """

    def __init__(self, most_mb: int):
        self.most_mb, self.taken_mb = most_mb, 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def __call__(self, part_mb: int) -> Iterator[None]:
        """Wait for a part, and have it until the block ends."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(lambda: self._waiting[0] is ticket and self._has(part_mb))
                self.taken_mb += part_mb
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.taken_mb -= part_mb
                self._changed.notify_all()

    def _has(self, part_mb: int) -> bool:
        return not self.taken_mb or self.taken_mb + part_mb <= self.most_mb


def _half_of_the_machine() -> int:
    """Half of the memory of this machine or container, in MiB."""
    sizes = [8 * 2**30]
    with suppress(OSError, ValueError, AttributeError):  # AttributeError: no sysconf on Windows
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):  # ValueError: "max"
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes) // 2 // 2**20


_memory = Memory(_half_of_the_machine())


def _guest(seconds: float, memory_mb: int) -> Guest:
    return (ProcessGuest if _unsafe.get() else WasmGuest)(seconds, memory_mb)


def _tested(under_test: Guest, tester: Guest, tests: str) -> bytes:
    report = tester.exchange(b"tests", _bytes(tests))
    while report.startswith(PASS_ON):
        answer = under_test.exchange(report.removeprefix(PASS_ON))
        if not answer.startswith(PASS_ON):
            return FAILED + answer[1:]  # the code must not be able to report that the tests passed or cannot run
        report = tester.exchange(answer.removeprefix(PASS_ON))
    return report


def _report(exchange: Callable[[], bytes]) -> bytes:
    try:
        return exchange()
    except Ended as ended:
        return FAILED + str(ended).encode()


def _execution(report: bytes) -> Execution:
    text = report[1:].decode("utf-8", "replace")
    return Execution(text) if report.startswith(RAN) else Execution(failure=text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
