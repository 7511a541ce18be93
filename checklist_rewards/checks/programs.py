"""Checks that execute code: the code in a text, or a program in the checklist.

Both run in the [`sandbox`](sandbox/__init__.py) and are disabled unless the user allows them (`allow_code=True`,
`--allow-code`). Each takes at least a tenth of a second; a text with an infinite loop takes all of `seconds`.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field
from typing_extensions import override

from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.checks.sandbox import EXHAUSTED, Execution, run_code, run_program
from checklist_rewards.errors import CheckError

_FENCED = re.compile(r"^```[ \t]*(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
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

    `tests` is Python code as in HumanEval and MBPP: imports, variables, helper functions, `assert f(x) == y`,
    `def check(candidate): ...` or `unittest`. It runs in a separate interpreter. Names that the tests do not define
    refer to the code: its functions and classes can be called with data or with functions of the tests. The tests see
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
        code = python_of(text)
        if not code.strip():
            return False
        return run_code(code, self.tests, seconds=self.seconds, memory_mb=self.memory_mb).failure is None


@register_check
class Program(_ExecutingCheck):
    """A program with a function `holds(text)` that returns True or False. In RLCF (arXiv:2507.18624), models write
    such verifiers.

    If the program fails or returns another value, the item is unanswered. If it runs out of time or memory on a text,
    the text fails the check, because a policy could otherwise write such texts to have the item dropped. If it also
    runs out on the empty text, the program is at fault, and the item is unanswered.
    """

    summary = "A Python function holds(text), written in 'source', returns True."
    example = {"source": "def holds(text):\n    return text.count('(') == text.count(')')"}
    type: Literal["program"] = "program"
    source: str = Field(min_length=1)

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        execution = self._run(text)
        if execution.failure in EXHAUSTED and self._run("").failure not in EXHAUSTED:
            return False
        if execution.failure is not None:
            raise CheckError(f"the program failed ({execution.failure})")
        if execution.value not in ("True", "False"):
            raise CheckError(f"the program returned {execution.value:.60}; it must return True or False")
        return execution.value == "True"

    def _run(self, text: str) -> Execution:
        return run_program(self.source, text, seconds=self.seconds, memory_mb=self.memory_mb)


def python_of(text: str) -> str:
    """The Python code of a text: its fenced code blocks, concatenated. Without any, the whole text."""
    blocks = _FENCED.findall(text)
    return "\n".join(code for language, code in blocks if language.lower() in _PYTHON) if blocks else text
