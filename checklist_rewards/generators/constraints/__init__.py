"""Checklists without a model: requirements that code can check, found in the prompt by rules.

    >>> [found.check for found in find_requirements("Use at most 50 words and no commas.")]
    [{'type': 'words', 'at_most': 50}, {'type': 'letters', 'letters': ',', 'exactly': 0}]

A rule reads a requirement only where its wording leaves no doubt, because a wrong check trains the wrong behavior.
Requirements that are found but that no check expresses ("about 100 words", "each paragraph in three sentences") are
returned with the reason and without a check, so that a writer or a person can take them over.

`lexicon.py` has the words that the rules know, each with a symbol, so a clause is a short string of symbols.
`things.py` has the table of things that are counted or left out. `rules.py` reads these, casing and language;
`strings.py` reads given words and fixed shapes such as JSON, and has the table of all rules. A rule finds a thing and
the checks for a clause that requires or forbids it. `filtering.py` then decides from the symbols around the thing
whether it is required, forbidden, or neither: a clause that its grammar does not describe requires nothing. Two
requirements that contradict each other have no check, and each reason names the other.
"""

from checklist_rewards.generators.constraints.generator import (
    ConstraintsGenerator,
    constraint_items,
    covering,
    find_requirements,
    rule_faults,
    with_constraints,
)
from checklist_rewards.generators.constraints.reading import Requirement

__all__ = [
    "ConstraintsGenerator",
    "Requirement",
    "constraint_items",
    "covering",
    "find_requirements",
    "rule_faults",
    "with_constraints",
]
