"""checklist-rewards: checklists of yes/no questions as rewards for RL of language models.

    from checklist_rewards import ChecklistScorer, build_checklists
    from checklist_rewards.rewards.trl import ChecklistReward

`build_checklists` writes a checklist for every prompt of a dataset, `ChecklistScorer` answers it about a text, and
`ChecklistReward` hands the answer to TRL's trainers.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from checklist_rewards.version import __version__

if TYPE_CHECKING:
    from checklist_rewards.checklists import Checklist, ChecklistItem, Option
    from checklist_rewards.datasets import build_checklists
    from checklist_rewards.datasets.table import BatchScore
    from checklist_rewards.pipelines import pipeline
    from checklist_rewards.scorer import ChecklistScorer, Sample
    from checklist_rewards.scores import ItemScore, Score

_MODULES = {
    **dict.fromkeys(("Checklist", "ChecklistItem", "Option"), "checklists"),
    **dict.fromkeys(("ChecklistScorer", "Sample"), "scorer"),
    **dict.fromkeys(("ItemScore", "Score"), "scores"),
    "build_checklists": "datasets",
    "pipeline": "pipelines",
    "BatchScore": "datasets.table",
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
    # A scorer takes half a second to import and the datasets library another, which not every use needs.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
