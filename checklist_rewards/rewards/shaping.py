"""Reward shaping: the formulas, as pure functions. `steps.py` has them as named steps for settings and config files.

Each function implements one formula. Combine them to shape a reward:

    >>> from checklist_rewards.checklists import Checklist
    >>> from checklist_rewards.scores import Verdict, item_credits, score_checklist
    >>> checklist = Checklist.parse([{"question": "Polite?", "required": True}, "Short?", "Funny?"])
    >>> verdicts = [Verdict({"yes": p, "no": 1 - p}) for p in (0.9, 0.8, 0.1)]
    >>> credits = item_credits(checklist, score_checklist(checklist, verdicts))
    >>> value = gate(earned(checklist, credits), checklist, credits)  # 0.6 x 0.9
    >>> round(less(value, length_penalty(7000)), 3)
    0.375

The credit of an item is v for a weight >= 0 and 1 - v for a penalty, where v in [0, 1] is its value (see `scores/`).
`clipped(less(earned, penalties))` is the score without required items: `expected_score` for soft answers,
`weighted_score` for hard answers.

None means unknown: every function returns None for None, and unanswered items are excluded from sums and products. A
judge failure can therefore neither open nor close a gate, nor change the mean of a group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Literal

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.scores import PASS_CREDIT
from checklist_rewards.validation import one_of

Gate = Literal["multiply", "floor"]
Unit = Literal["words", "characters", "tokens"]
Spread = Literal["none", "std"]
CategoryWeights = Mapping[str, float]
"""Factor on the weights of items by category; 1 for categories not listed and for items without a category."""


def earned(
    checklist: Checklist, credits: Sequence[float | None], categories: CategoryWeights | None = None
) -> float | None:
    """Reward of the positive items: sum m w c / sum m w over the answered items with w > 0, in [0, 1].

    Args:
        checklist ([`Checklist`]):
            Checklist that was scored.
        credits (sequence of `float` or `None`):
            Credit c of every item; see [`item_credits`].
        categories (mapping of `str` to `float`, *optional*):
            Factor m by category, >= 0.

    Returns:
        `float` or `None`: None if no item with a positive weight was answered. For a checklist with penalties only, 1
        if any item was answered, because penalties are subtracted from 1.
    """
    known = _known(checklist, credits, categories)
    if checklist.only_penalties:
        return 1.0 if any(weight < 0 for _, weight, _ in known) else None
    total = math.fsum(weight for _, weight, _ in known if weight > 0)
    gained = math.fsum(weight * credit for _, weight, credit in known if weight > 0)
    return min(1.0, gained / total) if total else None


def penalties(
    checklist: Checklist, credits: Sequence[float | None], categories: CategoryWeights | None = None
) -> float | None:
    """Cost of the items with negative weights: sum m |w| (1 - c) / scale over the answered items with w < 0.

    The scale is the denominator of [`earned`], sum m w over the answered positive items, so that penalties can be
    subtracted from it. For a checklist with penalties only it is sum m |w|.

    Returns:
        `float` or `None`: At least 0, and above 1 if the penalties outweigh the positive items; None if the scale is
        0.
    """
    known = _known(checklist, credits, categories)
    scale = math.fsum(abs(w) if checklist.only_penalties else max(w, 0.0) for _, w, _ in known)
    lost = math.fsum(-weight * (1 - credit) for _, weight, credit in known if weight < 0)
    return lost / scale if scale else None


def gate(
    value: float | None,
    checklist: Checklist,
    credits: Sequence[float | None],
    how: Gate = "multiply",
    floor: float = 0.0,
) -> float | None:
    """Reduce a value by the required items of a checklist.

    Args:
        value (`float` or `None`):
            Reward so far.
        checklist ([`Checklist`]):
            Checklist that was scored.
        credits (sequence of `float` or `None`):
            Credit c of every item; see [`item_credits`].
        how (`str`, *optional*, defaults to `"multiply"`):
            `"multiply"`: value x p, with p the product of the required items' c; for a value below 0 value x (2 - p),
            so that a failed item lowers it too. `"floor"`: min(value, floor) if a required item fails (c < 0.5), else
            value.
        floor (`float`, *optional*, defaults to `0.0`):
            Upper limit of the value if a required item fails and `how="floor"`.

    Returns:
        `float` or `None`: The reduced value.
    """
    one_of("how", how, ("multiply", "floor"))
    required = [c for item, c in _zipped(checklist, credits) if item.required and c is not None]
    if value is None:
        return None
    if how == "multiply":
        product = math.prod(required)
        return value * (product if value >= 0 else 2 - product)
    return min(value, floor) if any(credit < PASS_CREDIT for credit in required) else value


def format_gate(
    value: float | None, text: str, form: str | Callable[[str], bool], otherwise: float = 0.0
) -> float | None:
    """Return `value` if the text has the required format, else min(value, otherwise).

    Args:
        value (`float` or `None`):
            Reward so far.
        text (`str`):
            The completion.
        form (`str` or `Callable[[str], bool]`):
            Regular expression that must match the whole text (a dot also matches line breaks), or a predicate.
        otherwise (`float`, *optional*, defaults to `0.0`):
            Upper limit of the value of a text with another format.
    """
    matches = re.fullmatch(form, text, re.DOTALL) is not None if isinstance(form, str) else form(text)
    return value if value is None or matches else min(value, otherwise)


def length(text: str, unit: Unit = "words", tokenize: Callable[[str], Sequence[object]] | None = None) -> int:
    """Length of a text in words, characters (code points), or tokens. The check `words` counts the same words: each
    Han or kana character is one.

    Args:
        text (`str`):
            Text to measure.
        unit (`str`, *optional*, defaults to `"words"`):
            `"words"`, `"characters"` or `"tokens"`.
        tokenize (`Callable[[str], Sequence]`, *optional*):
            `tokenize` or `encode` of a tokenizer; required for tokens.

    Raises:
        SampleError: For `unit="tokens"` without `tokenize`, and for words of a script (Thai, Lao, Khmer, Burmese,
            Tibetan) that only a dictionary can count; see [`length_bounds`].
    """
    fewest, most = length_bounds(text, unit, tokenize)
    if fewest != most:
        raise SampleError(
            f"the text has between {fewest} and {most} words, which only a dictionary can count; use "
            "unit='characters' or 'tokens'."
        )
    return fewest


def length_bounds(
    text: str, unit: Unit = "words", tokenize: Callable[[str], Sequence[object]] | None = None
) -> tuple[int, int]:
    """The least and the greatest length that a text can have. They differ only for words of a script that cannot be
    counted. The arguments are those of [`length`]."""
    one_of("unit", unit, ("words", "characters", "tokens"))
    if unit == "characters":
        return (len(text),) * 2
    if unit == "words":
        from checklist_rewards.checks.text import word_bounds  # a quarter of the time to import the package

        return word_bounds(text)
    if tokenize is None:
        raise SampleError("unit='tokens' requires tokenize, such as the `tokenize` method of a tokenizer.")
    return (len(tokenize(text)),) * 2


def length_penalty(
    length: float, *, free: float = 6000, cap: float = 8000, at_cap: float = 0.5, exponent: float = 1.6
) -> float:
    """Penalty for long texts: the curve of Autorubric's `LengthPenalty`, with its defaults.

    The penalty is 0 up to `free`, at_cap x ((length - free) / (cap - free)) ^ exponent up to `cap`, and `at_cap`
    above.

    Args:
        length (`float`):
            Length of the text, in any unit; see [`length`].
        free (`float`, *optional*, defaults to `6000`):
            Length without penalty, >= 0.
        cap (`float`, *optional*, defaults to `8000`):
            Length of the maximum penalty, above `free`.
        at_cap (`float`, *optional*, defaults to `0.5`):
            Maximum penalty, >= 0.
        exponent (`float`, *optional*, defaults to `1.6`):
            Shape of the curve, > 0. Above 1, the penalty starts slowly.

    Raises:
        SampleError: For arguments outside these ranges.
    """
    if not (0 <= free < cap < math.inf and 0 <= at_cap < math.inf and 0 < exponent < math.inf):
        raise SampleError(
            f"got free={free}, cap={cap}, at_cap={at_cap}, exponent={exponent}; "
            "allowed: 0 <= free < cap, at_cap >= 0, exponent > 0."
        )
    over = min(1.0, max(0.0, (length - free) / (cap - free)))
    return at_cap * over**exponent


def less(value: float | None, *costs: float | None) -> float | None:
    """value - sum of costs; None if any of them is None. Not clipped: see [`clipped`]."""
    if value is None:
        return None
    numbers = [cost for cost in costs if cost is not None]
    return value - math.fsum(numbers) if len(numbers) == len(costs) else None


def clipped(value: float | None, low: float = 0.0, high: float = 1.0) -> float | None:
    """min(high, max(low, value))."""
    if not low <= high:
        raise SampleError(f"low={low} is greater than high={high}; allowed: low <= high.")
    return None if value is None else min(high, max(low, value))


def centred(values: Sequence[float | None], groups: Sequence[Hashable], spread: Spread = "none") -> list[float | None]:
    """Values relative to the mean of their group, like the advantages of GRPO.

    Args:
        values (sequence of `float` or `None`):
            Rewards. None is excluded from the mean and stays None.
        groups (sequence of hashables, as long as `values`):
            Group of each value, for example its prompt. Groups are not inferred from positions, because trainers order
            completions differently.
        spread (`str`, *optional*, defaults to `"none"`):
            `"std"` divides by the population standard deviation of the group's known values, if it is more than
            rounding (1e-9 of the largest value).

    Returns:
        `list[float | None]`: Centred values, which sum to 0 in every group.
    """
    one_of("spread", spread, ("none", "std"))
    if len(values) != len(groups):
        raise SampleError(f"got {len(groups)} groups for {len(values)} values; pass one group per value.")
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        members.setdefault(group, []).extend([] if value is None else [value])
    means = {group: fmean(numbers) for group, numbers in members.items() if numbers}
    scales = {group: _deviation(members[group]) if spread == "std" else 1.0 for group in means}
    return [
        None if value is None else (value - means[group]) / scales[group]
        for value, group in zip(values, groups, strict=True)
    ]


def _deviation(numbers: Sequence[float]) -> float:
    """The standard deviation; 1 if the numbers differ by rounding only, which must not become differences of 1."""
    deviation = pstdev(numbers)
    return deviation if deviation > 1e-9 * max(map(abs, numbers)) else 1.0


def _known(
    checklist: Checklist, credits: Sequence[float | None], categories: CategoryWeights | None
) -> list[tuple[ChecklistItem, float, float]]:
    """Answered items with their weight, multiplied by the factor of their category, and their credit."""
    factors = categories or {}
    for name, factor in factors.items():
        if not 0 <= factor < math.inf:
            raise SampleError(f"the weight of category {name!r} is {factor}; allowed: a finite number >= 0.")
    return [
        (item, item.weight * (1.0 if item.category is None else factors.get(item.category, 1.0)), credit)
        for item, credit in _zipped(checklist, credits)
        if credit is not None
    ]


def _zipped(checklist: Checklist, credits: Sequence[float | None]) -> list[tuple[ChecklistItem, float | None]]:
    if len(credits) != len(checklist):
        raise SampleError(f"got {len(credits)} credits for {len(checklist)} items; pass one number or None per item.")
    return list(zip(checklist.items, credits, strict=True))
