"""Code checks: typed specifications that answer yes/no items about a text without a model.

`base.py` defines what a check is and how to register one. The other modules contain the built-in checks by subject.
"""

from checklist_rewards.checks import builtin, numbers, patterns, programs, verifiable, words
from checklist_rewards.checks.base import (
    CHECKS,
    Check,
    Counted,
    check_of,
    describe,
    example_of,
    parse_check,
    register_check,
)
from checklist_rewards.errors import CheckError

_BUILT_IN = (
    builtin,
    numbers,
    patterns,
    programs,
    verifiable,
    words,
)  # importing them registers their checks

__all__ = [
    "CHECKS",
    "Check",
    "CheckError",
    "Counted",
    "check_of",
    "describe",
    "example_of",
    "parse_check",
    "register_check",
]
