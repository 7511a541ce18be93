"""The signals that a monitor watches, as values: what is measured, how it is compared, which completions show it.

`items.py` has those from the items of a checklist, `judge.py` those about the judge, `completions.py` those from the
texts, `states.py` those from the states of completions, and `rewards.py` those from the rewards.

A completion without an answer counts in `states.py` and in the rewards. The judge was not asked about it, so it does
not count in the other signals.
"""

from checklist_rewards.monitor.signals import completions, items, judge, rewards, states
from checklist_rewards.monitor.signals.base import About, Evidence, Signal, best

SIGNALS: tuple[Signal, ...] = (
    *items.SIGNALS,
    *judge.SIGNALS,
    *completions.SIGNALS,
    *states.SIGNALS,
    *rewards.SIGNALS,
)

__all__ = ["SIGNALS", "About", "Evidence", "Signal", "best"]
