"""Refiners improve checklists: they merge, filter or select items.

- [`Deduplicator`] merges questions that ask the same.
- [`Tagger`] keeps questions with given qualities, such as general and specific.
- [`UnitTester`] keeps questions whose violation the judge detects.
- [`Selector`] keeps the most informative subset of at most `max_items` questions.
- [`CheckAdmission`] removes code checks that disagree with the judge.

The `report` of a refiner lists which items were kept or dropped, and why.
"""

from checklist_rewards.refiners.admission import CheckAdmission
from checklist_rewards.refiners.base import Note, Refiner, Report
from checklist_rewards.refiners.deduplicator import Deduplicator
from checklist_rewards.refiners.selector import Selector
from checklist_rewards.refiners.tagger import QUALITIES, Tagger
from checklist_rewards.refiners.unit_tester import UnitTester

__all__ = [
    "QUALITIES",
    "CheckAdmission",
    "Deduplicator",
    "Note",
    "Refiner",
    "Report",
    "Selector",
    "Tagger",
    "UnitTester",
]
