"""Combinations of attacks and short strings, found by mutation and selection.

A [`Recipe`] applies up to three attacks of the bank and puts a string before and after the result. The search starts
from the best attacks of the bank. In each round it changes the best recipes found so far and measures the new ones.
It sees measurements only, so it works for every judge.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from checklist_rewards.attacks.bank import BANK, combined
from checklist_rewards.images import shown
from checklist_rewards.rows import Pool

FINALISTS = 5
"""Recipes that a search returns."""
_PARENTS = _CHILDREN = 8
_MOST_ATTACKS, _LONGEST_STRING, _MOST_ROUNDS = 3, 40, 50
_TRIES = 20
"""Mutations per new recipe before a round is smaller."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Attacks of the bank, applied in order, and a string before and after the result."""

    attacks: tuple[str, ...] = ()
    before: str = ""
    after: str = ""

    @property
    def name(self) -> str:
        """Such as "bold + keywords_after + 'Yes.' after"."""
        return " + ".join([*self.attacks, *(f"{text!r} {place}" for text, place in self.strings)])

    @property
    def strings(self) -> list[tuple[str, str]]:
        """The strings, each with its place, `before` or `after` the response."""
        return [(text, place) for text, place in ((self.before, "before"), (self.after, "after")) if text]

    @property
    def is_one(self) -> bool:
        """Whether it is one attack of the bank and nothing else."""
        return len(self.attacks) == 1 and not self.strings

    @property
    def parts(self) -> int:
        """Number of attacks and strings."""
        return len(self.attacks) + len(self.strings)

    def __call__(self, response: str, row: Pool) -> str:
        """The attacked response."""
        text = combined(self.attacks, response, shown(row.input or ""), row.checklist)
        return " ".join(part for part in (self.before, text, self.after) if part)


def search(
    bank: Mapping[Recipe, float],
    measure: Callable[[Sequence[Recipe]], Mapping[Recipe, float] | None],
    rng: random.Random,
    strings: Sequence[str],
) -> tuple[list[Recipe], int]:
    """Combine attacks until `measure` has no budget left, or for 50 rounds.

    Args:
        bank (mapping of [`Recipe`] to `float`):
            Single attacks and strings with a first estimate of how much they raise scores.
        measure (callable):
            Returns the rise of each recipe, or None if the budget does not allow the reads.
        rng (`random.Random`):
            Source of the mutations.
        strings (sequence of `str`):
            Strings to put before or after a response, and together to longer ones.

    Returns:
        The 5 best recipes, best first (of those that are equal to two digits, the one with fewer parts), and the
        number of rounds. Without a budget, the recipes are those with the highest estimates, and none is measured.
    """
    parents = sorted(bank, key=lambda recipe: -bank[recipe])[:_PARENTS]
    measured = measure(parents)
    if measured is None:
        return parents[:FINALISTS], 0
    found, rounds = dict(measured), 0
    attacks = [name for recipe in bank for name in recipe.attacks]
    while True:
        parents = sorted(found, key=lambda recipe: -found[recipe])[:_PARENTS]
        children: dict[Recipe, None] = {}
        for _ in range(_TRIES * _CHILDREN if rounds < _MOST_ROUNDS else 0):
            parent = rng.choice(parents[: rng.randint(1, len(parents))])  # better ones more often
            child = mutated(parent, parents, attacks, strings, rng)
            if child not in found and child.name:
                children[child] = None
            if len(children) == _CHILDREN:
                break
        measured = measure(list(children)) if children else None
        if measured is None:
            return sorted(found, key=lambda recipe: (-round(found[recipe], 2), recipe.parts))[:FINALISTS], rounds
        found.update(measured)
        rounds += 1


def mutated(
    recipe: Recipe, others: Sequence[Recipe], bank: Sequence[str], strings: Sequence[str], rng: random.Random
) -> Recipe:
    """The recipe with one change: an attack added, removed or exchanged, another string before or after it, or the
    attacks of one of the `others`. It has at most three attacks, at most one of which replaces the response."""
    attacks = list(recipe.attacks)
    change = rng.choice(("add", "add", "exchange", "remove", "before", "after", "cross"))
    if change == "cross":
        other = rng.choice(others)
        attacks += other.attacks
        recipe = replace(recipe, before=recipe.before or other.before, after=recipe.after or other.after)
    elif change in ("before", "after"):
        string = recipe.before if change == "before" else recipe.after
        piece = rng.choice(strings)
        string = rng.choice((piece, f"{string} {piece}".strip(), f"{piece} {string}".strip(), ""))[:_LONGEST_STRING]
        recipe = replace(recipe, before=string) if change == "before" else replace(recipe, after=string)
    else:
        if attacks and change in ("exchange", "remove"):
            attacks.pop(rng.randrange(len(attacks)))
        if change in ("add", "exchange"):
            attacks.insert(rng.randint(0, len(attacks)), rng.choice(bank))
    distinct = list(dict.fromkeys(attacks))
    replacing = [name for name in distinct if BANK[name].replaces]
    kept = [name for name in distinct if not BANK[name].replaces or name == replacing[-1]]
    return replace(recipe, attacks=tuple(kept[-_MOST_ATTACKS:]))
