"""How often a detector alarms on noise, and how late it finds a shift.

    python recipes/studies/hacking/noise.py

Each run has 200 steps, the default windows and a threshold of 0.1. The value of a step is normal with standard
deviation 0.1, of which a part of the variance is common to all prompts of the step. Shifts of 0.3 start at step 50.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

from checklist_rewards.monitor import MonitorConfig
from checklist_rewards.monitor.detectors import Shift, mean, risen

RUNS, STEPS, AT, SHIFT, THRESHOLD, DEVIATION = 60, 200, 50, 0.3, 0.1, 0.1


def alarms(seed: int, prompts: int, common: float, certainty: float, shift: float, deviation: float) -> list[int]:
    """Steps at which an alarm is raised. `common` is the share of the variance that all prompts of a step have."""
    settings, rng = MonitorConfig(), random.Random(seed)
    detector = Shift(
        mean, risen(), True, start=settings.start, window=settings.window, threshold=THRESHOLD, certainty=certainty
    )
    own = deviation * ((1 - common) * prompts) ** 0.5
    found = []
    for step in range(STEPS):
        centre = (shift if step >= AT else 0.0) + rng.gauss(0, deviation * common**0.5)
        if detector.update([(rng.gauss(centre, own), 1.0) for _ in range(prompts)]).raised:
            found.append(step)
    return found


def row(prompts: int, common: float, certainty: float, deviation: float = DEVIATION) -> Sequence[str]:
    """The figures of one setting."""
    case = prompts, common, certainty
    wrong = sum(bool(alarms(seed, *case, 0.0, deviation)) for seed in range(RUNS))
    found = [alarms(seed, *case, SHIFT, deviation) for seed in range(RUNS)]
    delays = [next((step - AT for step in steps if step >= AT), STEPS) for steps in found]
    missed = sum(delay >= 100 for delay in delays)
    shown = f"{deviation}", f"{prompts}", f"{common:.0%}", f"{certainty:g}"
    return *shown, f"{wrong} of {RUNS}", f"{median(delays):.0f}", f"{missed} of {RUNS}"


if __name__ == "__main__":
    default = MonitorConfig().certainty
    head = "standard deviation of a step", "prompts", "common to them", "certainty"
    head += "runs with a false alarm", "steps until the shift is found", "not in 100 steps"
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for prompts, common in ((1, 0.0), (4, 0.0), (8, 0.0), (8, 0.25), (8, 0.5)):
        for certainty in (2.5, default, 4.0):
            print("| " + " | ".join(row(prompts, common, certainty)) + " |", flush=True)
    print("| " + " | ".join(row(8, 0.25, default, 0.05)) + " |")
