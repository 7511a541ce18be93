"""Watching a training run for reward hacking.

[`RewardMonitor`] wraps a reward and is one itself; [`audit`] computes the same signals from a reward log. `signals/`
has what is watched, `detectors.py` when it alarms, `watch.py` both together.

`trl grpo --reward_funcs checklist_rewards.monitor.reward` reads its settings from the YAML file named by the
environment variable `CHECKLIST_REWARDS_CONFIG` (`configured.py`).
"""

from __future__ import annotations

from checklist_rewards.monitor.audit import Audit, audit
from checklist_rewards.monitor.configured import monitor_from_environment
from checklist_rewards.monitor.monitor import RewardMonitor
from checklist_rewards.monitor.settings import MonitorSettings
from checklist_rewards.monitor.watch import Alarm

__all__ = ["Alarm", "Audit", "MonitorSettings", "RewardMonitor", "audit"]


def __getattr__(name: str) -> RewardMonitor:
    # `trl grpo --reward_funcs` takes an attribute of a module and has no way to pass arguments to it.
    if name == "reward":
        return monitor_from_environment()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
