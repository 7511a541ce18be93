"""An OpenRLHF agent that rewards a rollout of several turns by the row's checklist.

Set `--train.agent_func_path` to a file with:

    from openrlhf.utils.agent import MultiTurnAgentExecutor
    from checklist_rewards.rewards.integrations.openrlhf_agent import ChecklistAgent

    class Agent(ChecklistAgent):
        async def reply(self, action, label):
            return "..."  # rendered as the policy's chat template would; "" ends the episode

    class AgentExecutor(MultiTurnAgentExecutor):
        def __init__(self):
            super().__init__(Agent)

Settings are read from the YAML file in `CHECKLIST_REWARDS_CONFIG`, and the label (see `labelled.py`) is the row's.

Run inside OpenRLHF 0.11.2 (`make test-frameworks`): `MultiTurnAgentExecutor.execute` (`openrlhf/utils/agent.py`) makes
an agent per rollout, calls `reset` with the prompt and `step` with each text of the policy, sums the `rewards` and
catches no exception. So an unscored rollout raises [`Unscored`] from the generation and stops the training step.
"""

from __future__ import annotations

from typing import Any

from openrlhf.utils.agent import AgentInstanceBase

from checklist_rewards.rewards.configured import configured
from checklist_rewards.rewards.integrations.labelled import Turn, environment_turns, policy_turn, score_details


class ChecklistAgent(AgentInstanceBase):
    """One rollout. Its last step is rewarded by a checklist about all its turns; the steps before it get 0."""

    max_turns = 8
    """Turns of the policy after which the episode ends."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.reward = configured()
        self.prompt: Any = None
        self.turns_taken: list[Turn] = []

    async def reset(self, states: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Store the prompt for the judge and return the states unchanged."""
        self.prompt, self.turns_taken = states["observation"], []
        return states

    async def reply(self, action: str, label: Any) -> str:
        """What the environment answers, as the text that follows the policy's turn. "" ends the episode.

        The judge sees its turns; a text without markers of turns is a tool result."""
        return ""

    async def step(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Answer the action. At the end of the episode, reward it: without a reply, or after `max_turns` turns."""
        import torch  # imported here, since the package is installed without torch on other machines

        action, label = state_dict["action_text"], state_dict["label"]
        self.turns_taken.append(policy_turn(action))
        taken = sum(turn["role"] == "assistant" for turn in self.turns_taken)
        feedback = await self.reply(action, label) if taken < self.max_turns else ""
        value, details = 0.0, {}
        if feedback:
            self.turns_taken += environment_turns(feedback)
        else:
            shown = state_dict["observation_text"]  # its end shows whether the last turn begins inside a thought
            [score] = await self.reward.scores_async([label], [self.turns_taken], [self.prompt], rendered=[shown])
            value, details = self.reward.reward(score), score_details(score)
        return {
            "rewards": torch.tensor(value),
            "scores": torch.tensor(value),
            "environment_feedback": feedback,
            "done": not feedback,
            "extra_logs": {name: torch.tensor([number]) for name, number in details.items()},
        }
