"""Generators write checklists: inputs in, checklists out.

Per input: [`DirectGenerator`] asks a model for the questions of one input, [`ContrastiveGenerator`] shows it responses
to compare. For a whole corpus: [`InductiveGenerator`] works from observations ([`Feedback`]), [`DeductiveGenerator`]
from qualities with definitions ([`Dimensions`]), [`InteractiveGenerator`] from what people and models thought aloud
([`ThinkAloud`]).

All of them ask through the store (`replies/`), so a rerun is a resume, and read a reply strictly (`parsing.py`,
`shapes.py`); what cannot be read is a [`GenerationError`] that carries the reply, never an empty checklist.
"""

from checklist_rewards.errors import StageError
from checklist_rewards.generators.base import CorpusGenerator, Generator, Request, Stage
from checklist_rewards.generators.contrastive import ContrastiveGenerator
from checklist_rewards.generators.deductive import DeductiveGenerator
from checklist_rewards.generators.direct import DirectGenerator
from checklist_rewards.generators.inductive import InductiveGenerator
from checklist_rewards.generators.interactive import InteractiveGenerator
from checklist_rewards.generators.parsing import QuestionList, parse_questions
from checklist_rewards.generators.shapes import CategorizedQuestions, Questions, WeightedQuestions
from checklist_rewards.generators.sources import Dimension, Dimensions, Feedback, ThinkAloud

__all__ = [
    "CategorizedQuestions",
    "ContrastiveGenerator",
    "CorpusGenerator",
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
    "Stage",
    "StageError",
    "ThinkAloud",
    "WeightedQuestions",
    "parse_questions",
]
