"""The callback of a monitor: it stops a trainer."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import TrainerCallback


class Stopping(Protocol):
    """What the callback uses of a monitor."""

    should_stop: bool

    def finish(self) -> None:
        """Say what could not be evaluated."""


class MonitorCallback(TrainerCallback):
    """Stops training after a step in which an alarm asked for it.

    Args:
        monitor ([`Monitor`]):
            Its `should_stop` is the same on all ranks.
    """

    def __init__(self, monitor: Stopping):
        self.monitor = monitor

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop after an alarm with the action `stop`."""
        if self.monitor.should_stop:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Say which signals could not be evaluated."""
        self.monitor.finish()
