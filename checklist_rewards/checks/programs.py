"""Checks that execute code: the code in a text, or a program in the checklist.

Both run in the [`sandbox`](sandbox/__init__.py) and are disabled unless the user allows them (`allow_code=True`,
`--allow-code`). Each takes at least a tenth of a second; a text with an infinite loop takes all of `seconds`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from pydantic import Field
from typing_extensions import override

from checklist_rewards.checks import sandbox
from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.checks.sandbox import EXHAUSTED, Execution, run_code, run_program
from checklist_rewards.checks.unit_tests import ENTRY, entry_point, fault, runnable, stubs
from checklist_rewards.errors import CheckError

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*(\w*)")
_SIMPLE = ("", "It is a short text.\n")
"""Texts on which a program without a mistake has none of the failures [`_OWN`]."""
_OWN = re.compile(
    r"(?!.*'NoneType')(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError|IndentationError"
    r"|AttributeError|TypeError|KeyError: 'holds'|left early)"
)
"""Failures of a program that has a mistake in it. A text can cause others, also what None does not have, which is what
a search in the text returns without a match."""
_PYTHON = ("python", "py", "python3", "")


class _ExecutingCheck(Check):
    executes = True
    seconds: float = Field(default=5.0, gt=0, le=60)
    """Limit of computing time, counted in instructions that take a core about that long. Isolated Python is about ten
    times slower than normal Python, so 5 seconds correspond to half a second of normal Python."""
    memory_mb: int = Field(default=512, ge=64, le=4096)
    """Limit of memory."""


@register_check
class Code(_ExecutingCheck):
    """The Python code blocks of the text run without an exception, and the `tests` pass.

    `tests` is Python code as in HumanEval and MBPP: imports, variables, helper functions and `assert f(x) == y`. Test
    functions and classes, `unittest` cases, doctests and `def check(candidate): ...` are called as a test runner would
    (`unit_tests.py`). Tests that assert nothing, do not use the code, or pass code that computes nothing are
    broken: the item is unanswered. They run in a separate interpreter. Names that the tests do not define refer to the
    code: its functions and classes can be called with data or with functions of the tests. The tests see
    return values, but not printed output. Objects of classes defined in the code can be used, but are equal only to
    themselves: compare their attributes or `str(...)`. Objects of classes defined in the tests cannot be passed to the
    code.

    The standard library is available, except threads, processes, sockets and ctypes. Other packages are not.
    """

    summary = "The Python code in the text runs without an error and passes the tests (assert statements)."
    example = {"tests": "assert add(2, 3) == 5"}
    type: Literal["code"] = "code"
    tests: str = ""

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        """False for a text without code."""
        if (why := self.fault()) is not None:
            raise CheckError(why)
        code = python_of(text)
        if not code.strip():
            return False
        entry = entry_point(code)
        passes = self._passes(code, entry)
        if passes and self.tests.strip() and _passes_stubs(self, entry, sandbox.is_unsafe()):
            raise CheckError("the tests pass code that computes nothing")
        return passes

    def _passes(self, code: str, entry: str) -> bool:
        tests = runnable(self.tests)
        if ENTRY in tests:
            code = f"{code}\n{ENTRY} = {entry}\n"
        return run_code(code, tests, seconds=self.seconds, memory_mb=self.memory_mb).failure is None

    @override
    def fault(self) -> str | None:
        """Why the tests would pass any code."""
        return fault(self.tests) if self.tests.strip() else None


@lru_cache(maxsize=4096)
def _passes_stubs(check: Code, entry: str, unsafe: bool) -> bool:
    """Whether code that computes nothing passes the tests of a check. `unsafe`: where they run, for the cache."""
    codes = stubs(check.tests, entry)
    try:
        return bool(codes) and all(check._passes(code, entry) for code in codes)
    except CheckError:  # something that only these codes cannot do
        return False


@register_check
class Program(_ExecutingCheck):
    """A program with a function `holds(text)` that returns True or False. In RLCF (arXiv:2507.18624), models write
    such verifiers.

    If the program raises an error on a text, returns None, or runs out of time or memory, the text fails the check,
    because a policy could otherwise write such texts to have the item dropped. With `on_error="unanswered"` an error
    or None leaves the item unanswered. So does a program with a mistake: it returns another value, or fails on any
    text for a reason such as a `NameError` or the time limit.
    """

    summary = "A Python function holds(text), written in 'source', returns True."
    example = {"source": "def holds(text):\n    return text.count('(') == text.count(')')"}
    type: Literal["program"] = "program"
    source: str = Field(min_length=1)
    on_error: Literal["no", "unanswered"] = "no"

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        execution = self._run(text)
        if execution.failure is not None:
            is_no = self.on_error == "no" or execution.failure in EXHAUSTED
            if is_no and not all(_is_mistake(self._run(simple).failure) for simple in _SIMPLE):
                return False
            raise CheckError(f"the program failed ({execution.failure})")
        if execution.value == "None" and self.on_error == "no":  # `if ...: return True`
            return False
        if execution.value not in ("True", "False"):
            raise CheckError(f"the program returned {execution.value:.60}; it must return True or False")
        return execution.value == "True"

    def _run(self, text: str) -> Execution:
        return run_program(self.source, text, seconds=self.seconds, memory_mb=self.memory_mb)


def _is_mistake(failure: str | None) -> bool:
    return failure is not None and (failure in EXHAUSTED or _OWN.match(failure) is not None)


def python_of(text: str) -> str:
    """The Python code of a text: its fenced code blocks, concatenated, at any depth. Without any, the whole text."""
    blocks: list[str] = []
    start: re.Match[str] | None = None  # of the open block
    lines: list[str] = []
    for line in text.split("\n"):  # by line: a regular expression over the whole text takes quadratic time
        fence = _FENCE.match(line)
        if start is None:
            if fence is not None:
                start, lines = fence, []
        elif fence is None or not fence[2].startswith(start[2]) or len(fence[1]) > len(start[1]):
            depth = len(line) - len(line.lstrip(" \t"))
            lines.append(line[min(depth, len(start[1])) :])
        else:
            is_python = start[3].lower() in _PYTHON
            blocks.append("".join(f"{line}\n" for line in lines) if is_python else "")
            start = None
    return "\n".join(filter(None, blocks)) if blocks else text
