"""Code checks: typed specs that answer yes/no items about a text without a model.

`base.py` says what a check is and how to add one; the others hold the package's own, by what they look at.
"""

from checklist_rewards.checks import counts, form, language, numbers, patterns, programs, words
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

_BUILT_IN = (words, counts, form, language, patterns, numbers, programs)  # registered by being imported

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
