"""A check on a numeric answer."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field
from typing_extensions import override

from checklist_rewards.checks.base import Check, register_check

_NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+)?")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}")
_BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")


@register_check
class Number(Check):
    """Compares the last number of the text, or of the last `\\boxed{...}` in it. "so it is 1,250." is read as 1250,
    "3/4" as 0.75; percent signs and currencies are ignored."""

    summary = "The final answer, the last number in the text (or in the last \\boxed{}), is this number."
    example = {"value": 42}
    type: Literal["number"] = "number"
    value: float = Field(allow_inf_nan=False)
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    """Largest allowed absolute difference."""

    @override
    def holds(self, text: str, input: str | None = None) -> bool:
        """False for a text without a number."""
        answer = last_number(text)
        return answer is not None and abs(answer - self.value) <= self.tolerance


def last_number(text: str) -> float | None:
    """The last number of a text, or of its last `\\boxed{...}`; None if there is no number."""
    text = _FRACTION.sub(r"\1/\2", text)
    boxes = _BOXED.findall(text)
    numbers = _NUMBER.findall(boxes[-1] if boxes else text)
    if not numbers:
        return None
    above, _, below = numbers[-1].replace(",", "").replace("−", "-").partition("/")
    divisor = float(below or 1)
    return float(above) / divisor if divisor else None
