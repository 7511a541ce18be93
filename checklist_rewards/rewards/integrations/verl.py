"""A custom reward function for verl's reward managers.

Set `reward.custom_reward_function.name=compute_score` and `reward.custom_reward_function.path` to a file with:

    from checklist_rewards.rewards.integrations.verl import ChecklistComputeScore
    compute_score = ChecklistComputeScore(model="org/judge").compute_score_async

The label (see `labelled.py`) is the row's `reward_model.ground_truth`. verl passes no prompt, so put the input into
the label: `{"checklist": [...], "input": "..."}`.

| reward manager | function | calls |
|---|---|---|
| `naive`, `dapo`, `gdpo` | `compute_score_async` or `compute_score` | batched in each reward worker |
| `remote` | `compute_score`; it refuses coroutines | one at a time in each Ray actor, not batched |
| `rate_limited` | `compute_score_async` or `compute_score` | at most `reward.max_concurrent` at once (1 by default) |
| `BatchRewardManager` of older trainers | `compute_score_batch` | one call per batch |

Each process that computes rewards builds its own scorer, so use a served judge, for example `backend="remote"`.

Run inside verl 0.9.1 (`make test-frameworks`): `load_reward_manager` loads the file, `run_single` of the managers
uses the key "score" of the returned dict as reward and logs the other keys, and `RewardLoopManager.compute_rm_score`
takes the names of those keys from the first sample, so the keys are always the same here.

A rollout of several turns arrives as one text without markers, with the results of its tools, and all of it is judged.
To judge its last answer, or its turns, score its messages in the agent loop ([`SamplewiseReward.scores_async`]) and
return `AgentLoopOutput(reward_score=...)`.

verl has no reward None. Unscored samples raise [`Unscored`] unless `unscored` is set, which stops the step.
`rate_limited` is the exception: it turns errors and timeouts into a reward of 0.0, so a judge failure punishes the
completion. Prefer `naive` and set `concurrency` on the scorer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, score_details
from checklist_rewards.scores import Score

logger = logging.getLogger(__name__)


class ChecklistComputeScore(SamplewiseReward):
    """Reward functions for verl, with the arguments of [`SamplewiseReward`]."""

    _warned_of_turns = False

    def compute_score(
        self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **kwargs: Any
    ) -> dict[str, float]:
        """Reward one sample. Returns `score` and metrics to log. Calls from many threads are batched."""
        self._check_turns([extra_info])
        return self._result(self.scores([ground_truth], [solution_str], [None])[0])

    async def compute_score_async(
        self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **kwargs: Any
    ) -> dict[str, float]:
        """[`compute_score`] as a coroutine. The `remote` manager does not accept it."""
        self._check_turns([extra_info])
        return self._result((await self.scores_async([ground_truth], [solution_str], [None]))[0])

    def compute_score_batch(
        self,
        data_sources: Sequence[Any],
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, float]]:
        """[`compute_score`] for `BatchRewardManager`."""
        self._check_turns(() if extra_infos is None else extra_infos)
        return [self._result(s) for s in self.scores(ground_truths, solution_strs, [None] * len(solution_strs))]

    def _check_turns(self, extra_infos: Sequence[Any]) -> None:
        turns = [info.get("num_turns") or 0 for info in extra_infos if isinstance(info, Mapping)]
        if not self._warned_of_turns and max(turns, default=0) > 2:  # the prompt and the answer
            self._warned_of_turns = True
            logger.warning(
                "verl passes the %d turns of a rollout as one text, with the results of its tools, and all of it is "
                "judged as the answer; to judge the last answer, score the messages in the agent loop.",
                max(turns),
            )

    def _result(self, score: Score) -> dict[str, float]:
        return {"score": self.reward(score), **score_details(score)}
