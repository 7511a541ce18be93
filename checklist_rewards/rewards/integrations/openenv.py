"""An OpenEnv rubric that rewards an episode by a checklist.

    from checklist_rewards.rewards.integrations.openenv import ChecklistRubric

    rubric = ChecklistRubric(["Does the response name the word?"], text="message", model="org/judge")
    rubric = Sequential(Gate(Valid()), WeightedSum([Wins(), rubric], [0.5, 0.5]))

An episode is a conversation: an action is a tool call of the assistant, or a message if it has the field `text`, and
an observation is the tool's result. The rubric scores the episode when an observation is `done`; before that, it has
the value `intermediate_reward`. Call `reset` when an episode begins, as `Environment._reset_rubric` does.

Run inside openenv-core 0.3.0 (`make test-frameworks`), in a server and a client. Its containers have no value for a
rubric that could not judge: `Gate` and `WeightedSum` fail on None with a TypeError, and `Sequential` returns it or the
next rubric's value. Its own `LLMJudge` scores a reply that cannot be parsed 0.0. So an unscored episode raises
[`Unscored`], which all containers pass on. The server answers the step with an error, and the client raises it. An
environment that catches [`Unscored`] may set the observation's reward to None, which OpenEnv sends as null.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from openenv.core.rubrics import TrajectoryRubric

from checklist_rewards.rewards.integrations.labelled import SamplewiseReward, Turn

_NOT_SHOWN = {"metadata", "done", "reward"}


class ChecklistRubric(TrajectoryRubric):
    """A rubric in [0, 1], to be used alone or in OpenEnv's containers. Episodes in different threads are batched.

    Args:
        checklist (*optional*): The label (see `labelled.py`). An environment may set `checklist` in its `reset`.
        text (`str`, *optional*): Field of the actions that is a text of the policy. Actions without it are calls.
        prompt (`str` or list of messages, *optional*): What the judge sees as the input. An environment may set it.
        judged (`str`, *optional*, defaults to `"transcript"`): `"transcript"`, the whole episode, or `"answer"`, the
            last text of the policy.
        intermediate_reward (`float`, *optional*, defaults to `0.0`): Value of the steps before the last.
        **settings: The keyword arguments of a [`SamplewiseReward`].
    """

    def __init__(
        self,
        checklist: Any = None,
        *,
        text: str | None = None,
        prompt: Any = None,
        judged: Any = "transcript",
        intermediate_reward: float = 0.0,
        **settings: Any,
    ):
        super().__init__(intermediate_reward)
        self.checklist, self.text, self.prompt = checklist, text, prompt
        self.reward = SamplewiseReward(judged=judged, **settings)

    def __call__(self, action: Any, observation: Any) -> float | Coroutine[Any, Any, float]:
        """The value of a step; in a running event loop (`step_async`) a coroutine, as of OpenEnv's containers."""
        self.last_score = None  # no value of an earlier step is left if this one fails
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return super().__call__(action, observation)
        self._trajectory.append((action, observation))
        return self._call_async(action, observation, self._awaited(observation))

    async def _awaited(self, observation: Any) -> float:
        if not observation.done:
            return self.intermediate_reward
        [score] = await self.reward.scores_async([self.checklist], [self.messages()], [self.prompt])
        return self.reward.reward(score)

    def score_trajectory(self, trajectory: Any) -> float:
        """The reward of an episode. Raises [`Unscored`] if the judge answered too little of the checklist."""
        return self.reward.reward(self.reward.scores([self.checklist], [self.messages(trajectory)], [self.prompt])[0])

    def compute_step_rewards(self) -> list[float]:
        """The value of each step: the last has the reward, and the others `intermediate_reward`."""
        steps = self._trajectory
        return [self.intermediate_reward] * (len(steps) - 1) + [self.score_trajectory(steps)] if steps else []

    def messages(self, trajectory: Any = None) -> list[Turn]:
        """The episode as chat messages."""
        turns: list[Turn] = []
        for action, observation in trajectory or self._trajectory:
            fields = action.model_dump(exclude=_NOT_SHOWN)
            if self.text in fields:
                turns.append({"role": "assistant", "content": str(fields[self.text])})
            else:
                name = fields.pop("tool_name", type(action).__name__)
                call = {"name": name, "arguments": fields.get("arguments", fields)}
                turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
            seen = observation.model_dump(exclude=_NOT_SHOWN, exclude_none=True).items()
            turns.append({"role": "tool", "content": "\n".join(f"{name}: {value}" for name, value in seen)})
        return turns
