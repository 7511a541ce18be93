"""The reward on a part of each checklist: all items are read and logged, a seeded share is not rewarded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pocket.grpo_run import WatchedReward

from checklist_rewards.scores import Score

SHARE = 0.25


class HeldOutReward(WatchedReward):
    """A checklist reward that leaves out a share of the items.

    Args:
        seed (`int`): Seed of the draw.
        redraw (`bool`): Draw anew at every step (Rubric Dropout, arXiv:2608.11669) instead of once.
    """

    def __init__(self, *args: Any, seed: int, redraw: bool, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.seed, self.redraw, self._step = seed, redraw, 0

    def __call__(self, *args: Any, trainer_state: Any, **kwargs: Any) -> list[float | None]:
        self._step = trainer_state.global_step
        return super().__call__(*args, trainer_state=trainer_state, **kwargs)

    def held_out(self, ids: Sequence[str], step: int) -> set[str]:
        """The items of a checklist that are not rewarded: a quarter of them, rounded, and at least one is rewarded."""
        count = min(round(SHARE * len(ids)), len(ids) - 1)
        return set(sorted(ids, key=lambda item: self._order(item, step))[:count])

    def _order(self, item: str, step: int) -> str:
        return hashlib.sha256(f"{self.seed}/{step if self.redraw else ''}/{item}".encode()).hexdigest()

    def _rewards(
        self, prompts: Sequence[Any], samples: Sequence[Any], scores: Sequence[Score | None], pairs: bool, by_group: bool
    ) -> list[float | None]:
        return super()._rewards(prompts, samples, [self._rewarded(score) for score in scores], pairs, by_group)

    def _rewarded(self, score: Score | None) -> Score | None:
        if score is None or score.aggregation is None:
            return score
        left_out = self.held_out([item.id for item in score.items], self._step)
        return Score.of([item for item in score.items if item.id not in left_out], score.aggregation)
