"""A verifiers (v1) judge with one checklist per row.

Judges set in a verifiers config have no access to rows. Call this judge from a task's reward instead; it reads the
field `checklist` of the row (a label, see `labelled.py`):

    class MyTask(vf.Task[MyData, vf.State]):
        @vf.reward
        async def checklist(self, trace) -> float:
            return await ChecklistJudge().score(self.data, trace)

Settings are read from the YAML file in `CHECKLIST_REWARDS_CONFIG`. Instances are cheap and share one scorer.

Based on PrimeIntellect-ai/verifiers: `verifiers/v1/judge.py` (0296b9d), `Judge.score(task, trace)` returns a
float; `judge_response` uses `trace.last_reply`, `judge_question` `task.prompt_text`. A judge that raises does not
score the model (`judge_verdict`), so unscored samples raise [`Unscored`]. The `Rubric` of version 0
(`verifiers/rubrics/rubric.py`, 0034333) is not supported, because it turns every exception into 0.0.
"""

from __future__ import annotations

from typing import Any

from verifiers.v1.judge import Judge

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.integrations.configured import configured
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward


class ChecklistJudge(Judge):
    """Scores the last reply of a trace by the checklist of its task. Concurrent calls are batched.

    Args:
        config (*optional*):
            Config of the base class; not used.
        reward ([`SamplewiseReward`], *optional*):
            Reward to use instead of the one configured for the process.
    """

    def __init__(self, config: Any = None, reward: SamplewiseReward | None = None):
        super().__init__(config)
        self.reward = reward or configured()

    async def score(self, task: Any, trace: Any) -> float:
        """The reward in [0, 1].

        Raises:
            SampleError, ChecklistError: If the task has no valid checklist.
            Unscored: If the judge answered too few items.
        """
        label = getattr(task, "checklist", None)
        if label is None:
            raise SampleError(f"the task data requires a field 'checklist', got {type(task).__name__} without it.")
        scores = await self.reward.scores_async([label], [trace.last_reply], [task.prompt_text or None])
        return self.reward.reward(scores[0])
