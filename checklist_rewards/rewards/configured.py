"""A reward configured by a YAML file, for `trl grpo` and other frameworks that pass no arguments to rewards.

The environment variable `CHECKLIST_REWARDS_CONFIG` is the path of the file: a [`RewardConfig`], as plain values.
Relative paths in it (judge, calibration, examples, prompt, those of the monitor's shadow judge, and its `attacks`) are
resolved from the file's folder first.

[`configured`] is for frameworks that create adapters themselves and pass them no settings.
"""

from __future__ import annotations

import functools
import os

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.files.documents import load
from checklist_rewards.judges.settings import JudgeConfig
from checklist_rewards.rewards.batch import ReadingConfig
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward
from checklist_rewards.rewards.placement import references_of
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.rewards.settings import RewardConfig

CONFIG_VARIABLE = "CHECKLIST_REWARDS_CONFIG"
_OF_TRL = {
    "shaping": "omit it, these frameworks receive unshaped scores",
    "deadline": "set the engine's timeout instead",
    "retries": "omit it, these frameworks repeat a call themselves or not at all",
    "on_failure": "omit it; a sample without a score raises Unscored",
    "log": "omit it, or log the metrics that the framework collects",
    "reference_column": "put `reference` into the label",
    "column": "omit it, these frameworks pass the checklist as a label",
    "categories": "omit it",
    "monitor": "omit it",
    "evolving": "omit it",
}
"""Settings that rewards of single samples do not have, and what to do instead."""


def reward_from_environment() -> ChecklistReward:
    """The reward of the file in `CHECKLIST_REWARDS_CONFIG`; see [`configured_reward`]."""
    return configured_reward(os.environ.get(CONFIG_VARIABLE))


@functools.cache
def configured_reward(path: str | None) -> ChecklistReward:
    """The reward that a YAML file describes. Its judge is checked but not loaded.

    Args:
        path (`str`, *optional*):
            File with a [`RewardConfig`].

    Raises:
        ChecklistRewardsError: If the file cannot be used; names the file and the key.
    """
    if not path:
        raise SampleError(
            f"a reward without arguments requires the environment variable {CONFIG_VARIABLE}, the path of a YAML file."
        )
    try:
        config = load(path, RewardConfig)
        reward = ChecklistReward(config)
        judges = config.model_fields_set & {*JudgeConfig.model_fields, "judge"}  # code checks alone need no judge
        if judges and not references_of(reward.scorer.judge):  # a reference is known at the first call
            reward.validate()
    except ChecklistRewardsError as error:
        where = "" if str(error).startswith(path) else f"{path}: "
        raise type(error)(f"{CONFIG_VARIABLE}: {where}{error}") from error
    return reward


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
    for name, advice in _OF_TRL.items():
        if getattr(reward.config, name) != RewardConfig.model_fields[name].default:
            raise SampleError(f"{CONFIG_VARIABLE}: {path}: {name} is supported by TRL trainers only; {advice}.")
    reading = {name: getattr(reward.config, name) for name in ReadingConfig.model_fields}
    return SamplewiseReward(reward.scorer, **reading)
