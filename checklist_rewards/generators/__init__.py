"""Generators write checklists: inputs in, checklists out.

[`DirectGenerator`] asks a model for the questions of one input. All of them sample through the store (`replies/`) and
read a reply strictly (`parsing.py`); what cannot be read is a [`GenerationError`] that carries the reply, never an
empty checklist.
"""

from checklist_rewards.generators.base import Generator, Request
from checklist_rewards.generators.direct import DirectGenerator
from checklist_rewards.generators.parsing import QuestionList, parse_questions

__all__ = [
    "DirectGenerator",
    "Generator",
    "QuestionList",
    "Request",
    "parse_questions",
]
