"""A reward configured by a YAML file, for `trl grpo` and other frameworks that pass no arguments to rewards.

The environment variable `CHECKLIST_REWARDS_CONFIG` is the path of the file: a mapping of keyword arguments of
[`ChecklistReward`] and [`ChecklistScorer`], as plain values. Relative paths in it (judge, calibration,
examples, prompt, those of the monitor's shadow judge, and its `attacks`) are resolved from the file's folder first.

[`configured`] is for frameworks that create adapters themselves and pass them no settings.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.judges.settings import JudgeConfig, ScorerConfig, placed
from checklist_rewards.rewards.integrations.labelled import SamplewiseReward
from checklist_rewards.rewards.placement import references_of
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.validation import unknown

CONFIG_VARIABLE = "CHECKLIST_REWARDS_CONFIG"


def reward_from_environment() -> ChecklistReward:
    """The reward of the file in `CHECKLIST_REWARDS_CONFIG`; see [`configured_reward`]."""
    return configured_reward(os.environ.get(CONFIG_VARIABLE))


@functools.cache
def configured_reward(path: str | None) -> ChecklistReward:
    """The reward that a YAML file describes. Its judge is checked but not loaded.

    Args:
        path (`str`, *optional*):
            File with a mapping of keyword arguments of [`ChecklistReward`] and [`ChecklistScorer`].

    Raises:
        ChecklistRewardsError: If the file cannot be used; names the file and the key.
    """
    config, file = read_config(path)
    return reward_of(config, file)


def read_config(path: str | None) -> tuple[dict[str, Any], Path]:
    """The mapping in a YAML file, and its path. Raises [`SampleError`] if it cannot be read."""
    if not path:
        raise SampleError(
            f"a reward without arguments requires the environment variable {CONFIG_VARIABLE}, the path of a YAML file."
        )
    try:
        config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, AttributeError, yaml.YAMLError) as error:
        raise SampleError(f"{CONFIG_VARIABLE}: {path} cannot be read as YAML ({error}).") from error
    config = {} if config is None else config
    if not isinstance(config, Mapping):
        raise SampleError(f"{CONFIG_VARIABLE}: {path} must be a mapping of settings, got {type(config).__name__}.")
    return dict(config), Path(path)


def reward_of(config: Mapping[str, Any], path: Path) -> ChecklistReward:
    """The reward that the mapping in the file `path` describes. A judge that it names is checked but not loaded."""
    allowed = config_keys()
    for key in config:
        if key not in allowed:
            raise SampleError(f"{CONFIG_VARIABLE}: {path}: {unknown('key', key, allowed)}")
    try:
        reward = ChecklistReward(**_placed(config, path.parent))
        judges = config.keys() & {*JudgeConfig.model_fields, "judge"}  # code checks alone need no judge
        if judges and not references_of(reward.scorer.judge):  # a reference is known at the first call
            reward.check()
    except ChecklistRewardsError as error:
        raise type(error)(f"{CONFIG_VARIABLE}: {path}: {error}") from error
    return reward


def _placed(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of a file in `folder`, with the paths of the monitor."""
    config = placed(config, folder)
    monitor = config.get("monitor")
    if isinstance(monitor, Mapping):
        monitor = config["monitor"] = dict(monitor)
        if isinstance(monitor.get("shadow"), Mapping):
            monitor["shadow"] = placed(monitor["shadow"], folder)
        if isinstance(monitor.get("attacks"), str):
            monitor["attacks"] = folder / monitor["attacks"]
    return config


def config_keys() -> list[str]:
    """Keys allowed in the YAML file: the arguments of [`ChecklistReward`] and [`ChecklistScorer`]."""
    own = [p.name for p in inspect.signature(ChecklistReward).parameters.values() if p.kind is not p.VAR_KEYWORD]
    return [name for name in dict.fromkeys([*own, *ScorerConfig.model_fields]) if name != "scorer"]


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
        ("deadline", reward.deadline, None, "set the engine's timeout instead"),
        ("retries", reward.retries, 1, "omit it, these frameworks repeat a call themselves or not at all"),
        ("on_failure", reward.on_failure, "row", "omit it; a sample without a score raises Unscored"),
        ("log", reward.log.path, None, "omit it, or log the metrics that the framework collects"),
        ("reference", reward.reference, None, "put `reference` into the label"),
        ("column", reward.column, "checklist", "omit it, these frameworks pass the checklist as a label"),
        ("categories", reward.categories, (), "omit it"),
        ("monitor", reward.monitor, None, "omit it"),
        ("evolving", reward.evolving, None, "omit it"),
    ):
        if value != default:
            raise SampleError(f"{CONFIG_VARIABLE}: {path}: {name} is supported by TRL trainers only; {advice}.")
    readers = reward.readers
    return SamplewiseReward(
        reward.scorer,
        target=readers.part,
        keep_thinking=readers.keep_thinking,
        thinking_opened=readers.thinking_opened,
        tokenizer=readers.tokenizer,
        thinking_tags=readers.thinking_tags,
        images=readers.images,
    )
