"""Refiners: checklists in, better checklists out.

[`Deduplicator`] merges questions that ask the same, [`Tagger`] keeps those that have named qualities, [`UnitTester`]
those that a text can be seen to break, and [`Selector`] the few that say most; [`CheckAdmission`] takes away the code
checks that disagree with the judge. Each of them says in its `report` what became of every item.
"""

from checklist_rewards.refiners.admission import CheckAdmission
from checklist_rewards.refiners.base import Note, Refiner, Report
from checklist_rewards.refiners.deduplicator import Deduplicator
from checklist_rewards.refiners.embedding import Embedder, SentenceEmbedder
from checklist_rewards.refiners.selector import Selector
from checklist_rewards.refiners.tagger import QUALITIES, Tagger
from checklist_rewards.refiners.unit_tester import UnitTester

__all__ = [
    "QUALITIES",
    "CheckAdmission",
    "Deduplicator",
    "Embedder",
    "Note",
    "Refiner",
    "Report",
    "Selector",
    "SentenceEmbedder",
    "Tagger",
    "UnitTester",
]
