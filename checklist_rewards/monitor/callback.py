"""The callback of a monitor: it stops a trainer."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from checklist_rewards.monitor.monitor import Monitor


class MonitorCallback(TrainerCallback):
    """Stops training after a step in which an alarm asked for it.

    Args:
        monitor ([`Monitor`]):
            Its `should_stop` is the same on all ranks.
    """

    def __init__(self, monitor: Monitor):
        self.monitor = monitor

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop after an alarm with the action `stop`."""
        if self.monitor.should_stop:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say which signals could not be evaluated."""
        self.monitor.finish()
