"""A monitored reward configured by a YAML file, for `trl grpo`.

The file is that of `rewards.configured`, named by `CHECKLIST_REWARDS_CONFIG`, with the key `monitor`: a mapping of the
fields of [`MonitorSettings`], `log`, `attacks` (a file of `attack`), and `shadow` with the arguments of the second
judge. Relative paths of its files start from the file's folder. With the key `evolving` (`evolving.configured`), the
monitor watches an evolving reward.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checklist_rewards.errors import ChecklistRewardsError, SampleError
from checklist_rewards.evolving.configured import perhaps_evolving
from checklist_rewards.evolving.evolve import EvolvingChecklistReward
from checklist_rewards.judges.settings import ScorerConfig, placed
from checklist_rewards.monitor.monitor import RewardMonitor
from checklist_rewards.monitor.settings import MonitorSettings
from checklist_rewards.rewards.configured import CONFIG_VARIABLE, read_config
from checklist_rewards.rewards.reward import ChecklistReward
from checklist_rewards.validation import known, unknown

MONITOR = "monitor"


def monitor_from_environment() -> RewardMonitor:
    """The monitored reward of the file in `CHECKLIST_REWARDS_CONFIG`."""
    return configured_monitor(os.environ.get(CONFIG_VARIABLE))


@functools.cache
def configured_monitor(path: str | None) -> RewardMonitor:
    """The monitored reward that a YAML file describes. Its judges are checked but not loaded.

    Args:
        path (`str`, *optional*):
            File with the arguments of the reward, and `monitor` with those of the monitor.

    Raises:
        ChecklistRewardsError: If the file cannot be used; names the file and the key.
    """
    config, file = read_config(path)
    settings = config.pop(MONITOR, None)
    reward = perhaps_evolving(config, file)
    try:
        return monitor_of(reward, {} if settings is None else settings, file.parent)
    except ChecklistRewardsError as error:
        raise type(error)(f"{CONFIG_VARIABLE}: {file}, {MONITOR}: {error}") from error


def monitor_of(
    reward: ChecklistReward | EvolvingChecklistReward, settings: Any, folder: Path = Path()
) -> RewardMonitor:
    """A monitor from plain values.

    Args:
        reward ([`ChecklistReward`]):
            The reward to watch.
        settings (mapping):
            Fields of [`MonitorSettings`], `log` and `shadow`.
        folder (`Path`, *optional*):
            Where relative paths of the shadow judge start.
    """
    if not isinstance(settings, Mapping):
        raise SampleError(f"expected a mapping of settings, got {type(settings).__name__} {settings!r:.60}.")
    allowed = ["log", "shadow", "attacks", *MonitorSettings.model_fields]
    for key in settings:
        if key not in allowed:
            raise SampleError(unknown("key", key, allowed))
    arguments = dict(settings)
    if isinstance(arguments.get("attacks"), str):
        arguments["attacks"] = folder / arguments["attacks"]
    shadow = arguments.get("shadow")
    if shadow is not None:
        if not isinstance(shadow, Mapping):
            raise SampleError(f"shadow must be a mapping of judge settings, got {shadow!r:.60}.")
        known("shadow", shadow, ScorerConfig.model_fields)
        try:
            arguments["shadow"] = placed(shadow, folder)
            monitor = RewardMonitor(reward, **arguments)
        except TypeError as error:
            raise SampleError(f"shadow: {error}.") from None
        assert monitor.shadow is not None
        monitor.shadow.check()
        return monitor
    return RewardMonitor(reward, **arguments)
