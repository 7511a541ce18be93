"""Checks that run code: the text's own code, or a program that a checklist brings along.

Both run what a model may have written, in the [`sandbox`](sandbox.py), and both are off unless the user allows them
(`allow_code=True`, `--allow-code`). Only processor time and memory are limited, not what they cost: a batch of
completions with endless loops takes `seconds` each.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from checklist_rewards.checks.base import Check, register_check
from checklist_rewards.checks.sandbox import run_python
from checklist_rewards.errors import CheckError

_FENCED = re.compile(r"^```[ \t]*(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "py", "python3", "")


class _Running(Check):
    executes = True
    seconds: float = Field(default=5.0, gt=0, le=60)
    """Processor time."""
    memory_mb: int = Field(default=512, ge=64, le=4096)


@register_check
class Code(_Running):
    """The Python blocks of the text run without an exception, and so do the `tests` after them.

    An exception, too much time or too much memory is the code's own failure, so the answer is no.
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
        outcome = run_python(code, self.tests, seconds=self.seconds, memory_mb=self.memory_mb)
        return outcome.failure is None


@register_check
class Program(_Running):
    """A program with a function `holds(text)` that returns True or False (RLCF has models write such verifiers,
    arXiv:2507.18624). If it fails, or returns anything else, there is no answer."""

    summary = "A Python function holds(text), written in 'source', returns True."
    example = {"source": "def holds(text):\n    return text.count('(') == text.count(')')"}
    type: Literal["program"] = "program"
    source: str = Field(min_length=1)

    def holds(self, text: str, input: str | None = None) -> bool:
        """See [`Check`]."""
        outcome = run_python(self.source, text=text, seconds=self.seconds, memory_mb=self.memory_mb)
        if outcome.failure is not None:
            raise CheckError(f"the program failed ({outcome.failure})")
        if not isinstance(outcome.value, bool):
            raise CheckError(f"the program returned {outcome.value!r:.60}; it must return True or False")
        return outcome.value


def python_of(text: str) -> str:
    """The Python of a text: its fenced blocks, one after another; without any, the whole text."""
    blocks = _FENCED.findall(text)
    return "\n".join(code for language, code in blocks if language.lower() in _PYTHON) if blocks else text
