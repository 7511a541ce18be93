"""A single-turn SkyRL environment that rewards the answer by the row's checklist.

Register it before training, set `CHECKLIST_REWARDS_CONFIG` to the YAML file of settings, and use rows with
`env_class: checklist` and the label (see `labelled.py`) as `reward_spec.ground_truth`:

    from skyrl_gym.envs import register
    register(id="checklist", entry_point="checklist_rewards.rewards.integrations.skyrl:ChecklistEnv")

Run inside skyrl-gym 0.4.0 (`make test-frameworks`): `skyrl_gym.make` creates the registered environment with
(env_config, extras), where `extras["reward_spec"]["ground_truth"]` comes from the row. `BaseTextEnv.init(prompt)`
returns the prompt and a dict, `step(action)` a `BaseTextEnvStepOutput`.

Unscored samples raise [`Unscored`], because the reward of a step is a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import configured


class ChecklistEnv(BaseTextEnv):
    """An environment with one answer to one prompt. Steps of environments in different threads are batched.

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
        self.prompt: Any = None
        self.reward = configured()

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        """Store the prompt for the judge and return it unchanged."""
        self.prompt = prompt
        return prompt, {}

    def step(self, action: str) -> Any:
        """Reward the answer and end the episode."""
        score = self.reward.scores([self.label], [action], [self.prompt])[0]
        return BaseTextEnvStepOutput(
            observations=[], reward=self.reward.reward(score), done=True, metadata=self.reward.details(score)
        )
