"""Checklists that evolve with the policy, or improve by labels.

`ChecklistReward(evolving=...)` has an [`Evolution`] among its stages. It adds items to the checklists during training
(`evolve.py`), in a buffer per prompt (`buffer.py`). A [`GroupProposer`] or any other callable proposes the items
(`proposer.py`).

Before training, `improve` changes a checklist by labels (`improve.py`).
"""

from __future__ import annotations

from checklist_rewards.evolving.proposer import FromGenerator, Group, GroupProposer

__all__ = ["FromGenerator", "Group", "GroupProposer"]
