"""The scorer of a reward: given, made from its arguments, or that of a pipeline.

This module does not import pipelines, which write checklists: a pipeline is recognized by its attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from checklist_rewards.checklists import Option
from checklist_rewards.errors import SampleError
from checklist_rewards.scorer import ChecklistScorer
from checklist_rewards.scores.scales import ordinal_scale


@runtime_checkable
class ScoringPipeline(Protocol):
    """What a reward uses of a [`pipelines.Pipeline`]."""

    @property
    def config(self) -> Any:
        """Its [`PipelineConfig`], with the scale of the scorer."""

    @property
    def scorer(self) -> ChecklistScorer | None:
        """Its scorer; None if the pipeline only writes checklists."""


def scorer_of(given: Any, arguments: Mapping[str, Any]) -> tuple[ChecklistScorer, tuple[Option, ...] | None]:
    """The scorer, and the scale of a pipeline."""
    if given is None:
        return ChecklistScorer(**arguments), None
    steps = given.config.scorer.scale if isinstance(given, ScoringPipeline) else None
    scorer = given.scorer if isinstance(given, ScoringPipeline) else given
    if not isinstance(scorer, ChecklistScorer):
        raise SampleError(
            f"scorer must be a ChecklistScorer or a Pipeline with one, got {scorer!r:.60}; pass a model's name as "
            "model=..."
        )
    if arguments:
        raise SampleError(f"{', '.join(arguments)} cannot be combined with scorer=...; set it on the scorer.")
    return scorer, None if steps is None else ordinal_scale(steps)
