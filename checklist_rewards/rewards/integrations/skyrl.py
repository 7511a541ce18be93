"""A SkyRL environment that rewards the rollout by the row's checklist.

Register it before training, set `CHECKLIST_REWARDS_CONFIG` to the YAML file of settings, and use rows with
`env_class: checklist` and the label (see `labelled.py`) as `reward_spec.ground_truth`:

    from skyrl_gym.envs import register
    register(id="checklist", entry_point="checklist_rewards.rewards.integrations.skyrl:ChecklistEnv")

One answer ends the episode. For tools and several turns, override [`ChecklistEnv.reply`].

Run inside skyrl-gym 0.4.0 (`make test-frameworks`): `skyrl_gym.make` creates the registered environment with
(env_config, extras), where `extras["reward_spec"]["ground_truth"]` and `extras["max_turns"]` come from the row.
`BaseTextEnv.init(prompt)` returns the prompt and a dict, `step(action)` a `BaseTextEnvStepOutput`.

Unscored samples raise [`Unscored`], because the reward of a step is a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import configured
from checklist_rewards.rewards.integrations.labelled import Turn, policy_turn, score_details


class ChecklistEnv(BaseTextEnv):
    """An environment whose last step is rewarded by a checklist about all its turns; the steps before it get 0. Steps
    of environments in different threads are batched.

    Raises:
        SampleError: If the row has no `reward_spec.ground_truth`.
    """

    def __init__(self, env_config: Any, extras: Mapping[str, Any] | None = None):
        super().__init__()
        spec = (extras or {}).get("reward_spec")
        if not isinstance(spec, Mapping) or "ground_truth" not in spec:
            raise SampleError(
                f"the row requires a checklist in reward_spec.ground_truth, got reward_spec={spec!r:.60}."
            )
        self.label = spec["ground_truth"]
        self.max_turns = int((extras or {}).get("max_turns") or 1)
        self.prompt: Any = None
        self.turns_taken: list[Turn] = []
        """The messages of the episode: those of the policy and of the environment."""
        self.reward = configured()

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        """Store the prompt for the judge and return it unchanged."""
        self.prompt, self.turns, self.turns_taken = prompt, 0, []
        return prompt, {}

    def reply(self, action: str) -> list[Turn]:
        """What the environment answers; nothing ends the episode. Messages with the role `tool` are tool results."""
        return []

    def step(self, action: str) -> Any:
        """Answer the action. At the end of the episode, reward it: without a reply, or after `max_turns` turns."""
        self.turns += 1
        self.turns_taken.append(policy_turn(action))
        observations = self.reply(action) if self.turns < self.max_turns else []
        if observations:
            self.turns_taken += observations
            return BaseTextEnvStepOutput(observations=observations, reward=0.0, done=False, metadata={})
        completion = self.turns_taken if len(self.turns_taken) > 1 else action
        score = self.reward.scores([self.label], [completion], [self.prompt])[0]
        return BaseTextEnvStepOutput(
            observations=[], reward=self.reward.reward(score), done=True, metadata=score_details(score)
        )
