"""Registers the generators, refiners and scorers of the package."""

from __future__ import annotations

from checklist_rewards.generators import (
    ConstraintsGenerator,
    ContrastiveGenerator,
    DeductiveGenerator,
    Dimensions,
    DirectGenerator,
    Feedback,
    InductiveGenerator,
    InteractiveGenerator,
    ThinkAloud,
)
from checklist_rewards.pipelines.registry import GENERATORS, REFINERS, SCORERS
from checklist_rewards.refiners import CheckAdmission, Deduplicator, Selector, Tagger, UnitTester
from checklist_rewards.scorer import ChecklistScorer

__all__ = ["GENERATORS", "REFINERS", "SCORERS"]

for _name, _generator, _source in (
    ("direct", DirectGenerator, None),
    ("contrastive", ContrastiveGenerator, None),
    ("constraints", ConstraintsGenerator, None),
    ("inductive", InductiveGenerator, Feedback),
    ("deductive", DeductiveGenerator, Dimensions),
    ("interactive", InteractiveGenerator, ThinkAloud),
):
    GENERATORS.register(_name, source=_source, built_in=True)(_generator)
for _name, _refiner in (
    ("deduplicator", Deduplicator),
    ("tagger", Tagger),
    ("unit_tester", UnitTester),
    ("selector", Selector),
    ("check_admission", CheckAdmission),
):
    REFINERS.register(_name, built_in=True)(_refiner)
SCORERS.register("checklist", built_in=True)(ChecklistScorer)
