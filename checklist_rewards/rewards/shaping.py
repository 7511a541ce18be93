"""Shaping: small pure functions between a [`Score`] and the number that a trainer gets.

Each function is one formula, takes numbers and gives numbers, so a reward is shaped by calling those that are wanted:

    >>> from checklist_rewards.checklists import Checklist
    >>> from checklist_rewards.scores import Verdict, score_checklist
    >>> checklist = Checklist.parse([{"question": "Polite?", "required": True}, "Short?", "Funny?"])
    >>> verdicts = [Verdict({"yes": p, "no": 1 - p}) for p in (0.9, 0.8, 0.1)]
    >>> credits = item_credits(checklist, score_checklist(checklist, verdicts))
    >>> value = gate(earned(checklist, credits), checklist, credits)  # 0.6 x 0.9
    >>> round(less(value, length_penalty(7000)), 3)
    0.375

The credit of an item is v for a weight >= 0 and 1 - v for a penalty, v in [0, 1] being its value (see `scores.py`).
`clipped(less(earned, penalties))` is the score without its gates: `expected_score` of soft answers, `weighted_score`
of hard ones.

None is "not known" everywhere: it stays None through every function, and an unanswered item has no part in any sum or
product. A judge's failure can therefore neither open a gate nor close one, nor move the mean of a group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Literal

from checklist_rewards.checklists import Checklist, ChecklistItem
from checklist_rewards.errors import SampleError
from checklist_rewards.scores import PASS_CREDIT, Score, credit_of, rescore

Answers = Literal["soft", "hard"]
Gate = Literal["multiply", "floor"]
Unit = Literal["words", "characters", "tokens"]
Spread = Literal["none", "std"]
CategoryWeights = Mapping[str, float]
"""Factor of the weights of a category's items; 1 for categories that are not named and for items without one."""


def item_credits(checklist: Checklist, score: Score, answers: Answers = "soft") -> list[float | None]:
    """Credit of every item, in [0, 1].

    Args:
        checklist ([`Checklist`]): what `score` was made with.
        score ([`Score`]).
        answers (`str`, *optional*, defaults to `"soft"`): soft: v = sum over labels of P(label) x value, where the
            judge gave probabilities. hard: v of the answer.

    Returns:
        list of `float` or None, in the checklist's order; None for an item that is unanswered or, under
        `abstention="skip"`, abstained on.

    Raises:
        SampleError: for a score of another checklist.
    """
    _one_of("answers", answers, ("soft", "hard"))
    if [item.id for item in checklist.items] != [line.id for line in score.items]:
        raise SampleError(
            f"the score has items {[line.id for line in score.items]!r:.80}, expected those of its checklist, "
            f"{[item.id for item in checklist.items]!r:.80}."
        )
    if any(line.value is not None and line.soft is None for line in score.items):
        score = rescore(checklist, score)  # a file from before soft values were recorded
    values = [line.value if answers == "hard" else line.soft for line in score.items]
    return [
        None if value is None else credit_of(item.weight, value)
        for item, value in zip(checklist.items, values, strict=True)
    ]


def earned(
    checklist: Checklist, credits: Sequence[float | None], categories: CategoryWeights | None = None
) -> float | None:
    """What the positive items earned: sum m w c / sum m w over the answered items with w > 0, in [0, 1].

    Args:
        checklist ([`Checklist`]).
        credits (sequence of `float` or None): c of every item; see [`item_credits`].
        categories (mapping, *optional*): m by category, >= 0.

    Returns:
        `float` or None: None where no positive item with a weight was answered. A checklist of penalties only has 1 to
        lose, so it gives 1 where any item was answered.
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
    """What the items with negative weights cost: sum m |w| (1 - c) / scale over the answered items with w < 0.

    The scale is that of [`earned`], sum m w over the answered positive items, so one can be taken from the other; for
    a checklist of penalties only it is sum m |w|.

    Returns:
        `float` or None: >= 0, and above 1 where penalties weigh more than what can be earned; None without a scale.
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
    """Let the required items decide how much of a value is left.

    Args:
        value (`float` or None): the reward so far.
        checklist ([`Checklist`]).
        credits (sequence of `float` or None): c of every item; see [`item_credits`].
        how (`str`, *optional*, defaults to `"multiply"`): multiply: value x product of the required items' c. floor:
            min(value, floor) if a required item fails (c < 0.5), else value.
        floor (`float`, *optional*, defaults to `0.0`): what is left by a failure, where it is not more than value.
    """
    _one_of("how", how, ("multiply", "floor"))
    required = [c for item, c in _zipped(checklist, credits) if item.required and c is not None]
    if value is None:
        return None
    if how == "multiply":
        return value * math.prod(required)
    return min(value, floor) if any(credit < PASS_CREDIT for credit in required) else value


def format_gate(
    value: float | None, text: str, form: str | Callable[[str], bool], otherwise: float = 0.0
) -> float | None:
    """`value` where the text has the form, else min(value, otherwise).

    Args:
        value (`float` or None).
        text (`str`): the completion.
        form (`str` or callable): a regular expression that the whole text must match (a dot matches line breaks too),
            or a function that tells.
        otherwise (`float`, *optional*, defaults to `0.0`).
    """
    fits = re.fullmatch(form, text, re.DOTALL) is not None if isinstance(form, str) else form(text)
    return value if value is None or fits else min(value, otherwise)


def length(text: str, unit: Unit = "words", tokenize: Callable[[str], Sequence[object]] | None = None) -> int:
    """How long a text is: words between white space, characters, or tokens as `tokenize` cuts them.

    Raises [`SampleError`] for tokens without `tokenize`: a tokenizer's `tokenize` or `encode`.
    """
    _one_of("unit", unit, ("words", "characters", "tokens"))
    if unit == "characters":
        return len(text)
    if unit == "words":
        return len(text.split())
    if tokenize is None:
        raise SampleError("unit='tokens' needs tokenize, a function from a text to its tokens; got None.")
    return len(tokenize(text))


def length_penalty(
    length: float, *, free: float = 6000, cap: float = 8000, at_cap: float = 0.5, exponent: float = 1.6
) -> float:
    """What a long text costs: Autorubric's curve (`LengthPenalty`), with its defaults.

    0 up to `free`; at_cap x ((length - free) / (cap - free)) ^ exponent up to `cap`; at_cap from there on.

    Args:
        length (`float`): of the text, in any unit; see [`length`].
        free (`float`, *optional*, defaults to `6000`): what may be used for nothing, >= 0.
        cap (`float`, *optional*, defaults to `8000`): where the cost stops to grow, above `free`.
        at_cap (`float`, *optional*, defaults to `0.5`): the highest cost, >= 0.
        exponent (`float`, *optional*, defaults to `1.6`): above 1 the first words over the budget cost least.

    Raises:
        SampleError: for numbers that make no curve.
    """
    if not (0 <= free < cap < math.inf and 0 <= at_cap < math.inf and 0 < exponent < math.inf):
        raise SampleError(
            f"got free={free}, cap={cap}, at_cap={at_cap}, exponent={exponent}; "
            "allowed: 0 <= free < cap, at_cap >= 0, exponent > 0."
        )
    over = min(1.0, max(0.0, (length - free) / (cap - free)))
    return at_cap * over**exponent


def less(value: float | None, *costs: float | None) -> float | None:
    """value - sum of costs; None if any of them is. Not clipped: see [`clipped`]."""
    if value is None:
        return None
    known = [cost for cost in costs if cost is not None]
    return value - math.fsum(known) if len(known) == len(costs) else None


def clipped(value: float | None, low: float = 0.0, high: float = 1.0) -> float | None:
    """min(high, max(low, value))."""
    if not low <= high:
        raise SampleError(f"got low={low} and high={high}; allowed: low <= high.")
    return None if value is None else min(high, max(low, value))


def centred(values: Sequence[float | None], groups: Sequence[Hashable], spread: Spread = "none") -> list[float | None]:
    """Values relative to their group: r - mean(r of the group), as GRPO's advantages.

    Args:
        values (sequence of `float` or None): r; None has no part in the mean and stays None.
        groups (sequence, as long as `values`): which group each belongs to, for example its prompt. Trainers do not
            agree on an order, so a group is never told by position.
        spread (`str`, *optional*, defaults to `"none"`): std: divided by the standard deviation of the group (of the
            known values, over n) where that is not 0.

    Returns:
        list of `float` or None, summing to 0 in every group.
    """
    _one_of("spread", spread, ("none", "std"))
    if len(values) != len(groups):
        raise SampleError(f"got {len(groups)} groups for {len(values)} values; each value needs one.")
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        members.setdefault(group, []).extend([] if value is None else [value])
    means = {group: fmean(known) for group, known in members.items() if known}
    scales = {group: (pstdev(members[group]) or 1.0) if spread == "std" else 1.0 for group in means}
    return [
        None if value is None else (value - means[group]) / scales[group]
        for value, group in zip(values, groups, strict=True)
    ]


def _known(
    checklist: Checklist, credits: Sequence[float | None], categories: CategoryWeights | None
) -> list[tuple[ChecklistItem, float, float]]:
    """Answered items with their weight, changed by their category's factor, and their credit."""
    factors = categories or {}
    for name, factor in factors.items():
        if not 0 <= factor < math.inf:
            raise SampleError(f"the weight of category {name!r} is {factor}; allowed: a finite number from 0 up.")
    return [
        (item, item.weight * (1.0 if item.category is None else factors.get(item.category, 1.0)), credit)
        for item, credit in _zipped(checklist, credits)
        if credit is not None
    ]


def _zipped(checklist: Checklist, credits: Sequence[float | None]) -> list[tuple[ChecklistItem, float | None]]:
    if len(credits) != len(checklist):
        raise SampleError(f"got {len(credits)} credits for {len(checklist)} items; each item needs one, or None.")
    return list(zip(checklist.items, credits, strict=True))


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise SampleError(f"{name}={value!r} is not known; allowed: {', '.join(map(repr, allowed))}.")
