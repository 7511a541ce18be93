"""Checklists as an environment of SkyRL: one turn, rewarded by the row's checklist.

Register it before training, and give rows `env_class: checklist` and the label (see `samplewise`) as
`reward_spec.ground_truth`; the YAML of settings is named by `CHECKLIST_REWARDS_CONFIG`:

    from skyrl_gym.envs import register
    register(id="checklist", entry_point="checklist_rewards.rewards.integrations.skyrl:ChecklistEnv")

Read in NovaSky-AI/SkyRL: `skyrl-gym/skyrl_gym/envs/base_text_env.py` (4855491), `BaseTextEnv.init(prompt)` gives the
prompt and a dict, `step(action)` a `BaseTextEnvStepOutput`; `envs/llm_as_judge/env.py` (28d060d): environments are
made with (env_config, extras), and `extras["reward_spec"]["ground_truth"]` is the row's.

What the judge leaves unscored raises [`Unscored`]: a step's reward is a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.integrations.labelled import configured


class ChecklistEnv(BaseTextEnv):
    """One answer to one prompt. Steps of many environments in many threads share batches.

    Raises:
        SampleError: where the row has no `reward_spec.ground_truth`.
    """

    def __init__(self, env_config: Any, extras: Mapping[str, Any] | None = None):
        super().__init__()
        spec = (extras or {}).get("reward_spec")
        if not isinstance(spec, Mapping) or "ground_truth" not in spec:
            raise SampleError(f"a row needs reward_spec.ground_truth, its checklist; got reward_spec={spec!r:.60}.")
        self.label = spec["ground_truth"]
        self.prompt: Any = None
        self.reward = configured()

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        """Keep the prompt for the judge."""
        self.prompt = prompt
        return prompt, {}

    def step(self, action: str) -> Any:
        """Reward the answer and end the episode."""
        score = self.reward.scores([self.label], [action], [self.prompt])[0]
        return BaseTextEnvStepOutput(
            observations=[], reward=self.reward.reward(score), done=True, metadata=self.reward.details(score)
        )
