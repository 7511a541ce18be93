"""Datasets with a checklist per prompt: built by a generator or imported from a file, saved and published.

    dataset = build_checklists(["Write a haiku about rain.", ...], model="pocket")
    trainer = GRPOTrainer(model=..., reward_funcs=ChecklistReward(), train_dataset=dataset)

The columns are those of [`checklist_features`]; all other columns of the source are kept.

The functions that return a dataset require the library `datasets` (`pip install 'checklist-rewards[datasets]'`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checklist_rewards.datasets.columns import CHECKLIST_COLUMNS, checklist_columns, checklist_features
from checklist_rewards.validation import import_extra

if TYPE_CHECKING:
    from checklist_rewards.datasets.build import build_checklists
    from checklist_rewards.datasets.importing import import_checklists
    from checklist_rewards.datasets.publishing import checklist_card, push_to_hub, save_dataset
    from checklist_rewards.datasets.scoring import score_dataset

_LATE = {
    "build_checklists": "checklist_rewards.datasets.build",
    "checklist_card": "checklist_rewards.datasets.publishing",
    "import_checklists": "checklist_rewards.datasets.importing",
    "push_to_hub": "checklist_rewards.datasets.publishing",
    "save_dataset": "checklist_rewards.datasets.publishing",
    "score_dataset": "checklist_rewards.datasets.scoring",
}

__all__ = [
    "CHECKLIST_COLUMNS",
    "build_checklists",
    "checklist_card",
    "checklist_columns",
    "checklist_features",
    "import_checklists",
    "push_to_hub",
    "save_dataset",
    "score_dataset",
]


def __getattr__(name: str) -> Any:
    # These modules take a second to import, most of them with the datasets library, which belongs to an extra.
    if name in _LATE:
        [module] = import_extra(_LATE[name], extra="datasets")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
