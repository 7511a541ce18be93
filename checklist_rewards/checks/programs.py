"""Checks that run code: the text's own code, or a program that a checklist brings along.

Both run in the [`sandbox`](sandbox/__init__.py), and both are off unless the user allows them (`allow_code=True`,
`--allow-code`): each takes a tenth of a second or more, and a text with an endless loop takes all of `seconds`.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.checks.sandbox import EXHAUSTED, Outcome, run_code, run_program
from checklist_rewards.errors import CheckError

_FENCED = re.compile(r"^```[ \t]*(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "py", "python3", "")


class _Running(Check):
    executes = True
    seconds: float = Field(default=5.0, gt=0, le=60)
    """Computing time, in instructions that take a core about so long. Isolated Python is about ten times slower than
    Python outside, so 5 seconds are half a second there."""
    memory_mb: int = Field(default=512, ge=64, le=4096)


@register_check
class Code(_Running):
    """The Python blocks of the text run without an exception, and so do the `tests` after them.

    `tests` is Python as in HumanEval and MBPP: imports, variables, helper functions, `assert f(x) == y`,
    `def check(candidate): ...` or `unittest`. It runs in an interpreter of its own, where the names it does not define
    are those of the code: functions and classes can be called there, with data or with functions of the tests. The
    tests see results, not what is printed. An object of a class of the code can be used, but equals only itself:
    compare its attributes, or `str(...)` of it. The code cannot be given an object of a class of the tests.

    The standard library is there, except threads, processes, sockets and ctypes; other packages are not.
    """

    summary = "The Python code in the text runs without an error and passes the tests (assert statements)."
    example = {"tests": "assert add(2, 3) == 5"}
    type: Literal["code"] = "code"
    tests: str = ""

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]. A text without code passes no test."""
        code = python_of(text)
        if not code.strip():
            return False
        return run_code(code, self.tests, seconds=self.seconds, memory_mb=self.memory_mb).failure is None


@register_check
class Program(_Running):
    """A program with a function `holds(text)` that returns True or False (RLCF has models write such verifiers,
    arXiv:2507.18624).

    A program that fails, or returns anything else, leaves the item unanswered. A text on which it runs out of time or
    memory fails the check, because a policy could write such texts to have the item dropped; unless the program runs
    out on the empty text too, which is the fault of the program.
    """

    summary = "A Python function holds(text), written in 'source', returns True."
    example = {"source": "def holds(text):\n    return text.count('(') == text.count(')')"}
    type: Literal["program"] = "program"
    source: str = Field(min_length=1)

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        outcome = self._run(text)
        if outcome.failure in EXHAUSTED and self._run("").failure not in EXHAUSTED:
            return False
        if outcome.failure is not None:
            raise CheckError(f"the program failed ({outcome.failure})")
        if outcome.value not in ("True", "False"):
            raise CheckError(f"the program returned {outcome.value:.60}; it must return True or False")
        return outcome.value == "True"

    def _run(self, text: str) -> Outcome:
        return run_program(self.source, text, seconds=self.seconds, memory_mb=self.memory_mb)


def python_of(text: str) -> str:
    """The Python of a text: its fenced blocks, one after another; without any, the whole text."""
    blocks = _FENCED.findall(text)
    return "\n".join(code for language, code in blocks if language.lower() in _PYTHON) if blocks else text
