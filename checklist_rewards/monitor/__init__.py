"""Watching a training run for reward hacking.

`ChecklistReward(monitor=...)` has a [`Monitor`] among its stages. [`audit`] computes the same signals from a reward
log. `signals.py` has what is watched, `detectors.py` when it alarms, `watch.py` both together.
"""

from __future__ import annotations

from checklist_rewards.monitor.audit import Audit, audit
from checklist_rewards.monitor.monitor import Monitor
from checklist_rewards.monitor.watch import Alarm
from checklist_rewards.rewards.settings import MonitorConfig

__all__ = ["Alarm", "Audit", "Monitor", "MonitorConfig", "audit"]
