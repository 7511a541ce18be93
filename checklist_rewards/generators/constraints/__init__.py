"""Checklists without a model: requirements that code can check, found in the prompt by rules.

    >>> [found.check for found in find_requirements("Use at most 50 words and no commas.")]
    [{'type': 'words', 'at_most': 50}, {'type': 'letters', 'letters': ',', 'exactly': 0}]

A rule reads a requirement only where its wording leaves no doubt, because a wrong check trains the wrong behavior.
Requirements that are found but that no check expresses ("about 100 words", "each paragraph in three sentences") are
returned with the reason and without a check, so that a writer or a person can take them over.

`lexicon.py` and `basic_words.txt` turn a clause into some sixty basic words: "Please don't write more than 50 words!"
is `not write over 50 word`. `things.py` has the table of things that are counted or left out. `rules.py` has a phrase
of basic words for each kind of requirement, with the checks for a clause that requires or forbids it. `filtering.py`
then decides from the basic words around the thing whether it is required, forbidden, or neither: a clause that is not
one of its forms requires nothing. Two requirements that contradict each other have no check, and each reason names the
other.

To see how a clause is read: `[clause.plain for clause in PromptText(prompt).clauses()]` (`reading.py`). To add a word,
add it to its basic word; to add a thing that is counted, a row to `things.py`; for anything else, a function to
`rules.py`. `tests/data/requirements_plain.txt` takes the example.
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
