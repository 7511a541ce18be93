"""The reward of a YAML file, for frameworks that create adapters themselves and pass them no settings."""

from __future__ import annotations

import functools
import os

from checklist_rewards.errors import SampleError
from checklist_rewards.rewards.configured import CONFIG_VARIABLE, configured_reward
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward


def configured() -> SamplewiseReward:
    """The reward of the YAML file that the environment names. There is one per process.

    Its settings are read from the YAML file in the environment variable `CHECKLIST_REWARDS_CONFIG`, as for
    `rewards.trl.reward`.

    Raises:
        ChecklistRewardsError: For an invalid setting. The message names the file and the key.
    """
    return _configured(os.environ.get(CONFIG_VARIABLE))


@functools.cache
def _configured(path: str | None) -> SamplewiseReward:
    reward = configured_reward(path)
    for name, value, default, advice in (
        ("metric", reward.metric, None, "set primary_metric instead"),
        ("shaping", reward.shaping.steps, (), "omit it, these frameworks receive unshaped scores"),
        ("target", reward.target, "last", "omit it, these frameworks pass a single text"),
    ):
        if value != default:
            raise SampleError(f"{CONFIG_VARIABLE}: {path}: {name} is supported by TRL trainers only; {advice}.")
    return SamplewiseReward(reward.scorer, keep_thinking=reward.keep_thinking, thinking_opened=reward.thinking_opened)
