"""Runs Python that nobody has read: the code in a text under judgement, or a program that a checklist brings along.

The threat model. The text is hostile: in reinforcement learning a policy keeps whatever raises its reward. It may try
to reach files, processes and the network of the host; to make a check say yes although the tests fail; to have the
item dropped instead of answered no; to use up time, memory or disk; to leave something behind for later checks. Tests
and programs come with the checklist. Their author is honest, but may be a model, so they get no rights either.

What is guaranteed:

- *Isolation.* Everything runs in guests: CPython in WebAssembly (`wasm.py`), which can compute and exchange messages
  with the host and nothing else. Each check starts new guests, so no check can influence another. No guest runs in a
  plain process unless the user allows that (`process.py`).
- *A yes is earned.* Nothing inside an interpreter can be protected from code in the same interpreter. So the tests run
  in a second guest. The functions they call are those of the code, in the first guest; arguments and results are
  passed as plain data, and all comparisons are made by the tests' own interpreter. The code never learns what result
  is expected, and an object of its own class equals nothing. To forge a result is to know the right one. What is
  printed is not taken for a message.
- *A no stays a no.* An exception, an exit, a crash, too much time, memory or output of the code is no, whatever the
  code does to cause it. Only what is not its doing leaves a check unanswered: tests that are no Python or import a
  module that is missing, or a host that cannot start a guest.
- *The same answer every time.* Time is counted in instructions and random numbers are fixed, so a busy machine turns
  no correct program into a wrong one.

What is not: tests are as good as what they ask. Code without tests passes by doing nothing, and `assert f(2) != 3` is
passed by most values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from checklist_rewards.checks.sandbox.guest import Ended, Guest
from checklist_rewards.checks.sandbox.inside import BROKEN, FAILED, PASS_ON, RAN
from checklist_rewards.checks.sandbox.process import ProcessGuest
from checklist_rewards.checks.sandbox.wasm import WasmGuest, unavailable
from checklist_rewards.errors import CheckError

__all__ = ["EXHAUSTED", "Outcome", "run_code", "run_program", "unavailable", "unsafe"]

EXHAUSTED = ("out of time", "out of memory", "out of stack", "crashed", "killed", "said too much")
"""Failures that a text can cause in a program that has no error."""
_unsafe: ContextVar[bool] = ContextVar("unsafe", default=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of what was run."""

    value: str = ""
    """What `holds` returned, as `repr` shows it, or the name of its type where it is no number. Empty for code."""
    failure: str | None = None
    """Why it did not run to its end: an error, "left early", or one of `EXHAUSTED`."""


@contextmanager
def unsafe(allowed: bool) -> Iterator[None]:
    """In this context, checks run in a plain process if that is `allowed`, and isolated otherwise."""
    before = _unsafe.set(allowed)
    try:
        yield
    finally:
        _unsafe.reset(before)


def run_code(code: str, tests: str = "", *, seconds: float, memory_mb: int) -> Outcome:
    """Run code, then tests of it in a guest of their own.

    Args:
        code, tests (`str`): Python. Names that the tests do not define are those of the code.
        seconds (`float`): of computing for each of the two.
        memory_mb (`int`): of memory for each of the two.

    Raises:
        CheckError: if the tests cannot be run, whatever the code is, or no guest could be started.
    """
    with closing(_guest(seconds, memory_mb)) as under_test:
        report = _report(lambda: under_test.exchange(b"code", _bytes(code)))
        if not report.startswith(RAN) or not tests.strip():
            return _outcome(report)
        with closing(_guest(seconds, memory_mb)) as tester:
            report = _report(lambda: _tested(under_test, tester, tests))
    if report.startswith(BROKEN):
        raise CheckError(f"the tests cannot be run ({_outcome(report).failure})")
    return _outcome(report)


def run_program(source: str, text: str, *, seconds: float, memory_mb: int) -> Outcome:
    """Run a program and its function `holds(text)`. For the arguments, see [`run_code`]."""
    with closing(_guest(seconds, memory_mb)) as guest:
        return _outcome(_report(lambda: guest.exchange(b"program", _bytes(source), _bytes(text))))


def _guest(seconds: float, memory_mb: int) -> Guest:
    return (ProcessGuest if _unsafe.get() else WasmGuest)(seconds, memory_mb)


def _tested(under_test: Guest, tester: Guest, tests: str) -> bytes:
    report = tester.exchange(b"tests", _bytes(tests))
    while report.startswith(PASS_ON):
        answer = under_test.exchange(report.removeprefix(PASS_ON))
        if not answer.startswith(PASS_ON):
            return FAILED + answer[1:]  # whatever the code says of itself, it cannot say that the tests ran or broke
        report = tester.exchange(answer.removeprefix(PASS_ON))
    return report


def _report(exchange: Callable[[], bytes]) -> bytes:
    try:
        return exchange()
    except Ended as ended:
        return FAILED + str(ended).encode()


def _outcome(report: bytes) -> Outcome:
    text = report[1:].decode("utf-8", "replace")
    return Outcome(text) if report.startswith(RAN) else Outcome(failure=text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
