"""The scorer of a reward: given, made from its arguments, or that of a pipeline.

This module does not import pipelines, which write checklists: a pipeline is recognized by its attributes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from checklist_rewards.checklists import Option
from checklist_rewards.errors import SampleError
from checklist_rewards.scorer import ARGUMENTS, RENAMED, ChecklistScorer
from checklist_rewards.scores.scales import ordinal_scale
from checklist_rewards.validation import known


@runtime_checkable
class ScoringPipeline(Protocol):
    """What a reward uses of a [`pipelines.Pipeline`]."""

    @property
    def config(self) -> Any:
        """Its [`PipelineConfig`], with the scale of the scorer."""

    @property
    def scorer(self) -> ChecklistScorer | None:
        """Its scorer; None if the pipeline only writes checklists."""


def scorer_of(
    owner: type, given: Any, arguments: Mapping[str, Any]
) -> tuple[ChecklistScorer, tuple[Option, ...] | None]:
    """The scorer of a reward of the class `owner`, and its scale, or that of the pipeline."""
    own = inspect.signature(owner).parameters.values()
    names = [name for name in arguments if name != RENAMED]
    known(owner.__name__, names, [*(p.name for p in own if p.kind is not p.VAR_KEYWORD), *ARGUMENTS])
    if given is None:
        own_scorer = ChecklistScorer(**arguments)
        return own_scorer, own_scorer.scale
    steps = given.config.scorer.scale if isinstance(given, ScoringPipeline) else None
    scorer = given.scorer if isinstance(given, ScoringPipeline) else given
    if not isinstance(scorer, ChecklistScorer):
        raise SampleError(
            f"scorer must be a ChecklistScorer or a Pipeline with one, got {scorer!r:.60}; pass a model's name as "
            "model=..."
        )
    if arguments:
        raise SampleError(f"{', '.join(arguments)} cannot be combined with scorer=...; set it on the scorer.")
    return scorer, scorer.scale if steps is None else ordinal_scale(steps)
