"""What keeps a failure of the monitor away from the training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
MOST_FAILURES = 3


class Guard:
    """Runs a part of the monitor; an error is logged, and replaced by a fallback. A part that fails three times is
    turned off, so that a broken shadow judge does not delay every step.

    Args:
        report (callable):
            Called with the part, the error, and whether it is the first one of this part.
    """

    def __init__(self, report: Callable[[str, str, bool], None]):
        self.report = report
        self.failures: Counter[str] = Counter()

    def __call__(self, part: str, work: Callable[[], Value], fallback: Value) -> Value:
        """The value of `work`, or `fallback`."""
        # Communication is never turned off: other ranks wait for it.
        if self.failures[part] >= MOST_FAILURES and part != "ranks":
            return fallback
        try:
            return work()
        except Exception as error:  # whatever fails in the monitor, the training must continue
            self.failed(part, error)
            return fallback

    def failed(self, part: str, error: Exception) -> None:
        """Count and report a failure."""
        self.failures[part] += 1
        self.report(part, f"{type(error).__name__}: {error}", self.failures[part] == 1)
