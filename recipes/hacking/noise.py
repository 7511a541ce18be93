"""How often a detector alarms on noise, and how late it finds a shift.

    python recipes/hacking/noise.py

Each run has 200 steps of eight prompts, with the default windows and certainty and a threshold of 0.1. The value of a
prompt is normal; the table is by the standard deviation of the mean of a step. Shifts of 0.3 start at step 50.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

from checklist_rewards.monitor import MonitorSettings
from checklist_rewards.monitor.detectors import Shift, mean, risen

RUNS, STEPS, PROMPTS, AT, SHIFT, THRESHOLD = 60, 200, 8, 50, 0.3, 0.1


def alarms(seed: int, deviation: float, shift: float) -> list[int]:
    """Steps at which an alarm is raised."""
    settings, rng = MonitorSettings(), random.Random(seed)
    detector = Shift(
        mean,
        risen(),
        True,
        start=settings.start,
        window=settings.window,
        threshold=THRESHOLD,
        certainty=settings.certainty,
    )
    found = []
    for step in range(STEPS):
        centre = shift if step >= AT else 0.0
        parts = [(rng.gauss(centre, deviation * PROMPTS**0.5), 1.0) for _ in range(PROMPTS)]
        if detector.update(parts).raised:
            found.append(step)
    return found


def row(deviation: float) -> Sequence[str]:
    """The figures of one standard deviation."""
    wrong = sum(bool(alarms(seed, deviation, 0.0)) for seed in range(RUNS))
    delays = [
        next((step - AT for step in alarms(seed, deviation, SHIFT) if step >= AT), STEPS) for seed in range(RUNS)
    ]
    missed = sum(delay >= 100 for delay in delays)
    return f"{deviation}", f"{wrong} of {RUNS}", f"{median(delays):.0f}", f"{missed} of {RUNS}"


if __name__ == "__main__":
    print(
        "| standard deviation of a step | runs with a false alarm | steps until a shift is found | not in 100 steps |"
    )
    print("|---|---|---|---|")
    for deviation in (0.02, 0.05, 0.1, 0.2):
        print("| " + " | ".join(row(deviation)) + " |")
