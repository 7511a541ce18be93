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
`Judge.score(task, trace)` returns a float; the last message of the assistant is the completion and `task.prompt_text`
the prompt. An exception becomes a `TaskError` and the reward stays None, so unscored samples raise [`Unscored`].
"""

from __future__ import annotations

from typing import Any

from verifiers.v1.judge import Judge

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import configured
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
        scores = await self.reward.scores_async([label], [completion_of(trace)], [task.prompt_text or None])
        return self.reward.reward(scores[0])


def completion_of(trace: Any) -> str | list[dict[str, Any]]:
    """The completion in a trace: the reply of the root agent, or the last message of the assistant. `last_reply` alone
    does not show whether that message is an answer or the text before a tool call."""
    messages = getattr(trace, "assistant_messages", None)
    if getattr(trace, "root_reply", None) is not None or not messages:
        return trace.last_reply or ""
    last = messages[-1]
    calls = [{"function": {"name": c.name, "arguments": c.arguments}} for c in getattr(last, "tool_calls", None) or ()]
    thought = getattr(last, "reasoning_content", None)
    return [{"role": "assistant", "content": last.content, "tool_calls": calls, "reasoning_content": thought}]


async def checklist_reward(task: Any, trace: Any) -> float:
    """[`ChecklistJudge.score`] for `TaskConfig.rewards`, which takes the path of a function."""
    return await ChecklistJudge().score(task, trace)
