"""The callback of a monitor: it stops a trainer."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback


class MonitorCallback(TrainerCallback):
    """Stops training after a step in which an alarm of a [`Monitor`] asked for it, on all ranks. At the end, the
    monitor reports which signals could not be evaluated."""

    def __init__(self, monitor: Any):
        self.monitor = monitor

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop after an alarm with the action `stop`."""
        if self.monitor.should_stop:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report which signals could not be evaluated."""
        self.monitor.finish()
