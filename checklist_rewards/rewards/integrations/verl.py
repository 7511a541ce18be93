"""A custom reward function for verl's per-sample and batch reward managers.

Set `custom_reward_function.name=compute_score` and `custom_reward_function.path` to a file with:

    from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
    compute_score = ChecklistComputeScore(model="org/judge").compute_score_async

The label (see `labelled.py`) is the row's `reward_model.ground_truth`. verl passes no prompt, so put the input into
the label: `{"checklist": [...], "input": "..."}`.

Based on volcengine/verl: `verl/experimental/reward_loop/reward_manager/dapo.py` (13c4d3a),
`DAPORewardManager.run_single`, awaits `compute_score(data_source=, solution_str=, ground_truth=, extra_info=, ...)` if
it is a coroutine function and otherwise runs it in a thread. It uses the key "score" of the returned dict as reward
and logs the other keys. `reward_loop.py` (14af4d3), `RewardLoopManager.compute_rm_score`, takes the names of those
keys from the first sample and looks them up in every other, so the keys are always the same here.
`verl/workers/reward_manager/batch.py` (abddec4), `BatchRewardManager.verify`, calls with the plural names.

verl has no reward None. Unscored samples raise [`Unscored`] unless `unscored` is set; some reward managers catch the
exception and use 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from checklist_rewards.rewards.integrations.labelled import SamplewiseReward
from checklist_rewards.scores import Score


class ChecklistComputeScore(SamplewiseReward):
    """Reward functions for verl, with the arguments of [`SamplewiseReward`]."""

    def compute_score(
        self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **kwargs: Any
    ) -> dict[str, float]:
        """Reward one sample. Returns `score` and metrics to log. Calls from many threads are batched."""
        return self._result(self.scores([ground_truth], [solution_str], [None])[0])

    async def compute_score_async(
        self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **kwargs: Any
    ) -> dict[str, float]:
        """[`compute_score`] as a coroutine."""
        return self._result((await self.scores_async([ground_truth], [solution_str], [None]))[0])

    def compute_score_batch(
        self,
        data_sources: Sequence[Any],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, float]]:
        """[`compute_score`] for the batch reward manager."""
        return [self._result(s) for s in self.scores(ground_truths, solution_strs, [None] * len(solution_strs))]

    def _result(self, score: Score) -> dict[str, float]:
        return {"score": self.reward(score), **self.details(score)}
