"""The signals that a monitor watches, as values: what is measured, how it is compared, which completions show it.

`items.py` has those from the items of a checklist, `judge.py` those about the judge, `completions.py` those from the
texts, and `rewards.py` those from the rewards.
"""

from checklist_rewards.monitor.signals import completions, items, judge, rewards
from checklist_rewards.monitor.signals.base import About, Evidence, Signal, best

SIGNALS: tuple[Signal, ...] = (*items.SIGNALS, *judge.SIGNALS, *completions.SIGNALS, *rewards.SIGNALS)

__all__ = ["SIGNALS", "About", "Evidence", "Signal", "best"]
