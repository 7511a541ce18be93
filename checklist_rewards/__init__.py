"""checklist-rewards: checklists of yes/no questions as rewards for RL of language models.

    from checklist_rewards import ChecklistScorer, build_checklists
    from checklist_rewards.rewards.trl import ChecklistReward

`build_checklists` writes a checklist for every prompt of a dataset, `ChecklistScorer` answers it about a text, and
`ChecklistReward` hands the answer to TRL's trainers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from checklist_rewards.checklists import Checklist, ChecklistItem, Option
from checklist_rewards.scorer import ChecklistScorer, Sample
from checklist_rewards.scores import ItemScore, Score
from checklist_rewards.version import __version__

if TYPE_CHECKING:
    from checklist_rewards.datasets import build_checklists
    from checklist_rewards.datasets.table import BatchScore
    from checklist_rewards.pipelines import pipeline

_LATE = {
    "build_checklists": "checklist_rewards.datasets",
    "pipeline": "checklist_rewards.pipelines",
    "BatchScore": "checklist_rewards.datasets.table",
}

__all__ = [
    "BatchScore",
    "Checklist",
    "ChecklistItem",
    "ChecklistScorer",
    "ItemScore",
    "Option",
    "Sample",
    "Score",
    "__version__",
    "build_checklists",
    "pipeline",
]


def __getattr__(name: str) -> Any:
    # The datasets library takes a second to import, and most uses of a scorer never need it.
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
