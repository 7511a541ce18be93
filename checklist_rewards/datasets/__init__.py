"""Datasets with a checklist per prompt: built by a generator or imported from a file, saved and published.

    dataset = build_checklists(["Write a haiku about rain.", ...], model="pocket")
    trainer = GRPOTrainer(model=..., reward_funcs=ChecklistReward(), train_dataset=dataset)

The columns are those of [`checklist_features`]; all other columns of the source are kept.
"""

from checklist_rewards.datasets.build import build_checklists
from checklist_rewards.datasets.card import checklist_card
from checklist_rewards.datasets.columns import CHECKLIST_COLUMNS, checklist_columns, checklist_features
from checklist_rewards.datasets.importing import import_checklists
from checklist_rewards.datasets.saving import push_to_hub, save_dataset

__all__ = [
    "CHECKLIST_COLUMNS",
    "build_checklists",
    "checklist_card",
    "checklist_columns",
    "checklist_features",
    "import_checklists",
    "push_to_hub",
    "save_dataset",
]
