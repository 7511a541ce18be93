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
        ("shaping", reward.shaping.steps, (), "omit it, these frameworks receive unshaped scores"),
        ("target", reward.readers.part, "answer", "omit it, these frameworks pass a single text"),
        ("deadline", reward.deadline, None, "set the engine's timeout instead"),
        ("retries", reward.retries, 1, "omit it, these frameworks repeat a call themselves or not at all"),
        ("on_failure", reward.on_failure, "row", "omit it; a sample without a score raises Unscored"),
        ("log", reward.log.path, None, "omit it, or log the metrics that the framework collects"),
        ("reference", reward.reference, None, "put `reference` into the label"),
        ("column", reward.column, "checklist", "omit it, these frameworks pass the checklist as a label"),
        ("categories", reward.categories, (), "omit it"),
    ):
        if value != default:
            raise SampleError(f"{CONFIG_VARIABLE}: {path}: {name} is supported by TRL trainers only; {advice}.")
    readers = reward.readers
    return SamplewiseReward(
        reward.scorer,
        keep_thinking=readers.keep_thinking,
        thinking_opened=readers.thinking_opened,
        tokenizer=readers.tokenizer,
        thinking_tags=readers.thinking_tags,
    )
