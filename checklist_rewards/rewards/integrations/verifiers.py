"""A verifiers (v1) reward with one checklist per row.

The task data needs a field `checklist` (a label, see `labelled.py`). A task of any taskset gets the reward by
configuration:

    --env.taskset.task.rewards.checklist.fn checklist_rewards.rewards.integrations.verifiers:checklist_reward

or in its own code:

    class MyTask(vf.Task[MyData, vf.State]):
        @vf.reward
        async def checklist(self, trace) -> float:
            return await ChecklistJudge().score(self.data, trace)

Settings are read from the YAML file in `CHECKLIST_REWARDS_CONFIG`. Instances are cheap and share one scorer.

Run inside verifiers 0.4.0 (`make test-frameworks`): `Task.score` calls decorated and configured rewards, and
`Judge.score(task, trace)` returns a float. The completion is the messages of the trace with tool calls and results,
and `task.prompt_text` the prompt. An exception becomes a `TaskError` and the reward stays None, so unscored samples
raise [`Unscored`].
"""

from __future__ import annotations

from typing import Any

from verifiers.v1.judge import Judge

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import configured
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, Turn, rollout


class ChecklistJudge(Judge):
    """Scores a trace by the checklist of its task. Concurrent calls are batched.

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
        scores = await self.reward.scores_async([label], [completion_of(trace)], [task.prompt_text or None])
        return self.reward.reward(scores[0])


def completion_of(trace: Any) -> str | list[Turn]:
    """The completion in a trace: the messages of its last branch from the first one that the model wrote, or the reply
    of the root agent where other agents wrote too."""
    nodes = getattr(trace, "nodes", None)
    if getattr(trace, "root_reply", None) is not None or not nodes:
        return trace.last_reply or ""
    branch = trace.branches[-1].nodes
    start = next((at for at, node in enumerate(branch) if node.sampled), len(branch))
    return rollout([node.message for node in branch], start)[1]


async def checklist_reward(task: Any, trace: Any) -> float:
    """[`ChecklistJudge.score`] for `TaskConfig.rewards`, which takes the path of a function."""
    return await ChecklistJudge().score(task, trace)
