"""Checklists without a model: requirements that code can check, found in the prompt by rules.

    >>> [found.check for found in find_requirements("Use at most 50 words and no commas.")]
    [{'type': 'words', 'at_most': 50}, {'type': 'letters', 'letters': ',', 'exactly': 0}]

A rule reads a requirement only where its wording leaves no doubt, because a wrong check trains the wrong behavior.
Requirements that are found but that no check expresses ("about 100 words", "each paragraph in three sentences") are
returned with the reason and without a check, so that a writer or a person can take them over.

`counts.py` has the rules about numbers, `strings.py` those about given words, `forms.py` those about whole phrases.
Each rule runs only if one of its trigger words occurs in the prompt.
"""

from checklist_rewards.generators.constraints.generator import (
    ConstraintsGenerator,
    constraint_items,
    covering,
    find_requirements,
    with_constraints,
)
from checklist_rewards.generators.constraints.reading import Requirement

__all__ = [
    "ConstraintsGenerator",
    "Requirement",
    "constraint_items",
    "covering",
    "find_requirements",
    "with_constraints",
]
