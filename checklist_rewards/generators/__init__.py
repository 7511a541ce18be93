"""Generators write checklists, with a model or by rules.

One checklist per input: [`ConstraintsGenerator`] finds the requirements that code can check, by rules and without a
model. [`DirectGenerator`] asks a model for the questions of an input, [`ContrastiveGenerator`] also
shows it responses to compare. One checklist for a whole corpus: [`InductiveGenerator`] starts from observations
([`Feedback`]), [`DeductiveGenerator`] from quality dimensions with definitions ([`Dimensions`]), and
[`InteractiveGenerator`] from think-aloud protocols of people and models ([`ThinkAloud`]).

Replies are kept in the store (`replies/`), so a rerun resumes where the last run stopped. Replies are parsed strictly
(`shapes.py`); a reply that cannot be parsed gives a [`GenerationError`] with the reply in `raw`, never
an empty checklist.
"""

from checklist_rewards.errors import StageError
from checklist_rewards.generators.base import Generator, Request, Stage
from checklist_rewards.generators.constraints import ConstraintsGenerator, Requirement, find_requirements
from checklist_rewards.generators.contrastive import ContrastiveGenerator
from checklist_rewards.generators.deductive import DeductiveGenerator
from checklist_rewards.generators.direct import DirectGenerator
from checklist_rewards.generators.inductive import InductiveGenerator
from checklist_rewards.generators.interactive import InteractiveGenerator
from checklist_rewards.generators.shapes import (
    CategorizedQuestions,
    QuestionList,
    Questions,
    WeightedQuestions,
    parse_questions,
)
from checklist_rewards.generators.stages import Dimension, Dimensions, Feedback, ThinkAloud

__all__ = [
    "CategorizedQuestions",
    "ConstraintsGenerator",
    "ContrastiveGenerator",
    "DeductiveGenerator",
    "Dimension",
    "Dimensions",
    "DirectGenerator",
    "Feedback",
    "Generator",
    "InductiveGenerator",
    "InteractiveGenerator",
    "QuestionList",
    "Questions",
    "Request",
    "Requirement",
    "Stage",
    "StageError",
    "ThinkAloud",
    "WeightedQuestions",
    "find_requirements",
    "parse_questions",
]
