"""Checklists as a judge of verifiers (v1), with a checklist per row.

Plugged judges are config and know nothing of rows, so this one is called from a task's reward, and reads the row's
field `checklist` (a label, see `samplewise`):

    class MyTask(vf.Task[MyData, vf.State]):
        @vf.reward
        async def checklist(self, trace) -> float:
            return await ChecklistJudge().score(self.data, trace)

Settings are in the YAML that `CHECKLIST_REWARDS_CONFIG` names; judges are cheap and share one scorer.

Read in PrimeIntellect-ai/verifiers: `verifiers/v1/judge.py` (0296b9d), `Judge.score(task, trace)` gives a float;
`judge_response` takes `trace.last_reply`, `judge_question` `task.prompt_text`. A judge that raises is not scored
against the model (`judge_verdict`), so what is left unscored raises [`Unscored`]. The `Rubric` of version 0
(`verifiers/rubrics/rubric.py`, 0034333) turns every exception into 0.0 and is therefore not served.
"""

from __future__ import annotations

from typing import Any

from verifiers.v1.judge import Judge

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, configured


class ChecklistJudge(Judge):
    """Scores the last reply of a trace by the task's own checklist. Rollouts that end together share batches.

    Args:
        config: of the host's `Judge`; not used.
        reward ([`SamplewiseReward`], *optional*): instead of the one configured for the process.
    """

    def __init__(self, config: Any = None, reward: SamplewiseReward | None = None):
        super().__init__(config)
        self.reward = reward or configured()

    async def score(self, task: Any, trace: Any) -> float:
        """Reward in [0, 1]. Raises SampleError, ChecklistError for a row without a usable checklist; Unscored."""
        label = getattr(task, "checklist", None)
        if label is None:
            raise SampleError(f"the task's data has no field 'checklist'; got {type(task).__name__}.")
        scores = await self.reward.scores_async([label], [trace.last_reply], [task.prompt_text or None])
        return self.reward.reward(scores[0])
