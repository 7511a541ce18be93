"""Checklists that evolve with the policy, or improve by labels.

[`EvolvingChecklistReward`] adds items to the checklists of a reward during training (`evolve.py`), in a buffer per
prompt (`buffer.py`). A [`GroupProposer`] or any other callable proposes the items (`proposer.py`).

`trl grpo --reward_funcs checklist_rewards.evolving.reward` reads its settings from the YAML file named by the
environment variable `CHECKLIST_REWARDS_CONFIG` (`configured.py`).

Before training, `improve` changes a checklist by labels (`improve.py`).
"""

from __future__ import annotations

from checklist_rewards.evolving.buffer import ActiveItem, ChecklistBuffer, PromptItems
from checklist_rewards.evolving.configured import evolving_from_environment
from checklist_rewards.evolving.evolve import EvolvingChecklistReward
from checklist_rewards.evolving.proposer import FromGenerator, Group, GroupProposer, Proposer

__all__ = [
    "ActiveItem",
    "ChecklistBuffer",
    "EvolvingChecklistReward",
    "FromGenerator",
    "Group",
    "GroupProposer",
    "PromptItems",
    "Proposer",
]


def __getattr__(name: str) -> EvolvingChecklistReward:
    # `trl grpo --reward_funcs` takes an attribute of a module and has no way to pass arguments to it.
    if name == "reward":
        return evolving_from_environment()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
