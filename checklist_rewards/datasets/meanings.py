"""Keys and words of rubrics that change a score: what may not be dropped, which numbers stand for words, and which
sections hold faults.

>>> way_to_keep("priority", "P0")
'Map it with --item-key weight=priority and --weights P0=NUMBER, or --item-key category=priority'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from checklist_rewards.checklists import NO, YES
from checklist_rewards.datasets.texts import GRADES, number_in
from checklist_rewards.files.cells import decoded

LOSES_A_SCORE = re.compile(
    r"weight|points|score|importance|priorit|severity|mandatory|pass_criteria|pass_if|applies_if|only_if|depends|annotations|penal|deduct|polarit"
    r"|negative|positive|invert|revers|direction|expected|desired|threshold|gate|veto|(?:sub|child).*(?:items|criteri)"
    r"|\A(?:levels?|scale|anchors|grades?|choices|scoring|ratings?|signs?|required|options|check|marks?|bonus|children"
    r"|sub_?(?:tasks|questions))\Z",
    re.IGNORECASE,
)
"""Keys that are only dropped if the user names them."""
WORDS: tuple[dict[str, float], ...] = (
    {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": -0.9},
    {"critical": 4.0, "major": 3.0, "minor": 2.0, "additional": 1.0},
)
"""Weights in words: those of Rubrics as Rewards (arXiv:2507.17746) and of ProfBench (arXiv:2510.18941)."""
ANSWERS = {"yes": YES, "y": YES, "true": YES, "no": NO, "n": NO, "false": NO}
"""The answers that the values of a row stand for, in lower case."""
SCALES = frozenset(("likert", "ordinal", "numeric", "rating", "scale", "graded", "1 5", "1 10", "0 10", "0 5"))
"""Kinds of items that are not answered with yes or no."""

_COUNTERS = re.compile(
    r"#|(?:\w+_)?(?:id|idx|index|number|num|no)|n|order|rank|position|step|turn|line|page|version|year", re.IGNORECASE
)
"""Keys whose numbers are no part of a score."""
_RANKS = frozenset(
    "high medium low must should could required mandatory optional p0 p1 p2 p3 p4 blocker minor major critical "
    "essential important additional trivial".split()
) | {"nice to have", "must have", "should have", "could have"}
_PREFIX = re.compile(r"\s*(?:\[([^\[\]]{1,30})\]|\(([^()]{1,30})\)|([^:.!?]{1,30}):|[❌✗✘👎⛔🚫])[:\s]\s*")
_SIGN = re.compile(r"invert|revers|negat|bad|penal|deduct|pitfall|fault|sign", re.IGNORECASE)
_GATE = re.compile(r"required|mandatory|must|hard|gate|veto|critical|essential", re.IGNORECASE)
_NOT_RANKED = re.compile(r"difficult|confiden|complex|quality|lang", re.IGNORECASE)
_BAD = re.compile(
    r"(?:negatives?|penalt(?:y|ies)|deductions?|demerits?|bad|violations?|pitfalls?|cons|must not|should not|do not"
    r"|donts?|never|avoid|forbidden|prohibited|undesir(?:ed|able)|unwanted|red flags?|weaknesses|disqualifiers?)"
    r"(?: (?:criteri(?:a|on)|items?|points?|rules?|rubrics?|aspects?|behaviou?rs?|have|include|contain|do|be))?"
)
_PERHAPS_BAD = re.compile(r"(?:common )?(?:errors?|mistakes?|faults?|failures?|flaws?)")


def plain(name: Any) -> str:
    """A name in lower case, with spaces: "Must_Not-have" is "must not have"."""
    return re.sub(r"[\s_-]+", " ", str(name).strip().lower()).replace("'", "")


def is_number(value: Any) -> bool:
    """Whether a value is a number, and not true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def holds_faults(section: str | None) -> Literal["yes", "perhaps", "no"]:
    """Whether the criteria of a section or of a kind are faults, by its name."""
    name = plain(section)
    return "yes" if _BAD.fullmatch(name) else "perhaps" if _PERHAPS_BAD.fullmatch(name) else "no"


def fault_named(text: str) -> tuple[str | None, str]:
    """The name of a fault that a text begins with, and the text without it.

    >>> fault_named("[Negative] Names Timbuktu."), fault_named("Note: names Bamako.")
    (('Negative', 'Names Timbuktu.'), (None, 'Note: names Bamako.'))
    """
    if found := _PREFIX.match(text):
        name = next((part for part in found.groups() if part), "")
        if not name.strip() or holds_faults(name) == "yes":
            return name.strip() or "negative", text[found.end() :]
    return None, text


def way_to_keep(key: str, value: Any, *, inside: bool = True, numbers: bool = True) -> str | None:
    """How a field that may be part of the score can be kept, as the beginning of a sentence; None if it may be
    dropped.

    Args:
        key (`str`): Its key.
        value: Its value.
        inside (`bool`): Whether it is a field of an item. Of other fields, only the key is looked at.
        numbers (`bool`): Whether a number under any key may be a weight.
    """
    value = decoded(value)
    number = is_number(value) or (isinstance(value, str) and number_in(value) is not None)
    as_weight = f"Map it to a field of the items (such as --item-key weight={key})"
    if inside and isinstance(value, Mapping):
        inner = next((name for name in value if LOSES_A_SCORE.search(str(name))), None)
        if inner is not None:
            return f"Map it to a field of the items (such as --item-key weight={key}.{inner})"
    if inside and (isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in ANSWERS)):
        if _SIGN.search(key):
            return "Write the sign into the weights"
        gate = f"Map it with --item-key required={key} if it makes a gate"
        return gate if _GATE.search(key) else f"{gate}, with --item-key expected={key} if it earns the points"
    if inside and numbers and number and not _COUNTERS.fullmatch(key):
        return as_weight
    words = value if isinstance(value, list) else [value]
    if inside and isinstance(value, list) and any(isinstance(word, Mapping) for word in words):
        return "Write its entries as criteria of their own"
    if inside and isinstance(value, str) and plain(key) in GRADES:
        return f"Give the levels their numbers with --weights {key}=NUMBER"
    if inside and not _NOT_RANKED.search(key):
        for word in words:
            if isinstance(word, str) and (plain(word) in _RANKS or _BAD.fullmatch(plain(word))):
                return f"Map it with --item-key weight={key} and --weights {word}=NUMBER, or --item-key category={key}"
    if not LOSES_A_SCORE.search(key):
        return None
    if number or (isinstance(value, str) and len(value.split()) < 3):
        return as_weight if number else f"{as_weight[:-1]} and --weights {value}=NUMBER)"
    return "Write what it means into the criteria or their weights"
