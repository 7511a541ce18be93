"""The bounds that words around a number give."""

from __future__ import annotations

from typing import NamedTuple

from checklist_rewards.generators.constraints.reading import Clause


class Amount(NamedTuple):
    """A lower and an upper bound, with the basic word of its comparison: "atleast", "atmost", "over", "under",
    "exactly" or "only", "range", "roughly", or "" for a number alone. Its basic words reach from `start` to `end`."""

    low: int | None
    high: int | None
    how: str = ""
    start: int = 0
    end: int = 0

    @property
    def bounds(self) -> dict[str, int]:
        """The arguments of a counting check."""
        if self.low is not None and self.low == self.high:
            return {"exactly": self.low}
        return {name: n for name, n in (("at_least", self.low), ("at_most", self.high)) if n is not None}

    @property
    def denied(self) -> dict[str, int] | None:
        """The arguments under a negation ("not more than 50"), None where a negation leaves open what is required."""
        if self.how == "over" and self.low is not None:
            return {"at_most": self.low - 1}
        return {"at_least": self.high + 1} if self.how == "under" and self.high is not None else None

    def joined(self, other: Amount) -> Amount:
        """The range of two bounds; roughly if they do not fit."""
        lows = [n for n in (self.low, other.low) if n is not None]
        highs = [n for n in (self.high, other.high) if n is not None]
        fits = len(lows) == len(highs) == 1 and lows[0] <= highs[0]
        if not fits:
            return Amount(None, None, "roughly", self.start, other.end)
        return Amount(lows[0], highs[0], "range", self.start, other.end)


_BOUNDS = ("atleast", "atmost", "over", "under")
_COMPARISONS = frozenset((*_BOUNDS, "exactly", "only", "between", "roughly"))
_BEHIND = {"or_more": "atleast", "or_fewer": "atmost", "atleast": "atleast", "atmost": "atmost"}
"""Comparisons that may follow the number or what is counted."""
_THINGS = frozenset("short mark word piece letter section".split())


def compared(how: str, value: int, start: int, end: int) -> Amount:
    """The bounds of a number with its comparison."""
    low = {"atmost": None, "under": None, "over": value + 1}.get(how, value)
    return Amount(low, {"atleast": None, "over": None, "under": value - 1}.get(how, value), how, start, end)


def amount_at(clause: Clause, at: int) -> Amount:
    """The amount whose first number stands at a place: "at least 50", "between 3 and 5", "three or more"."""
    words, tokens, first, end = clause.words, clause.tokens, int(clause.tokens[at].rstrip("x")), at + 1
    before = at - 1 - (tokens[at - 1] in ("the", "a"))
    how, start = (tokens[before], before) if tokens[before] in _COMPARISONS else ("", at)
    if how and tokens[before - 1] in _COMPARISONS:
        how, start = ("roughly" if tokens[before - 1] == "roughly" else how), before - 1
    if words[before] in ("about", "around"):
        how, start = "roughly", before
    if words[end] in ("-", "to", "and", "or") and tokens[end + 1].isdigit():
        last, to = int(tokens[end + 1]), words[end]
        clear = last > first and (to != "or" or last == first + 1) and (to != "and" or how == "between")
        clear = clear and how in ("", "between", "exactly", "only")
        return Amount(first, last, "range" if clear else "roughly", start, end + 2)
    if not how and _limited(tokens, start):
        how = "atmost"
    if tokens[end] in _BEHIND and how in ("", "exactly", "only"):
        how, end = _BEHIND[tokens[end]], end + 1
    found = compared("roughly" if how == "between" else how, first, start, end)
    joint = end + (tokens[end] == ",")
    joint += tokens[joint] == "and"
    if tokens[joint] in _BOUNDS and tokens[joint + 1][:1].isdigit():
        return found.joined(compared(tokens[joint], int(tokens[joint + 1].rstrip("x")), joint, joint + 2))
    return found


def _limited(tokens: list[str], start: int) -> bool:
    """Whether a verb of limiting stands before a place: "keep your answer to"."""
    before = start - 1
    while tokens[before] in ("in", "the", "a", "short", "response", "it", "number_of"):
        before -= 1
    return tokens[before] == "keep" and tokens[start - 1] == "in"


def followed(clause: Clause, found: Amount, end: int) -> tuple[Amount, int]:
    """An amount with the comparisons behind what it counts, which ends at `end`: "words or more"."""
    tokens = clause.tokens
    if tokens[end] in _BEHIND and not tokens[end + 1 + (tokens[end + 1] in ("the", "a"))].isdigit():
        if found.how in ("", "exactly", "only") and found.low is not None:
            found = compared(_BEHIND[tokens[end]], found.low, found.start, found.end)
        end += 1
    joint = end + (tokens[end] == ",")
    joint += tokens[joint] == "and"
    pair = tokens[joint : joint + 2]
    how, value = pair if pair[1].isdigit() else pair[::-1]
    if value.isdigit() and (how in ("atleast", "atmost") or (how in ("over", "under") and how == pair[0])):
        if tokens[joint + 2 + (tokens[joint + 2] == "-")] not in _THINGS:
            return found.joined(compared(how, int(value), joint, joint + 2)), joint + 2
    return found, end
